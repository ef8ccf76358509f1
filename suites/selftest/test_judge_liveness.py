"""The liveness gate: a run has passed only if it says so itself."""

from __future__ import annotations

import signal

import pytest

from fixtures.evidence.cellrun import Observation, Refusal, RefusalKind
from fixtures.evidence.crash import CrashKind
from fixtures.evidence.exits import Exit, Exited, Killed, KillReason, NeverStarted, Signaled
from gates.liveness import judge_liveness
from gates.policy import read_policy
from gates.verdict import Finding, Status
from suites.selftest.build import a_cell, a_crash, a_run, an_attempt, an_engagement

POLICY = read_policy()
SEGV = Signaled(signo=signal.SIGSEGV)
HUNG = Killed(reason=KillReason.NO_PROGRESS, phase="work")


def liveness(**changes: object) -> Finding:
    (finding,) = judge_liveness(a_run(**changes), None, POLICY)  # type: ignore[arg-type]
    return finding


def test_a_completed_run_passes() -> None:
    finding = liveness()
    assert finding.status is Status.PASS
    assert "completion record" in finding.why


@pytest.mark.parametrize(
    ("exit_", "status"),
    [
        (Exited(code=0), Status.CRASH),
        (Exited(code=1), Status.CRASH),
        (SEGV, Status.CRASH),
        (HUNG, Status.HANG),
        (Killed(reason=KillReason.LOG_LIMIT, phase="work"), Status.CRASH),
        (Killed(reason=KillReason.INTERRUPTED, phase="work"), Status.MISSING),
        (NeverStarted(errno=12, why="out of memory"), Status.INFRA),
    ],
)
def test_a_run_without_a_record_gets_the_status_of_its_end(exit_: Exit, status: Status) -> None:
    assert liveness(attempts=(an_attempt(exit_),), observation=None).status is status


@pytest.mark.parametrize("exit_", [SEGV, HUNG, Exited(code=1)])
def test_a_completion_record_does_not_excuse_a_bad_end(exit_: Exit) -> None:
    assert liveness(attempts=(an_attempt(exit_),)).status in (Status.CRASH, Status.HANG)


def test_exit_0_without_a_record_is_a_hidden_failure() -> None:
    finding = liveness(observation=None)
    assert (finding.fault_class, finding.check) == ("M", "completion-record")
    assert "without a completion record" in finding.why


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("REG", Status.CRASH),
        ("AMB", Status.CRASH),
        ("SHADOW", Status.CRASH),
        ("INFRA", Status.INFRA),
        ("CONFIG", Status.CONFIG),
        ("VAC", Status.VACUOUS),
    ],
)
def test_the_kind_of_the_report_decides_what_a_dead_child_means(kind: str, status: Status) -> None:
    finding = liveness(
        attempts=(an_attempt(Exited(code=1)),), observation=None, crash=a_crash(kind)
    )
    assert finding.status is status
    assert "illegal memory access in gather_rows (kernels.cu:42)" in finding.why


@pytest.mark.parametrize("exit_", [SEGV, HUNG, NeverStarted(errno=2, why="no such file")])
def test_a_sick_node_is_never_blamed_on_the_code(exit_: Exit) -> None:
    finding = liveness(attempts=(an_attempt(exit_),), observation=None, crash=a_crash("INFRA"))
    assert finding.status is Status.INFRA


def test_a_segfault_is_no_vacuous_pass_because_the_log_tells_of_a_downgrade() -> None:
    finding = liveness(attempts=(an_attempt(SEGV),), observation=None, crash=a_crash("VAC"))
    assert finding.status is Status.CRASH
    assert "SIGSEGV" in finding.why


def test_a_report_on_the_last_attempt_counts_too() -> None:
    died = an_attempt(Exited(code=1), crash=a_crash("INFRA", "busy or unavailable"))
    assert liveness(attempts=(died,), observation=None).status is Status.INFRA


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("REG", Status.CRASH),
        ("INFRA", Status.INFRA),
        ("VAC", Status.VACUOUS),
        ("SHADOW", Status.PASS),
        ("AMB", Status.PASS),
    ],
)
def test_a_completed_run_with_a_fault_in_its_log(kind: str, status: Status) -> None:
    assert liveness(crash=a_crash(kind)).status is status


def test_a_downgrade_in_the_log_is_fine_where_the_yaml_expects_none() -> None:
    cell = a_cell("dsv4.PIECEWISE.bk0.contract", expected="NONE")
    assert liveness(cell=cell, crash=a_crash("VAC")).status is Status.PASS


@pytest.mark.parametrize("kind", list(RefusalKind))
def test_a_refusal_is_the_status_and_names_the_symbol(kind: RefusalKind) -> None:
    refusal = Refusal(kind=kind, why="no adapter knows this shape", symbol="CudaGraphManager")
    finding = liveness(
        attempts=(an_attempt(Exited(code=3)),), observation=Observation(refusal=refusal)
    )
    assert finding.status == kind.value
    assert "no adapter knows this shape (CudaGraphManager)" in finding.why


def test_a_refusal_does_not_hide_a_crash() -> None:
    refusal = Refusal(kind=RefusalKind.UNSUPPORTED, why="not here")
    record = Observation(refusal=refusal)
    assert liveness(attempts=(an_attempt(SEGV),), observation=record).status is Status.CRASH
    assert liveness(crash=a_crash("REG"), observation=record).status is Status.CRASH


def test_a_run_without_an_attempt_is_missing() -> None:
    assert liveness(attempts=(), observation=None).status is Status.MISSING


def test_a_pass_after_a_retry_says_so() -> None:
    failed = an_attempt(Exited(code=1), crash=a_crash("INFRA", "busy or unavailable"))
    finding = liveness(attempts=(failed, an_attempt(index=1)))
    assert finding.status is Status.PASS
    assert "attempt 2 of 2" in finding.why
    assert "attempt 1 was INFRA: busy or unavailable" in finding.why


def test_every_kind_of_crash_has_a_status_without_a_record() -> None:
    for kind in CrashKind:
        assert liveness(observation=None, crash=a_crash(kind)).status.blocks


def test_an_unknown_signal_is_still_named() -> None:
    run = a_run(attempts=(an_attempt(Signaled(signo=200)),), observation=None)
    (finding,) = judge_liveness(run, None, POLICY)
    assert "signal 200" in finding.why


def test_engagement_is_none_of_its_business() -> None:
    cell = a_cell()
    record = Observation(engagement=an_engagement(cell, captured=0, graphs=0))
    assert liveness(cell=cell, observation=record).status is Status.PASS
