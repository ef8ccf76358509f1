"""The pytest way in: same cells, same verdicts, one item per cell and gate."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from junitparser import Failure, JUnitXml, Skipped

from fixtures.cells.cell import CellKey
from fixtures.run.ledger import Ledger
from gates.evidence import judge_folder
from gates.judge import OWN_STATUSES, worst
from gates.known import read_known_issues
from gates.policy import read_policy
from gates.verdict import Finding, Gate, Status, Verdict
from suites.items import report

KEY = CellKey.parse("dsv4.FULL.bk0.contract")
GATES = ("liveness", "engagement", "audit", "parity", "hygiene")


def run_pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "suites/contract", "-p", "no:cacheprovider", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def outcomes(path: Path) -> dict[str, str]:
    """`<cell>-<gate>` to passed, failed or skipped."""
    found = {}
    for suite in JUnitXml.fromfile(str(path)):
        for case in suite:
            results = {type(result) for result in case.result}
            outcome = "failed" if Failure in results else "passed"
            found[case.name.split("[")[1].rstrip("]")] = (
                "skipped" if Skipped in results else outcome
            )
    return found


def expected_outcome(verdict: Verdict, gate: str) -> str:
    own = OWN_STATUSES - {Status.UNSUPPORTED}
    if gate != Gate.LIVENESS and verdict.status in own:
        return "skipped"
    findings = tuple(finding for finding in verdict.findings if finding.gate == gate)
    status = worst(findings) if findings else Status.PASS
    if status.blocks:
        return "failed"
    return "skipped" if status in {Status.UNSUPPORTED, Status.XFAIL} else "passed"


@pytest.mark.release("0.26.0")
def test_two_workers_give_the_gates_verdicts_and_run_each_cell_once(tmp_path: Path) -> None:
    out, junit = tmp_path / "out", tmp_path / "junit.xml"
    chosen = "llama.PIECEWISE.bk0.contract- or llama.NONE.bk0.contract- or llama.FULL.bk0.contract-"
    done = run_pytest(
        *("-k", chosen, "-n", "2", "--vllm", "0.26.0"),
        *("--graphgate-out", str(out), "--junitxml", str(junit)),
    )
    got = outcomes(junit)
    verdicts = judge_folder([out], read_policy(), read_known_issues(), date.today()).verdicts
    judged = {str(one.key): one for one in verdicts if one.status is not Status.MISSING}
    assert len(judged) == 3, done.stdout
    assert got == {
        f"{key}-{gate}": expected_outcome(verdict, gate)
        for key, verdict in judged.items()
        for gate in GATES
    }
    assert done.returncode == (1 if "failed" in got.values() else 0)
    runs = Counter(str(run.cell.key) for run in Ledger(out / "ledger.jsonl").read().runs)
    assert set(runs.values()) == {1}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--vllm", "/nowhere"), "--vllm: '/nowhere' is neither a release"),
        (("--vllm", "0.26.0", "--sweep", "weekly"), "known: nightly, pr"),
    ],
)
def test_a_wrong_request_is_a_usage_error(arguments: tuple[str, ...], told: str) -> None:
    done = run_pytest("--collect-only", *arguments)
    assert done.returncode != 0
    assert told in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def a_verdict(*findings: tuple[Gate, Status]) -> Verdict:
    made = tuple(
        Finding(gate=gate, check="rule", fault_class="C", status=status, why=f"{status} is why")
        for gate, status in findings
    )
    return Verdict(key=KEY, status=worst(made), findings=made)


class TestOneItem:
    def test_a_pass_returns(self) -> None:
        report(Gate.AUDIT, a_verdict((Gate.AUDIT, Status.PASS)))

    def test_a_gate_with_nothing_to_say_passes(self) -> None:
        report(Gate.HYGIENE, a_verdict((Gate.AUDIT, Status.FAIL)))

    @pytest.mark.parametrize("status", [Status.FAIL, Status.VACUOUS, Status.CRASH])
    def test_what_blocks_fails_in_the_findings_own_words(self, status: Status) -> None:
        with pytest.raises(pytest.fail.Exception) as failed:
            report(Gate.LIVENESS, a_verdict((Gate.LIVENESS, status), (Gate.AUDIT, Status.PASS)))
        assert failed.value.msg == f"{status} liveness:C: {status} is why"
        assert not failed.value.pytrace

    def test_unsupported_is_a_skip_with_its_reason(self) -> None:
        with pytest.raises(pytest.skip.Exception, match="UNSUPPORTED is why"):
            report(Gate.ENGAGEMENT, a_verdict((Gate.ENGAGEMENT, Status.UNSUPPORTED)))

    def test_a_known_issue_is_an_xfail(self) -> None:
        with pytest.raises(pytest.xfail.Exception, match="XFAIL is why"):
            report(Gate.AUDIT, a_verdict((Gate.AUDIT, Status.XFAIL)))

    def test_an_xpass_is_loud_and_passes(self) -> None:
        with pytest.warns(UserWarning, match="XPASS is why"):
            report(Gate.AUDIT, a_verdict((Gate.AUDIT, Status.XPASS)))

    def test_what_the_audit_left_of_a_crash_fails_too(self) -> None:
        with pytest.raises(pytest.fail.Exception, match="FAIL audit:C: FAIL is why"):
            report(Gate.AUDIT, a_verdict((Gate.LIVENESS, Status.CRASH), (Gate.AUDIT, Status.FAIL)))

    def test_gates_after_a_crash_are_not_judged(self) -> None:
        with pytest.raises(pytest.skip.Exception, match="not judged: the run itself is CRASH"):
            report(Gate.AUDIT, a_verdict((Gate.LIVENESS, Status.CRASH)))
