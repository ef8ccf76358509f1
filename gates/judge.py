"""One cell's verdict: which gates speak, and whose word counts.

Owns: the list of gates and the precedence inside a cell. Must not know: what any gate looks
at, other cells, or whether the merge is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

from fixtures.cells.axes import Tier
from fixtures.evidence.cellrun import CellRun
from gates.audit import judge_graphs
from gates.contract import judge_contract
from gates.engaged import PROBE
from gates.engagement import judge_engagement
from gates.files import NO_FILES, CellFiles
from gates.hygiene import judge_hygiene
from gates.known import KnownIssue, excuse
from gates.liveness import judge_liveness
from gates.parity import judge_parity
from gates.policy import Policy
from gates.scores.gate import judge_scores
from gates.verdict import Finding, Gate, Status, Verdict

GateFunction = Callable[[CellRun, CellRun | None, Policy], tuple[Finding, ...]]
"""A gate: the cell's run, its reference's run where it has one, the policy."""


def _judge_audit(run: CellRun, _reference: CellRun | None, _policy: Policy) -> tuple[Finding, ...]:
    return judge_contract(run)


GATES: tuple[GateFunction, ...] = (judge_engagement, _judge_audit, judge_hygiene)
"""The gates that a living run passes through, in the order in which a reader wants them."""

GATES_OF_TIER: dict[Tier, tuple[Gate, ...]] = {
    Tier.CONTRACT: (
        Gate.LIVENESS,
        Gate.ENGAGEMENT,
        Gate.AUDIT,
        Gate.PARITY,
        Gate.HYGIENE,
    ),
    Tier.CANARY: (Gate.LIVENESS, Gate.ENGAGEMENT, Gate.PARITY, Gate.HYGIENE),
    Tier.SCORE: (Gate.LIVENESS, Gate.ENGAGEMENT, Gate.PARITY, Gate.SCORES, Gate.HYGIENE),
}
"""The gates that have something to say about a cell of each tier, for reports and pytest."""

OWN_STATUSES = frozenset(
    {
        Status.CONFIG,
        Status.INFRA,
        Status.CRASH,
        Status.HANG,
        Status.UNSUPPORTED,
        Status.MISSING,
    }
)
"""Statuses of the run itself: where liveness gives one, there is nothing left to gate."""

DIED = frozenset({Status.CRASH, Status.HANG})
"""Of these, statuses of an engine that may have left an audit of its captures: it says why."""


def judge_cell(
    run: CellRun,
    reference: CellRun | None,
    policy: Policy,
    known: tuple[KnownIssue, ...],
    today: date,
    files: CellFiles = NO_FILES,
) -> Verdict:
    """The verdict on one cell: the run's own status, or else the worst of its gates' findings.

    A gate's UNSUPPORTED (an expected downgrade) is a finding like any other, so a fault that
    shows in the mode that came true is not hidden by it.
    """
    findings = judge_liveness(run, reference, policy)
    if worst(findings) in DIED:
        findings += judge_graphs(run, files.graphs)
    if worst(findings) not in OWN_STATUSES:
        for gate in GATES:
            findings += gate(run, reference, policy)
        findings += judge_graphs(run, files.graphs)
        findings += judge_parity(run, reference, policy.parity, files.outputs)
        findings += judge_scores(run, reference, policy, files.samples)
        findings = excuse(run.cell.key, findings, known, today)
    return Verdict(
        key=run.cell.key,
        status=worst(findings),
        findings=findings,
        attempts=len(run.attempts),
    )


def judge_trial(run: CellRun, policy: Policy) -> Verdict:
    """The verdict on a trial of the planted zoo: a child that runs no engine.

    So there is no probe that could prove itself, and there are no outputs to compare.
    """
    findings = judge_liveness(run, None, policy)
    if worst(findings) not in OWN_STATUSES:
        engaged = judge_engagement(run, None, policy)
        findings += tuple(finding for finding in engaged if finding.check != PROBE)
        findings += judge_hygiene(run, None, policy)
    return Verdict(
        key=run.cell.key, status=worst(findings), findings=findings, attempts=len(run.attempts)
    )


def worst(findings: tuple[Finding, ...]) -> Status:
    """The worst status among `findings`, of which there is at least one."""
    return min((finding.status for finding in findings), key=lambda status: status.rank)
