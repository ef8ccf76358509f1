"""JUnit XML for CI systems: a suite per tier and model, a case per cell and gate.

Owns: how statuses, findings and attempts map to JUnit's words. Must not know: policy,
the clock (it is told the time), or files: the same verdicts give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from io import BytesIO
from itertools import groupby

from junitparser import Error, Failure, Skipped
from junitparser.xunit2 import FlakyFailure, JUnitXml, RerunFailure, TestCase, TestSuite

from fixtures.cells.cell import CellKey
from fixtures.evidence.cellrun import Attempt, CellRun
from gates.judge import GATES_OF_TIER, OWN_STATUSES, worst
from gates.verdict import Finding, Gate, Status, Verdict, Verdicts
from reports.text import clean, one_line

_RESULTS = {
    Status.FAIL: Failure,
    Status.VACUOUS: Failure,
    Status.INVALID: Failure,
    Status.CRASH: Error,
    Status.HANG: Error,
    Status.INFRA: Error,
    Status.CONFIG: Error,
    Status.MISSING: Error,
    Status.UNSUPPORTED: Skipped,
    Status.XFAIL: Skipped,
}
"""JUnit's word for a status; a case of any other status is one that passed."""


def render_junit(verdicts: Verdicts, runs: Mapping[str, CellRun], timestamp: datetime) -> bytes:
    """The XML document, UTF-8. `runs` by cell key give times, attempts and provenance."""
    document = JUnitXml("graphgate")
    ordered = sorted(verdicts.verdicts, key=lambda verdict: _suite_name(verdict.key))
    for name, group in groupby(ordered, key=lambda verdict: _suite_name(verdict.key)):
        document.append(_suite(name, tuple(group), verdicts, runs, timestamp))
    document.append(_decision_suite(verdicts, timestamp))
    document.update_statistics()
    buffer = BytesIO()
    document.write(buffer)
    return buffer.getvalue()


def _suite_name(key: CellKey) -> str:
    return f"{key.tier}.{key.model}"


def _suite(
    name: str,
    chosen: tuple[Verdict, ...],
    verdicts: Verdicts,
    runs: Mapping[str, CellRun],
    timestamp: datetime,
) -> TestSuite:
    suite = _empty_suite(name, timestamp)
    known = [runs[str(verdict.key)] for verdict in chosen if str(verdict.key) in runs]
    about = {"source": one_line(verdicts.source), "sweep": one_line(verdicts.sweep)}
    for key, value in (about | dict(_provenance(known))).items():
        suite.add_property(key, value)
    suite.add_testcases(
        [case for verdict in chosen for case in _cases(verdict, runs.get(str(verdict.key)))]
    )
    return suite


def _empty_suite(name: str, timestamp: datetime) -> TestSuite:
    suite = TestSuite(name)
    suite.timestamp = timestamp.replace(microsecond=0).isoformat()
    return suite


def _provenance(runs: Iterable[CellRun]) -> Iterator[tuple[str, str]]:
    """What ran where, one pair a field; where cells differ, all values."""
    values: dict[str, dict[str, None]] = {}
    for run in runs:
        for field, value in run.provenance:
            if value is not None:
                values.setdefault(field, {})[one_line(str(value))] = None
    for field, seen in values.items():
        yield field, ", ".join(sorted(seen))


def _cases(verdict: Verdict, run: CellRun | None) -> Iterator[TestCase]:
    """A case for each gate of the tier, and for any other gate that has a finding."""
    found = {finding.gate for finding in verdict.findings}
    for gate in Gate:
        if gate in GATES_OF_TIER[verdict.key.tier] or gate in found:
            yield _case(verdict, gate, run)


def _case(verdict: Verdict, gate: Gate, run: CellRun | None) -> TestCase:
    case = TestCase(str(gate), classname=str(verdict.key), time=0.0)
    findings = tuple(finding for finding in verdict.findings if finding.gate is gate)
    case.add_property("status", str(verdict.status))
    case.add_property("attempts", str(verdict.attempts))
    for identity in sorted({finding.identity for finding in findings}):
        case.add_property("finding", identity)
    if findings:
        _add_result(case, findings)
    elif verdict.status in OWN_STATUSES:
        case.append(Skipped(f"not gated: the run itself was {verdict.status}"))
    if gate is Gate.LIVENESS and run is not None:
        case.time = round(sum(sum(a.timings.values()) for a in run.attempts), 3)
        _add_attempts(case, run.attempts[:-1], passed=worst(findings) is Status.PASS)
    return case


def _add_result(case: TestCase, findings: tuple[Finding, ...]) -> None:
    """The worst finding's status as JUnit's, the words of all findings as its text."""
    status = worst(findings)
    text = "\n".join(_lines(findings))
    if status not in _RESULTS:
        case.system_out = text
        return
    message = next(one_line(finding.why) for finding in findings if finding.status is status)
    result = _RESULTS[status](message, str(status))
    result.text = text
    case.append(result)


def _lines(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"{finding.status} {finding.identity} {finding.check}: {one_line(finding.why)}"
        if finding.measured is not None:
            limit = f", limit {one_line(finding.limit)}" if finding.limit is not None else ""
            yield f"    measured {one_line(finding.measured)}{limit}"
        yield from (f"    {one_line(place)}" for place in finding.evidence)


def _add_attempts(case: TestCase, attempts: Iterable[Attempt], *, passed: bool) -> None:
    """Attempts before the last, as surefire writes them: flaky if the cell lived in the end."""
    for attempt in attempts:
        crash = attempt.crash
        title = one_line(crash.title) if crash is not None else f"ended in {attempt.phase}"
        kind = str(crash.kind) if crash is not None else attempt.exit.kind
        interim = FlakyFailure if passed else RerunFailure
        result = interim(f"attempt {attempt.index + 1}: {title}", kind)
        result.stack_trace = clean(crash.excerpt) if crash is not None else ""
        case.add_interim_result(result)


def _decision_suite(verdicts: Verdicts, timestamp: datetime) -> TestSuite:
    """What no cell can say: whether it may merge, and what was not looked at."""
    decision = verdicts.decision
    suite = _empty_suite("decision", timestamp)
    case = TestCase("decision", classname="graphgate", time=0.0)
    case.add_property("exit-code", str(int(decision.exit_code)))
    whole = [blocker.reason for blocker in decision.blockers if blocker.key is None]
    open_questions = [one_line(text) for text in (*decision.incomplete, *whole)]
    if open_questions:
        result = Failure(open_questions[0], decision.exit_code.name)
        result.text = "\n".join(open_questions)
        case.append(result)
    else:
        case.system_out = "\n".join(_lines(verdicts.findings))
    suite.add_testcases([case])
    return suite
