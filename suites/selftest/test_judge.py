"""One cell's verdict: the precedence of design and its laws."""

from __future__ import annotations

import signal
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.evidence.cellrun import Observation, Refusal, RefusalKind
from fixtures.evidence.exits import Signaled
from gates.judge import GATES_OF_TIER, OWN_STATUSES, judge_cell, worst
from gates.known import KnownIssue
from gates.policy import read_policy
from gates.verdict import ExitCode, Finding, Gate, Status, Verdict
from suites.selftest.build import a_cell, a_crash, a_run, an_attempt, an_engagement
from suites.selftest.test_policy import issue

POLICY = read_policy()
TODAY = date(2026, 11, 30)
LEAKY = an_attempt(leaked_pids=(4711,))

statuses = st.sampled_from(Status)
findings = st.builds(
    Finding, gate=st.sampled_from(Gate), check=st.just("any"), status=statuses, why=st.just("x")
)


def verdict_on(*known: KnownIssue, **changes: object) -> Verdict:
    return judge_cell(a_run(**changes), None, POLICY, known, TODAY)  # type: ignore[arg-type]


def test_a_good_run_passes_all_its_gates() -> None:
    verdict = verdict_on()
    assert verdict.status is Status.PASS
    gates = {finding.gate for finding in verdict.findings}
    assert {Gate.LIVENESS, Gate.ENGAGEMENT, Gate.HYGIENE} <= gates


def test_the_runs_own_status_shuts_out_the_gates() -> None:
    died = an_attempt(Signaled(signo=signal.SIGABRT), leaked_pids=(4711,))
    verdict = verdict_on(attempts=(died,))
    assert verdict.status is Status.CRASH
    assert [finding.gate for finding in verdict.findings] == [Gate.LIVENESS]


@pytest.mark.parametrize("kind", list(RefusalKind))
def test_a_refused_cell_is_not_gated(kind: RefusalKind) -> None:
    record = Observation(refusal=Refusal(kind=kind, why="not here"))
    verdict = verdict_on(attempts=(LEAKY,), observation=record)
    assert verdict.status == kind.value


def test_a_fail_is_worse_than_a_vacuous_finding() -> None:
    cell = a_cell()
    record = Observation(engagement=an_engagement(cell, replayed=0))
    assert verdict_on(cell=cell, observation=record).status is Status.VACUOUS
    assert verdict_on(cell=cell, observation=record, attempts=(LEAKY,)).status is Status.FAIL


def test_an_expected_downgrade_hides_no_fault() -> None:
    cell = a_cell(expected="FULL_AND_PIECEWISE")
    assert verdict_on(cell=cell).status is Status.UNSUPPORTED
    assert verdict_on(cell=cell, attempts=(LEAKY,)).status is Status.FAIL


def test_a_known_issue_turns_the_cell() -> None:
    leak = issue(finding="hygiene:-:leaked-processes")
    assert verdict_on(leak, attempts=(LEAKY,)).status is Status.XFAIL
    assert verdict_on(leak).status is Status.XPASS
    assert verdict_on(leak, crash=a_crash()).status is Status.CRASH


def test_all_attempts_are_counted() -> None:
    failed = an_attempt(crash=a_crash("INFRA"))
    assert verdict_on(attempts=(failed, an_attempt(index=1))).attempts == 2


@given(st.lists(findings, min_size=1), findings)
def test_another_finding_never_makes_a_cell_better(some: list[Finding], more: Finding) -> None:
    assert worst((*some, more)).rank <= worst(tuple(some)).rank


@given(st.lists(findings, min_size=1))
def test_a_blocking_finding_blocks(some: list[Finding]) -> None:
    assert worst(tuple(some)).blocks == any(finding.status.blocks for finding in some)


def test_the_table_of_statuses_is_the_one_of_the_design() -> None:
    codes = {status.name: int(status.exit_code) for status in Status}
    assert list(codes.items()) == [
        ("CRASH", 11),
        ("HANG", 12),
        ("FAIL", 10),
        ("VACUOUS", 13),
        ("INVALID", 14),
        ("CONFIG", 30),
        ("INFRA", 20),
        ("MISSING", 31),
        ("XPASS", 0),
        ("XFAIL", 0),
        ("UNSUPPORTED", 0),
        ("PASS", 0),
    ]


def test_no_exit_code_means_something_else_to_a_ci_system() -> None:
    taken = {1, 2, 3, 4, 5, 6, 125, 128, 134, 137}
    assert not taken & {int(code) for code in ExitCode}


def test_liveness_comes_first_at_each_tier_and_own_statuses_are_never_a_pass() -> None:
    assert all(gates[0] is Gate.LIVENESS for gates in GATES_OF_TIER.values())
    assert Status.PASS not in OWN_STATUSES
