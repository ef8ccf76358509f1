"""The decision: completeness, exit codes, and what may never be allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import CellKey, Plan
from gates.decide import complete, decide
from gates.policy import read_policy
from gates.verdict import Decision, ExitCode, Finding, Gate, Status, Verdict
from suites.selftest.build import a_cell, a_plan

POLICY = read_policy()
FULL = "dsv4.FULL.bk0.contract"
PIECEWISE = "dsv4.PIECEWISE.bk0.contract"
EAGER = "dsv4.NONE.bk0.contract"
CANARY = "dsv4.FULL.bk0.canary"
DRIFT = Finding(gate=Gate.DRIFT, check="contract", status=Status.PASS, why="it changed")

keys = st.builds(
    CellKey,
    model=st.sampled_from(["dsv4", "llama"]),
    mode=st.sampled_from(GraphMode),
    breakable=st.sampled_from(Breakable),
    tier=st.sampled_from(Tier),
)
verdict_lists = st.lists(
    st.builds(Verdict, key=keys, status=st.sampled_from(Status)),
    unique_by=lambda verdict: verdict.key,
    max_size=12,
)


def a_verdict(key: str, status: str = "PASS", *whys: str) -> Verdict:
    found = tuple(
        Finding(gate=Gate.AUDIT, check="any", status=Status(status), why=why) for why in whys
    )
    return Verdict(key=CellKey.parse(key), status=Status(status), findings=found)


def decided(
    verdicts: list[Verdict],
    *,
    plan: Plan | None = None,
    findings: tuple[Finding, ...] = (),
) -> Decision:
    plan = plan or a_plan(*(a_cell(str(verdict.key)) for verdict in verdicts))
    return decide(plan, verdicts, findings, POLICY)


def test_a_run_in_which_all_passes_is_allowed() -> None:
    decision = decided([a_verdict(FULL), a_verdict(EAGER)])
    assert (decision.allow, decision.exit_code) == (True, ExitCode.ALLOW)


@pytest.mark.parametrize("status", [status for status in Status if status.blocks])
def test_one_blocking_cell_blocks_with_its_code(status: Status) -> None:
    decision = decided([a_verdict(FULL), a_verdict(PIECEWISE, status, "because")])
    assert (decision.allow, decision.exit_code) == (False, status.exit_code)
    (blocker,) = decision.blockers
    assert (str(blocker.key), blocker.reason) == (PIECEWISE, "because")


@pytest.mark.parametrize("status", ["XPASS", "XFAIL", "UNSUPPORTED"])
def test_what_does_not_block_is_allowed_beside_a_judged_cell(status: str) -> None:
    assert decided([a_verdict(FULL), a_verdict(PIECEWISE, status)]).allow


def test_a_regression_is_not_hidden_behind_a_retryable_code() -> None:
    decision = decided([a_verdict(FULL, "INFRA"), a_verdict(PIECEWISE, "FAIL")])
    assert decision.exit_code is ExitCode.FAIL
    assert [blocker.status for blocker in decision.blockers] == [Status.FAIL, Status.INFRA]


def test_several_reasons_are_counted() -> None:
    (blocker,) = decided([a_verdict(FULL, "FAIL", "one", "two", "three")]).blockers
    assert blocker.reason == "one (and 2 more)"


def test_a_planned_cell_that_was_not_received_is_missing() -> None:
    plan = a_plan(a_cell(FULL), a_cell(PIECEWISE))
    assert [v.status for v in complete(plan, [a_verdict(PIECEWISE)])] == ["MISSING", "PASS"]
    decision = decided([a_verdict(PIECEWISE)], plan=plan)
    assert (decision.allow, decision.exit_code) == (False, ExitCode.MISSING)


def test_a_verdict_that_was_not_planned_still_counts() -> None:
    decision = decided([a_verdict(FULL), a_verdict(PIECEWISE, "FAIL")], plan=a_plan(a_cell(FULL)))
    assert decision.exit_code is ExitCode.FAIL


@pytest.mark.parametrize(
    "verdicts",
    [
        [],
        [a_verdict(FULL, "UNSUPPORTED")],
        [a_verdict(EAGER), a_verdict(FULL, "UNSUPPORTED")],
    ],
)
def test_a_run_that_proved_nothing_is_31(verdicts: list[Verdict]) -> None:
    decision = decided(verdicts)
    assert (decision.allow, decision.exit_code) == (False, ExitCode.MISSING)
    assert "nothing was proven" in decision.incomplete[0]


def test_drift_asks_for_the_hardware_tiers_of_every_model() -> None:
    decision = decided([a_verdict(FULL), a_verdict("llama.FULL.bk0.contract")], findings=(DRIFT,))
    assert (decision.allow, decision.exit_code) == (False, ExitCode.MISSING)
    (text,) = decision.incomplete
    assert text.endswith("no canary cell was judged of dsv4, llama")


def test_drift_is_answered_by_a_judged_canary() -> None:
    assert decided([a_verdict(FULL), a_verdict(CANARY)], findings=(DRIFT,)).allow
    unsupported = [a_verdict(FULL), a_verdict(CANARY, "UNSUPPORTED")]
    assert not decided(unsupported, findings=(DRIFT,)).allow


def test_the_plan_remembers_what_is_due() -> None:
    plan = a_plan(a_cell(FULL), hardware_tiers_due=("inkling",))
    (text,) = decided([a_verdict(FULL)], plan=plan).incomplete
    assert "inkling" in text


def test_a_sweep_without_such_a_policy_does_not_ask() -> None:
    plan = a_plan(a_cell(FULL), sweep="nightly")
    assert decided([a_verdict(FULL)], plan=plan, findings=(DRIFT,)).allow


def test_a_worse_code_wins_over_incomplete() -> None:
    assert decided([a_verdict(FULL, "FAIL")], findings=(DRIFT,)).exit_code is ExitCode.FAIL


def test_a_blocking_finding_on_the_tree_blocks() -> None:
    bad = DRIFT.model_copy(update={"gate": Gate.AUDIT, "status": Status.FAIL})
    decision = decided([a_verdict(FULL)], findings=(bad,))
    assert decision.exit_code is ExitCode.FAIL
    assert decision.blockers[0].key is None


@given(verdict_lists, verdict_lists)
def test_nothing_that_blocks_is_ever_allowed(
    received: list[Verdict], planned: list[Verdict]
) -> None:
    plan = a_plan(*(a_cell(str(verdict.key)) for verdict in planned))
    decision = decide(plan, received, (), POLICY)
    keys_received = {verdict.key for verdict in received}
    blocked = any(verdict.status.blocks for verdict in received) or any(
        verdict.key not in keys_received for verdict in planned
    )
    assert not (decision.allow and blocked)
    assert decision.allow == (decision.exit_code is ExitCode.ALLOW)
    assert decision.allow == (not decision.blockers and not decision.incomplete)


@given(verdict_lists, st.randoms(use_true_random=False))
def test_the_order_of_verdicts_does_not_matter(verdicts: list[Verdict], random: object) -> None:
    plan = a_plan(*(a_cell(str(verdict.key)) for verdict in verdicts))
    shuffled = list(verdicts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert decide(plan, shuffled, (), POLICY) == decide(plan, verdicts, (), POLICY)


@given(verdict_lists, st.builds(Verdict, key=keys, status=st.sampled_from(Status)))
def test_a_blocking_verdict_never_helps(verdicts: list[Verdict], more: Verdict) -> None:
    plan = a_plan(*(a_cell(str(verdict.key)) for verdict in verdicts))
    known = {verdict.key for verdict in verdicts}
    if not more.status.blocks or more.key in known:
        return
    assert not decide(plan, [*verdicts, more], (), POLICY).allow
