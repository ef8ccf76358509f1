"""What the page of one cell shows, gathered from its verdict and its run.

Owns: the choice of facts and the cutting of what is too long. Must not know: HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fixtures.cells.cell import CellKey, Plan
from fixtures.evidence.cellrun import Attempt, CellRun, Engagement
from fixtures.evidence.crash import CrashReport
from gates.verdict import Finding, Status, Verdict
from reports.exits import exit_words
from reports.html.contract import ContractFacts, contract_facts
from reports.html.figures import CellFigures, Score, scores_of
from reports.html.graphs import GraphFacts, graph_facts
from reports.html.plots import ParityPlot, parity_plot
from reports.html.timeline import Timeline, timeline
from reports.reproduce import cell_alone, cell_with_kin
from reports.text import clean, one_line

EXCERPT = 16_000
"""Characters of a log's excerpt or a stack that a page holds: its first and its last half."""
_SHOWN = 32

Facts = tuple[tuple[str, str], ...]


class AttemptRow(NamedTuple):
    """One attempt in words."""

    number: int
    ended: str
    phase: str
    seconds: float
    remarks: tuple[str, ...]
    artifacts: tuple[tuple[str, int], ...]
    crash: CrashReport | None
    """The report on an attempt that was followed by another one."""


class CrashPage(NamedTuple):
    """A failure: facts in a list, then texts that may be long."""

    title: str
    facts: Facts
    excerpt: str
    secondary: tuple[str, ...]
    host_stacks: tuple[str, ...]


class CellPage(NamedTuple):
    """Everything that the page of one cell shows; what there is no evidence of is None."""

    key: CellKey
    verdict: Verdict
    notable: tuple[Finding, ...]
    """Findings other than passes, worst first."""
    passed: tuple[Finding, ...]
    timeline: Timeline | None
    attempts: tuple[AttemptRow, ...]
    crash: CrashPage | None
    engagement: Facts
    contract: ContractFacts | None
    graphs: GraphFacts | None
    parity: ParityPlot | None
    scores: tuple[Score, ...]
    provenance: Facts
    alone: str | None
    with_kin: str | None


def cell_page(
    verdict: Verdict, run: CellRun | None, plan: Plan, figures: CellFigures | None
) -> CellPage:
    """The page of one cell; without a run it says what is known from the verdict."""
    attempts = run.attempts if run is not None else ()
    observed = run.observation if run is not None else None
    parity = figures.parity if figures is not None else None
    planted = run is not None and run.cell.mutant is not None
    alone = cell_alone(verdict.key, plan.source, plan.sweep, planted=planted)
    with_kin = cell_with_kin(verdict.key, plan.source, plan.sweep)
    return CellPage(
        key=verdict.key,
        verdict=verdict,
        notable=tuple(sorted((f for f in verdict.findings if not _passed(f)), key=_rank)),
        passed=tuple(finding for finding in verdict.findings if _passed(finding)),
        timeline=timeline(attempts),
        attempts=tuple(_attempt(one, last=one is attempts[-1]) for one in attempts),
        crash=_crash(run),
        engagement=_engagement(observed.engagement) if observed and observed.engagement else (),
        contract=contract_facts(observed.audit) if observed and observed.audit else None,
        graphs=graph_facts(figures.graphs) if figures and figures.graphs else None,
        parity=parity_plot(parity) if parity is not None else None,
        scores=(figures.scores if figures is not None else ()) or scores_of(verdict),
        provenance=tuple(_provenance(run)) if run is not None else (),
        alone=alone,
        with_kin=with_kin if alone is not None and not planted and alone != with_kin else None,
    )


def _passed(finding: Finding) -> bool:
    return finding.status is Status.PASS


def _rank(finding: Finding) -> int:
    return finding.status.rank


def total_seconds(attempts: Iterable[Attempt]) -> float:
    """Seconds of wall time over all attempts."""
    return sum(sum(attempt.timings.values()) for attempt in attempts)


def cut(text: str) -> str:
    """`text` without its middle where it is longer than a page should hold."""
    # Cleaning megabytes only to throw them away would be slow: cut generously first.
    rough = _ends(text, 2 * EXCERPT)
    return _ends(clean(rough), EXCERPT)


