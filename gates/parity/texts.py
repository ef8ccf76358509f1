"""Comparison of free text: the first token at which it leaves the reference's.

Owns the rule for text that feeds on itself. Must not know forced tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gates.parity.blocks import Block, is_padded
from gates.parity.pairs import Pair
from gates.parity.rules import ParityRules
from gates.parity.words import finding, nats
from gates.verdict import Finding, Status

CHECK = "free-text"


class Course(NamedTuple):
    """How a text goes against another: tokens in common, then the gap where they part.

    `before` is the largest difference of logprobs in nats over the common tokens, `gap` that
    of the first token's own logprob where they part (0 where they do not), and `margin` how
    far the likeliest token of the reference is above its second there.
    """

    common: int
    length: int
    before: float
    gap: float
    margin: float

    @property
    def parted(self) -> bool:
        """Whether the texts differ."""
        return self.common < self.length

    def within(self, limit: float) -> bool:
        """Whether padding, which moves logprobs by up to `limit` nats, explains all of it."""
        tipped = self.margin <= 2 * limit and self.gap <= 2 * limit
        return self.before <= limit and (not self.parted or tipped)


def course(tested: Block, reference: Block, tested_run: int, reference_run: int) -> Course:
    """One text against another of the same prompt."""
    same = tested.tokens[tested_run] == reference.tokens[reference_run]
    length = len(same)
    common = length if same.all() else int(np.argmin(same))
    apart = np.abs(tested.values[tested_run] - reference.values[reference_run]).max(axis=1)
    top = reference.values[reference_run, min(common, length - 1), 1:3]
    return Course(
        common=common,
        length=length,
        before=float(apart[:common].max(initial=0.0)),
        gap=float(apart[common]) if common < length else 0.0,
        margin=float(top[0] - top[1]),
    )


def judge_texts(pairs: Sequence[Pair], floor: float | None, rules: ParityRules) -> Finding:
    """One finding on all free texts.

    Where the reference writes the same text twice, so must the cell; where padding moves bits,
    texts may part at a token whose choice is closer than what padding moves. A reference
    that parts from itself decides nothing.
    """
    n = len(pairs)
    if not all(pair.exact for pair in pairs):
        return _undecided(pairs)
    padded = any(is_padded(pair.tested.scenario) for pair in pairs)
    limit = (floor or 0.0) * rules.padding_margin if padded else 0.0
    bad = [one for one in _courses(pairs) if not one[0].within(limit)]
    if not bad:
        worst, _ = _worst(pairs)
        why = f"{n} free texts of {worst.length} tokens at batch 1 are the reference's"
        if worst.parted:
            why += f", but for a choice at token {worst.common} that padding may tip"
        return finding(CHECK, Status.PASS, why, n=n, measured=nats(worst.before), limit=nats(limit))
    worst, where = min(bad, key=_earliest)
    if worst.parted:
        why = f"free text at batch 1 leaves the reference's at token {worst.common} ({where})"
        why += f", where logprobs are {nats(worst.gap)} apart"
    else:
        why = f"free text at batch 1 is the reference's, but its logprobs are not ({where})"
    measured = f"{worst.common} of {worst.length} tokens, {nats(max(worst.before, worst.gap))}"
    return finding(CHECK, Status.FAIL, why, n=n, measured=measured, limit=nats(limit))


def _worst(pairs: Sequence[Pair]) -> tuple[Course, str]:
    """The text that leaves its reference earliest, then the one furthest off."""
    return min(_courses(pairs), key=_earliest)


def _courses(pairs: Sequence[Pair]) -> list[tuple[Course, str]]:
    """Every text's course beside its reference, and where it was written."""
    return [
        (course(pair.tested, pair.references[0], run, 0), pair.tested.place(0))
        for pair in pairs
        for run in range(len(pair.tested.tokens))
    ]


def _earliest(one: tuple[Course, str]) -> tuple[int, float]:
    return one[0].common, -one[0].before


def _undecided(pairs: Sequence[Pair]) -> Finding:
    """What is told where the reference's own texts part."""
    own = min(
        course(pair.references[0], pair.references[0], run, 0).common
        for pair in pairs
        for run in range(1, len(pair.references[0].tokens))
    )
    cross, _ = _worst(pairs)
    why = (
        f"not decided: the reference does not repeat itself bit for bit; its own texts have "
        f"{own} tokens in common, this cell's has {cross.common} in common with them"
    )
    return finding(CHECK, Status.PASS, why, n=len(pairs), measured=f"{cross.common} tokens")
