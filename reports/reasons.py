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
            groups.setdefault(_label(reason.finding), []).append(reason)
        return list(groups.values())


class Cause(NamedTuple):
    """The finding that gives some blocked cells their status, and the rules that also failed.

    No keys: the tree as a whole.
    """

    finding: Finding
    keys: list[str]
    also: list[str]


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


def causes_of(verdicts: Verdicts) -> tuple[Cause, ...]:
    """What blocks the merge, worst first: one cause for all cells with the same headline."""
    causes: dict[tuple[Status, str, str], Cause] = {}
    for verdict in verdicts.verdicts:
        found = headline(verdict) if verdict.status.blocks else None
        if found is None:
            continue
        cause = causes.setdefault(_label(found), Cause(found, [], []))
        cause.keys.append(str(verdict.key))
        rules = {rule_of(one): None for one in verdict.findings if one.status.blocks}
        cause.also.extend(rule for rule in rules if rule not in (rule_of(found), *cause.also))
    whole = [Cause(finding, [], []) for finding in verdicts.findings if finding.status.blocks]
    return tuple(sorted((*causes.values(), *whole), key=lambda one: one.finding.status.rank))


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


def _label(finding: Finding) -> tuple[Status, str, str]:
    """What findings share that are told together; failures of runs share their cause too."""
    cause = finding.why if finding.gate is Gate.LIVENESS else ""
    return finding.status, rule_of(finding), cause


def headline(verdict: Verdict) -> Finding | None:
    """The finding that gives a cell its status, or None where none was recorded."""
    own = (finding for finding in verdict.findings if finding.status is verdict.status)
    return next(own, None)
