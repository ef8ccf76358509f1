"""Why cells have their statuses: findings gathered so that equal reasons are told once.

Owns: the grouping and its order. Must not know: how a reason is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gates.verdict import Finding, Gate, Status, Verdict, Verdicts


class Reason(NamedTuple):
    """One finding, and the keys of all cells that share it (none: the tree as a whole)."""

    finding: Finding
    keys: list[str]


class Part(NamedTuple):
    """Reasons that mean the same for the merge, worst first, under their heading."""

    heading: str
    reasons: list[Reason]

    def by_rule(self) -> list[list[Reason]]:
        """The reasons grouped by status and rule, each group where its first reason stands.

        Failures of runs stay apart: one rule speaks of all of them, whatever their cause.
        """
        groups: dict[tuple[Status, str, str], list[Reason]] = {}
        for reason in self.reasons:
            finding = reason.finding
            cause = finding.why if finding.gate is Gate.LIVENESS else ""
            label = (finding.status, rule_of(finding), cause)
            groups.setdefault(label, []).append(reason)
        return list(groups.values())


_PARTS: tuple[tuple[str, frozenset[Status]], ...] = (
    ("What blocks the merge", frozenset(status for status in Status if status.blocks)),
    ("Known issues that did not show", frozenset({Status.XPASS})),
    ("Known issues", frozenset({Status.XFAIL})),
    ("Not supported, as expected", frozenset({Status.UNSUPPORTED})),
    ("Worth knowing", frozenset({Status.PASS})),
)


def parts_of(verdicts: Verdicts) -> tuple[Part, ...]:
    """All reasons of a run by what they mean for the merge; parts without any are left out."""
    reasons = _reasons(verdicts.verdicts)
    for finding in verdicts.findings:
        label = (finding.status, finding.identity, finding.why)
        reasons.setdefault(label, Reason(finding, []))
    parts = []
    for heading, statuses in _PARTS:
        chosen = [reason for reason in reasons.values() if reason.finding.status in statuses]
        chosen.sort(key=lambda reason: reason.finding.status.rank)
        if chosen:
            parts.append(Part(heading, chosen))
    return tuple(parts)


def _reasons(verdicts: Iterable[Verdict]) -> dict[tuple[Status, str, str], Reason]:
    reasons: dict[tuple[Status, str, str], Reason] = {}
    for verdict in verdicts:
        for finding in verdict.findings:
            retried = finding.check == "completed" and verdict.attempts > 1
            if finding.status is Status.PASS and not retried:
                continue
            label = (finding.status, f"{finding.identity}:{finding.check}", finding.why)
            reasons.setdefault(label, Reason(finding, [])).keys.append(str(verdict.key))
    return reasons


def rule_of(finding: Finding) -> str:
    """Gate, class and check as a reader names them: `audit:E eager-inputs`."""
    return f"{finding.identity if finding.fault_class else finding.gate} {finding.check}"


def headline(verdict: Verdict) -> Finding | None:
    """The finding that gives a cell its status, or None where none was recorded."""
    own = (finding for finding in verdict.findings if finding.status is verdict.status)
    return next(own, None)
