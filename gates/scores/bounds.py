"""Bounds of a score from its right answers.

Owns: the exact (Clopper-Pearson) bounds, the sample that a repeated task is really worth,
and the test of a score against a floor. Must not know: where a floor comes from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy  # its parts load when first used: scipy.stats alone takes a second


class Count(NamedTuple):
    """`right` of `n` answers. Neither need be whole: a clustered sample is worth fewer."""

    right: float
    n: float

    @property
    def score(self) -> float:
        """The share of right answers."""
        return self.right / self.n


def upper(count: Count, alpha: float) -> float:
    """One-sided upper Clopper-Pearson bound: the largest score that `count` does not refute."""
    if count.right >= count.n:
        return 1.0
    return float(scipy.stats.beta.ppf(1.0 - alpha, count.right + 1.0, count.n - count.right))


def lower(count: Count, alpha: float) -> float:
    """One-sided lower Clopper-Pearson bound."""
    if count.right <= 0:
        return 0.0
    return float(scipy.stats.beta.ppf(alpha, count.right, count.n - count.right + 1.0))


def below_floor(count: Count, floor: float) -> float:
    """One-sided p-value of "the true score is `floor` or more".

    It is under alpha exactly where `upper(count, alpha)` lies below the floor.
    """
    if count.right >= count.n or floor <= 0:
        return 1.0
    if floor >= 1:
        return 0.0
    return float(scipy.stats.beta.sf(floor, count.right + 1.0, count.n - count.right))


def worth(counts: Sequence[tuple[int, int]], alpha: float) -> Count:
    """What a sample with repeats is worth in independent answers, for the same score.

    `counts` holds each question's right answers and its answers. Repeats of one question tell less
    than answers to as many questions. The effective size is that of Korn and Graubard (1998,
    Survey Methodology 24): n divided by the design effect, and adjusted for the degrees of
    freedom of so few clusters; never more than n. With one answer a question it is n.
    """
    x, m = np.asarray(counts, dtype=float).T
    n, questions = float(m.sum()), len(counts)
    score = float(x.sum()) / n
    if n == questions:
        return Count(score * n, n)
    if questions < 2 or score in (0.0, 1.0):
        return Count(score * questions, float(questions))
    residual = x - score * m
    variance = questions / (questions - 1) * float((residual**2).sum()) / n**2
    independent = score * (1 - score) / n
    effect = max(1.0, variance / independent)
    few = float(scipy.stats.t.ppf(alpha, n - 1) / scipy.stats.t.ppf(alpha, questions - 1)) ** 2
    size = min(n, max(1.0, n / effect * few))
    return Count(score * size, size)


def standard_error(score: float, n: float) -> float:
    """Standard error of a score from `n` independent answers."""
    return math.sqrt(score * (1 - score) / n)
