"""Which planted regressions were seen: the verdict with a mutant against the one without.

Owns: the rule of killing. Must not know: how a mutant was planted, and processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fixtures.cells.mutants import Mutant
from fixtures.schema import Record
from gates.verdict import FaultClass, Finding, Gate, Status, Verdict

_NOT_RUN = frozenset({Status.CONFIG, Status.INFRA, Status.MISSING})
"""Statuses of a cell that says nothing about any mutant."""

_CUT_SHORT = frozenset({Status.CRASH, Status.HANG})
"""Statuses of a cell that ended before every gate had something to judge."""


class MutantResult(Record):
    """What became of a mutant. `gate` is the one that killed it, or None."""

    name: str
    expected_class: FaultClass | None
    killed: bool
    gate: Gate | None
    why: str


def judge_mutants(
    mutants: Iterable[Mutant], verdicts: Mapping[str, Verdict]
) -> tuple[MutantResult, ...]:
    """The result of every mutant; `verdicts` by cell key, with and without mutants."""
    return tuple(
        judge_mutant(mutant, verdicts.get(str(mutant.key)), verdicts.get(str(mutant.cell)))
        for mutant in mutants
    )


def judge_mutant(mutant: Mutant, planted: Verdict | None, plain: Verdict | None) -> MutantResult:
    """Whether the gate that was expected to see the mutant blocks because of it.

    A finding counts when it blocks, is of the expected gate and class (any class where none is
    expected) or of liveness where the mutant may crash, and the same cell without the mutant has no
    finding of that gate, class and check that blocks. A release may crash there by itself: then
    only a gate counts that judged what was left without the mutant.

    Args:
        mutant: what was planted, and who should see it.
        planted: the verdict on its cell with the mutant; None where it was not run.
        plain: the verdict on the same cell without it.
    """
    if plain is None or plain.status in _NOT_RUN:
        return _survived(mutant, f"the cell without the mutant was not run: {_reason(plain)}")
    if plain.status in _CUT_SHORT and not any(one.gate == mutant.gate for one in plain.findings):
        return _survived(
            mutant,
            f"the cell without the mutant ended before {mutant.gate} could judge it: "
            f"{_reason(plain)}",
        )
    if planted is None or planted.status in _NOT_RUN:
        return _survived(mutant, f"the cell with the mutant was not run: {_reason(planted)}")
    before = {_identity(finding) for finding in _blocking(plain)}
    new = [finding for finding in _blocking(planted) if _identity(finding) not in before]
    killing = [finding for finding in new if _is_expected(finding, mutant)]
    if not killing:
        seen = ", ".join(dict.fromkeys(_identity(finding) for finding in new)) or "nothing new"
        return _survived(mutant, f"{mutant.seen_by} is silent; seen: {seen}")
    return MutantResult(
        name=mutant.name,
        expected_class=mutant.fault_class,
        killed=True,
        gate=killing[0].gate,
        why=killing[0].why,
    )


def _is_expected(finding: Finding, mutant: Mutant) -> bool:
    if mutant.may_crash and finding.gate is Gate.LIVENESS:
        return True
    return finding.gate == mutant.gate and mutant.fault_class in (None, finding.fault_class)


def _survived(mutant: Mutant, why: str) -> MutantResult:
    return MutantResult(
        name=mutant.name, expected_class=mutant.fault_class, killed=False, gate=None, why=why
    )


def _blocking(verdict: Verdict) -> list[Finding]:
    return [finding for finding in verdict.findings if finding.status.blocks]


def _identity(finding: Finding) -> str:
    return f"{finding.identity}:{finding.check}"


def _reason(verdict: Verdict | None) -> str:
    if verdict is None:
        return "there is no evidence of it"
    worst = [finding.why for finding in verdict.findings if finding.status is verdict.status]
    return f"{verdict.status}, {worst[0] if worst else 'no reason given'}"
