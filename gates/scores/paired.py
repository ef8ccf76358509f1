"""Tests of one arm against the other on the same questions.

Owns: the one-sided exact McNemar test and its extension to repeats, a permutation test over
questions. Must not know: cells, tasks, or where answers come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import scipy  # its parts load when first used: scipy.stats alone takes a second
from numpy.typing import NDArray


class Discordance(NamedTuple):
    """Pairs of answers that differ: `b` right in the reference and wrong here, `c` the reverse."""

    b: int
    c: int

    @property
    def total(self) -> int:
        """All pairs that differ."""
        return self.b + self.c


def mcnemar(b: int, c: int) -> float:
    """One-sided exact p-value of "this arm is no worse", given `b` lost and `c` won questions.

    Source: McNemar 1947, the exact (binomial) form. No discordant pair is no evidence: 1.
    """
    if b + c == 0:
        return 1.0
    return float(scipy.stats.binomtest(b, b + c, 0.5, alternative="greater").pvalue)


def sign_flip(differences: Sequence[int]) -> float:
    """One-sided exact p-value of "no question got worse" by a permutation test over questions.

    `differences` holds, for each question, the repeats lost minus the repeats won. If the arms
    are exchangeable within a question, each difference has either sign with equal probability,
    whatever ties a question's repeats together. With differences of -1, 0 and 1 this is the
    exact McNemar test.
    """
    sizes = [abs(value) for value in differences if value]
    if not sizes:
        return 1.0
    total = sum(sizes)
    gained = (sum(differences) + total) // 2
    return min(1.0, float(positive_sum(sizes)[gained:].sum()))


def positive_sum(sizes: Iterable[int]) -> NDArray[np.float64]:
    """Distribution of the sum of those `sizes` that a fair coin picks; index is the sum.

    A sum of randomly signed sizes is twice this one minus the sum of all sizes.
    """
    sizes = tuple(sizes)
    pmf = np.zeros(sum(sizes) + 1)
    pmf[0] = 1.0
    reached = 0
    for size in sizes:
        reached += size
        moved = np.zeros(reached + 1)
        moved[size:] = pmf[: reached + 1 - size]
        pmf[: reached + 1] = 0.5 * (pmf[: reached + 1] + moved)
    return pmf
