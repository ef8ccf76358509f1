"""Comparison where the reference repeats itself bit for bit: so must the graphs.

Owns the rule of equality and where padding may move bits. Must not know the permutation
test, or how many checks there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gates.parity.blocks import is_padded
from gates.parity.pairs import Difference, Pair, difference
from gates.parity.rules import ParityRules
from gates.parity.words import finding, nats
from gates.verdict import Finding, Status


class Compared(NamedTuple):
    """A pair and its difference."""

    pair: Pair
    difference: Difference


def judge_exact(
    check: str, pairs: Sequence[Pair], floor: float | None, rules: ParityRules
) -> Finding:
    """One finding on a check all of whose references repeat themselves bit for bit.

    Args:
        check: the check's name.
        pairs: at least one.
        floor: the reference's padding floor in nats; None: it was not measured.
        rules: the policy.
    """
    found = [Compared(pair, difference(pair)) for pair in pairs]
    apart = [one for one in found if one.difference.nats > 0]
    n = len(found)
    runs = sum(len(pair.tested.values) for pair in pairs)
    if not apart:
        why = f"equal bit for bit in all {runs} rounds of {n} batches"
        return finding(check, Status.PASS, why, measured=nats(0), limit=nats(0), n=n)
    worst = max(one.difference.nats for one in apart)
    limit, reason = _limit(pairs, floor, rules)
    if limit is None:
        why = f"differs from the reference by up to {_size(worst)}, and {reason}"
        return finding(check, Status.VACUOUS, why, measured=_size(worst), n=n)
    beyond = [one for one in apart if one.difference.nats > limit]
    figures = {"measured": _size(worst), "limit": f"{nats(limit)} ({reason})"}
    if not beyond:
        why = f"{len(apart)} of {n} batches differ, none by more than padding alone does"
        return finding(check, Status.PASS, why, n=n).model_copy(update=figures)
    why = f"{len(beyond)} of {n} batches differ by more than {reason} allows; {_first(beyond)}"
    return finding(check, Status.FAIL, why, n=n).model_copy(update=figures)


def _limit(
    pairs: Sequence[Pair], floor: float | None, rules: ParityRules
) -> tuple[float | None, str]:
    """The largest difference that passes, and why."""
    if not any(is_padded(pair.tested.scenario) for pair in pairs):
        return 0.0, "a reference that repeats itself bit for bit"
    if floor is None:
        return None, "the reference does not show what padding alone does"
    return floor * rules.padding_margin, "what padding does in the reference"


def _first(beyond: Sequence[Compared]) -> str:
    pair, apart = beyond[0]
    runs = len(pair.tested.values)
    steady = "in every repeat" if apart.repeats == runs else f"in {apart.repeats} of {runs} repeats"
    return f"first seen in {pair.tested.place(apart.row)}, {steady}"


def _size(value: float) -> str:
    return "another token" if value == float("inf") else nats(value)
