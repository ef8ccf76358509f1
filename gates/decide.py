"""May it merge? One decision from the plan and all verdicts.

Owns: completeness (planned but never received, tiers that are due, nothing proven) and the
exit code. Must not know: evidence, or how a verdict came about.
"""

from __future__ import annotations

from collections.abc import Iterable

from fixtures.cells.axes import GraphMode
from fixtures.cells.cell import CellKey, Plan
from gates.policy import Policy
from gates.verdict import (
    Blocker,
    Decision,
    ExitCode,
    Finding,
    Gate,
    Status,
    Verdict,
)

_UNJUDGED = frozenset({Status.UNSUPPORTED, Status.MISSING, Status.INFRA, Status.CONFIG})
"""Statuses of cells about which nothing was found out, good or bad."""


def complete(plan: Plan, verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """One verdict for each planned cell, in the plan's order; MISSING where none was received.

    Verdicts on cells that were not planned follow, in the order of their keys.
    """
    received = {verdict.key: verdict for verdict in verdicts}
    planned = tuple(
        received.pop(cell.key) if cell.key in received else _missing(cell.key)
        for cell in plan.cells
    )
    return planned + tuple(sorted(received.values(), key=lambda verdict: str(verdict.key)))


def decide(
    plan: Plan,
    verdicts: Iterable[Verdict],
    tree_findings: tuple[Finding, ...],
    policy: Policy,
) -> Decision:
    """The decision on a whole run; it allows only if nothing blocks and nothing is left open."""
    everything = complete(plan, verdicts)
    blockers = (
        *(_blocker(verdict) for verdict in everything if verdict.status.blocks),
        *(_tree_blocker(finding) for finding in tree_findings if finding.status.blocks),
    )
    incomplete = (
        *_nothing_proven(everything),
        *_tiers_due(plan, everything, tree_findings, policy),
    )
    return Decision(
        allow=not blockers and not incomplete,
        exit_code=_exit_code(blockers, incomplete),
        blockers=tuple(sorted(blockers, key=lambda blocker: blocker.status.rank)),
        incomplete=incomplete,
    )


def judged(verdict: Verdict) -> bool:
    """Whether this verdict says something: the cell wanted graphs and was gated.

    A cell without vLLM, on whose graphs no gate has a word, says something by its scores.
    """
    if verdict.status in _UNJUDGED:
        return False
    without_vllm = all(finding.gate is not Gate.ENGAGEMENT for finding in verdict.findings)
    scored = any(finding.test is not None for finding in verdict.findings)
    return verdict.key.mode is not GraphMode.NONE or (without_vllm and scored)


def _exit_code(blockers: tuple[Blocker, ...], incomplete: tuple[str, ...]) -> ExitCode:
    """The code of the first blocking status in the table; an open question is a missing answer."""
    statuses = {blocker.status for blocker in blockers}
    if incomplete:
        statuses.add(Status.MISSING)
    first = min(statuses, key=lambda status: status.rank, default=Status.PASS)
    return first.exit_code


def _missing(key: CellKey) -> Verdict:
    why = "planned, but no run was received"
    finding = Finding(gate=Gate.LIVENESS, check="received", status=Status.MISSING, why=why)
    return Verdict(key=key, status=Status.MISSING, findings=(finding,), attempts=0)


def _blocker(verdict: Verdict) -> Blocker:
    reasons = [f.why for f in verdict.findings if f.status is verdict.status]
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return Blocker(
        key=verdict.key,
        status=verdict.status,
        reason=(reasons[0] if reasons else "no finding explains this status") + more,
    )


def _tree_blocker(finding: Finding) -> Blocker:
    return Blocker(key=None, status=finding.status, reason=finding.why)


def _nothing_proven(verdicts: tuple[Verdict, ...]) -> tuple[str, ...]:
    if any(judged(verdict) for verdict in verdicts):
        return ()
    if not verdicts:
        return ("nothing was proven: no cell was planned",)
    return ("nothing was proven: not one cell that asks for graphs was really judged",)


def _tiers_due(
    plan: Plan,
    verdicts: tuple[Verdict, ...],
    tree_findings: tuple[Finding, ...],
    policy: Policy,
) -> tuple[str, ...]:
    """The hardware tiers that are asked for and that the verdicts do not give."""
    drifted: set[str] = set()
    if any(finding.gate is Gate.DRIFT for finding in tree_findings):
        drifted = {cell.key.model for cell in plan.cells}
    asked = {
        "the capture contract changed": drifted,
        "the contract tier can't see what changed": set(plan.hardware_tiers_due) - drifted,
    }
    have = {(verdict.key.model, verdict.key.tier) for verdict in verdicts if judged(verdict)}
    due = policy.drift.tiers_due.get(plan.sweep, ())
    return tuple(
        f"{why}, which in this sweep asks for the {tier} tier: "
        f"no {tier} cell was judged of {', '.join(missing)}"
        for why, models in asked.items()
        for tier in due
        if (missing := [model for model in sorted(models) if (model, tier) not in have])
    )
