"""A small night of every kind of cell, for tests of reports: verdicts, plan and runs.

Owns: which cells there are. Times and names are fixed, so that reports can be compared
byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import NamedTuple

from fixtures.cells.axes import Tier
from fixtures.cells.cell import Omission, Plan
from fixtures.evidence.cellrun import CellRun, Observation, Xid
from fixtures.evidence.exits import Exited, Killed, KillReason, Signaled
from gates.evidence import Evidence, judge_evidence
from gates.policy import read_policy
from gates.verdict import Verdicts
from suites.selftest.build import a_cell, a_crash, a_plan, a_run, an_attempt, an_engagement

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)


class Night(NamedTuple):
    """What a report is drawn from."""

    verdicts: Verdicts
    plan: Plan
    runs: Mapping[str, CellRun]


def night(runs: Iterable[CellRun], **plan_changes: object) -> Night:
    """The night that these runs make."""
    by_key = {str(run.cell.key): run for run in runs}
    plan = a_plan(*(run.cell for run in by_key.values()), **plan_changes)
    evidence = Evidence(plan, by_key, (), ())
    verdicts = judge_evidence(evidence, read_policy(), (), date(2026, 11, 30))
    return Night(verdicts, plan, by_key)


def a_night() -> Night:
    """A pass, a leak, a crash on the device, a hang, a sick node that recovered, a refusal."""
    sick = an_attempt(
        Exited(code=1),
        crash=a_crash("INFRA", "GPU has fallen off the bus"),
        xids=(Xid(code=79, device="GPU-0"),),
    )
    crash = a_crash().model_copy(update={"sources": ("core",), "pc": "0x7f696f7a0fb0"})
    killed = Killed(reason=KillReason.NO_PROGRESS, phase="work")
    hang = a_crash(title="hang in phase work").model_copy(update={"host_stacks": ("main: wait",)})
    unlike = a_cell("dsv4.PIECEWISE.bk0.contract", expected="NONE")
    refused = an_engagement(unlike, refusal="not torch-compiled")
    runs = (
        a_run(a_cell("dsv4.NONE.bk0.contract", expected="NONE")),
        a_run(a_cell("dsv4.FULL.bk0.contract"), attempts=(an_attempt(leaked_pids=(4711,)),)),
        a_run(unlike, observation=Observation(engagement=refused)),
        a_run(
            a_cell("llama.FULL.bk0.canary"),
            attempts=(an_attempt(Signaled(signo=6)),),
            observation=None,
            crash=crash,
        ),
        a_run(
            a_cell("llama.FULL.bk1.canary"),
            attempts=(an_attempt(killed),),
            observation=None,
            crash=hang,
        ),
        a_run(
            a_cell("llama.NONE.bk0.contract", expected="NONE"), attempts=(sick, an_attempt(index=1))
        ),
    )
    left_out = Omission(tier=Tier.SCORE, reason="no checkpoint on this machine")
    return night(runs, omissions=(left_out,))