def _ends(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    half = width // 2
    return f"{text[:half]}\n[{len(text) - width} characters left out]\n{text[-half:]}"


def _attempt(attempt: Attempt, *, last: bool) -> AttemptRow:
    artifacts = tuple((one.path, one.bytes) for one in attempt.artifacts[:_SHOWN])
    return AttemptRow(
        number=attempt.index + 1,
        ended=exit_words(attempt.exit),
        phase=attempt.phase,
        seconds=sum(attempt.timings.values()),
        remarks=tuple(one_line(text, 600) for text in _remarks(attempt))[:_SHOWN],
        artifacts=artifacts,
        crash=None if last else attempt.crash,
    )


def _remarks(attempt: Attempt) -> Iterator[str]:
    if attempt.gpu is not None:
        yield f"on {attempt.gpu}"
    if attempt.peak_rss_mib is not None:
        yield f"peak memory {attempt.peak_rss_mib:.0f} MiB"
    yield from (f"Xid {xid.code} on {xid.device}" for xid in attempt.xids)
    if attempt.leaked_pids:
        yield f"left {len(attempt.leaked_pids)} processes behind"
    for watch in attempt.nodes:
        yield from watch.failures
        if watch.memory_left_mib:
            yield f"left {watch.memory_left_mib} MiB of GPU memory in use"
    yield from attempt.notes
    yield from (f"quarantine is asked for: {why}" for why in attempt.quarantine)


def _crash(run: CellRun | None) -> CrashPage | None:
    report = _last_report(run) if run is not None else None
    if report is None:
        return None
    return CrashPage(
        title=one_line(report.title, 400),
        facts=tuple(_crash_facts(report)),
        excerpt=cut(report.excerpt),
        secondary=tuple(one_line(line, 600) for line in report.secondary[:_SHOWN]),
        host_stacks=tuple(cut(stack) for stack in report.host_stacks[:_SHOWN]),
    )


def _last_report(run: CellRun) -> CrashReport | None:
    if run.crash is not None:
        return run.crash
    return run.attempts[-1].crash if run.attempts else None


def _crash_facts(report: CrashReport) -> Iterator[tuple[str, str]]:
    yield "kind", report.kind
    frame = report.frame
    if frame is not None:
        on_device = bool({"core", "driver", "cuda-gdb"} & set(report.sources))
        yield "kernel" if on_device else "function", one_line(frame.function, 600)
        if frame.file:
            line = f":{frame.line}" if frame.line is not None else ""
            yield "place", one_line(f"{frame.file}{line}", 600)
        if frame.raw and frame.raw != frame.function:
            yield "name in the binary", one_line(frame.raw, 600)
    if report.exception:
        yield "exception", one_line(report.exception, 600)
    if report.pc:
        yield "program counter", one_line(report.pc)
    yield "read from", ", ".join(report.sources) or "nothing"


def _engagement(seen: Engagement) -> Facts:
    facts = [
        ("requested", str(seen.requested)),
        ("effective", str(seen.effective)),
        ("descriptors planned", str(seen.planned)),
        ("descriptors captured", str(seen.captured)),
        ("descriptors replayed", str(seen.replayed)),
        ("graphs", str(seen.graphs)),
        ("eager breaks", str(seen.eager_breaks)),
        ("late captures", str(seen.late_captures)),
        ("torch-compiled", "yes" if seen.compiled else "no"),
    ]
    facts += [("vLLM refused", one_line(seen.refusal, 600))] if seen.refusal else []
    facts += [("note", one_line(note, 600)) for note in seen.notes[:_SHOWN]]
    return tuple(facts)


def _provenance(run: CellRun) -> Iterator[tuple[str, str]]:
    for name, value in run.provenance:
        if value is not None:
            yield name, one_line(str(value), 300)
    cell = run.cell
    yield "expected mode", f"{cell.expected.mode}: {one_line(cell.expected.reason, 600)}"
    yield "reference", str(cell.reference or "none")
    if cell.mutant:
        yield "planted fault", one_line(cell.mutant, 200)
    for name, value in sorted(cell.engine.items()):
        yield name, one_line(str(value), 600)
    for name, text in sorted(cell.environment.items()):
        yield name, one_line(text, 600) or "(empty)"
