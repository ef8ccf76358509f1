"""The engagement and hygiene gates."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.cells.cell import Cell
from fixtures.evidence.cellrun import Observation, Refusal, RefusalKind, Xid
from gates.engagement import judge_engagement
from gates.hygiene import judge_hygiene
from gates.policy import read_policy
from gates.verdict import Finding, Status
from suites.selftest.build import a_cell, a_run, an_attempt, an_engagement

POLICY = read_policy()
DOWNGRADED = a_cell("dsv4.FULL.bk0.contract", expected="FULL_AND_PIECEWISE")
NOTHING = a_cell("dsv4.PIECEWISE.bk0.contract", expected="NONE")
EAGER = a_cell("dsv4.NONE.bk0.contract")


def engagement(cell: Cell | None = None, **changes: object) -> tuple[Finding, ...]:
    cell = cell or a_cell()
    record = Observation(engagement=an_engagement(cell, **changes))
    return judge_engagement(a_run(cell, observation=record), None, POLICY)


def only(findings: tuple[Finding, ...]) -> Finding:
    (finding,) = findings
    return finding


def test_the_mode_that_was_asked_for_passes() -> None:
    finding = only(engagement())
    assert (finding.status, finding.n) == (Status.PASS, 11)


def test_an_expected_downgrade_is_unsupported_with_the_reason_of_the_yaml() -> None:
    finding = only(engagement(DOWNGRADED))
    assert finding.status is Status.UNSUPPORTED
    assert "what the YAML says" in finding.why


@pytest.mark.parametrize("effective", ["NONE", "PIECEWISE", "FULL_DECODE_ONLY"])
def test_an_unexpected_downgrade_is_vacuous(effective: str) -> None:
    finding = only(engagement(effective=effective))
    assert (finding.status, finding.fault_class) == (Status.VACUOUS, "H")
    assert effective in finding.why


def test_another_downgrade_than_the_expected_one_is_vacuous() -> None:
    assert only(engagement(DOWNGRADED, effective="PIECEWISE")).status is Status.VACUOUS


@pytest.mark.parametrize("cell", [DOWNGRADED, NOTHING])
def test_an_expected_downgrade_that_no_longer_happens_is_a_finding(cell: Cell) -> None:
    counts = dict.fromkeys(("planned", "captured", "replayed", "graphs"), 3)
    finding = only(engagement(cell, effective=cell.key.mode, **counts))
    assert finding.status is Status.FAIL
    assert "out of date" in finding.why


@pytest.mark.parametrize(
    "changes",
    [
        {"effective": "PIECEWISE"},
        {"effective": "PIECEWISE", "refusal": "PIECEWISE needs compilation"},
        {"effective": "NONE"},
    ],
)
def test_where_none_is_expected_capturing_nothing_and_raising_are_the_same(
    changes: dict[str, str],
) -> None:
    finding = only(engagement(NOTHING, **changes))
    assert finding.status is Status.UNSUPPORTED
    assert changes.get("refusal", "") in finding.why


def test_graphs_that_were_never_captured_are_vacuous() -> None:
    finding = only(engagement(graphs=0, captured=0, replayed=0))
    assert (finding.status, finding.fault_class) == (Status.VACUOUS, "H")
    assert "captured no graph" in finding.why


def test_an_unexpected_refusal_is_vacuous_and_quoted() -> None:
    finding = only(engagement(refusal="mode needs FlashAttention 3"))
    assert finding.status is Status.VACUOUS
    assert "mode needs FlashAttention 3" in finding.why


@pytest.mark.parametrize("cell", [a_cell(), DOWNGRADED])
@pytest.mark.parametrize(
    ("changes", "check", "status"),
    [
        ({"captured": 10, "replayed": 10}, "captured", Status.VACUOUS),
        ({"replayed": 10}, "replayed", Status.VACUOUS),
        ({"captured": 12, "replayed": 12}, "late-capture", Status.FAIL),
    ],
)
def test_every_planned_descriptor_is_captured_and_replayed(
    cell: Cell, changes: dict[str, int], check: str, status: Status
) -> None:
    found = {finding.check: finding for finding in engagement(cell, **changes)}
    assert found[check].status is status
    assert found[check].measured


def test_the_reference_runs_without_graphs() -> None:
    assert only(engagement(EAGER)).status is Status.PASS


@pytest.mark.parametrize("changes", [{"graphs": 2}, {"graphs": 2, "effective": "FULL"}])
def test_a_reference_with_graphs_proves_nothing(changes: dict[str, Any]) -> None:
    assert only(engagement(EAGER, **changes)).status is Status.VACUOUS


def test_a_child_that_answers_another_question_is_not_believed() -> None:
    finding = only(engagement(requested="PIECEWISE"))
    assert (finding.status, finding.fault_class) == (Status.VACUOUS, "M")


def test_an_observation_that_is_silent_about_graphs_proves_nothing() -> None:
    findings = judge_engagement(a_run(observation=Observation()), None, POLICY)
    assert only(findings).status is Status.VACUOUS


def test_a_refusal_leaves_nothing_to_say() -> None:
    refusal = Refusal(kind=RefusalKind.CONFIG, why="no such mode")
    run = a_run(observation=Observation(refusal=refusal))
    assert judge_engagement(run, None, POLICY) == ()


def hygiene(**changes: Any) -> tuple[Finding, ...]:
    return judge_hygiene(a_run(attempts=(an_attempt(**changes),)), None, POLICY)


def xids(*codes: int) -> tuple[Xid, ...]:
    return tuple(Xid(code=code, device="GPU-0") for code in codes)


def test_a_clean_run_passes_hygiene() -> None:
    assert only(hygiene()).status is Status.PASS


def test_leaked_processes_fail() -> None:
    finding = only(hygiene(leaked_pids=(11, 12)))
    assert (finding.status, finding.n) == (Status.FAIL, 2)


def test_a_hardware_xid_means_the_node() -> None:
    assert only(hygiene(xids=xids(48, 48))).status is Status.INFRA


def test_an_application_xid_under_a_completed_run_is_a_hidden_failure() -> None:
    finding = only(hygiene(xids=xids(31)))
    assert (finding.status, finding.fault_class) == (Status.FAIL, "M")


def test_tear_down_xids_say_nothing() -> None:
    assert only(hygiene(xids=xids(43, 45))).status is Status.PASS


def test_only_the_last_attempt_is_looked_at() -> None:
    run = a_run(attempts=(an_attempt(leaked_pids=(7,)), an_attempt(index=1)))
    assert only(judge_hygiene(run, None, POLICY)).status is Status.PASS
