"""What a test could have seen: its power, and the smallest drop that it detects.

Owns: the model of two arms under which power is stated, exact and simulated power. Must not
know: cells, policy, or observed answers.

The model: the reference arm is right with probability `score`. A pair of answers differs with
probability `discordance`, half of it each way while nothing is wrong. A drop moves weight from
questions won to questions lost and leaves their sum, until nothing is won; a larger drop adds
to what is lost. It falls on all questions alike, and repeats differ independently.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load when first used: scipy.stats alone takes a second
from numpy.typing import NDArray

DRAWS = 2_000
"""Simulated runs for a design with repeats: a standard error of 0.9 points at a power of 80%."""
_SEED = 49_451
_TOLERANCE = 1e-5
_SIMULATED_TOLERANCE = 1e-3
_BATCH = 2e8
"""Additions of a simulation up to which every run is tested exactly."""


class Design(NamedTuple):
    """`n` questions, asked `repeats` times in both arms; the test's one-sided level `alpha`."""

    n: int
    score: float
    discordance: float
    repeats: int = 1
    alpha: float = 0.05

    @property
    def possible(self) -> bool:
        """Whether so many pairs can differ at this score, half of them each way."""
        return self.discordance / 2 <= min(self.score, 1 - self.score) + 1e-12


class Power(NamedTuple):
    """The probability of a rejection; `error` is its standard error, 0 where it is exact."""

    value: float
    error: float = 0.0


def rates(design: Design, drop: float) -> tuple[float, float]:
    """Probabilities that a pair is lost and that it is won, under a true `drop`."""
    total = max(design.discordance, drop)
    return (total + drop) / 2, (total - drop) / 2


def paired_power(design: Design, drop: float, draws: int = DRAWS) -> Power:
    """Power of the paired test of gates/scores/paired.py against a true `drop` (fraction of 1)."""
    if design.repeats == 1:
        return Power(_mcnemar_power(design, drop))
    random = np.random.default_rng(_SEED)
    lost, won = rates(design, drop)
    shape = (draws, design.n)
    losses = random.binomial(design.repeats, lost, size=shape)
    wins = random.binomial(design.repeats - losses, min(1.0, won / max(1 - lost, 1e-12)))
    share = float(sign_flip_rejects(losses - wins, design.alpha).mean())
    return Power(share, math.sqrt(share * (1 - share) / draws))


@lru_cache(maxsize=1024)
def detectable_drop(design: Design, power: float = 0.8) -> float | None:
    """The smallest drop that is detected with `power`; None: not even the largest one is."""
    tolerance = _TOLERANCE if design.repeats == 1 else _SIMULATED_TOLERANCE
    return _smallest(lambda drop: paired_power(design, drop).value, design.score, power, tolerance)


def floor_power(n: float, floor: float, score: float, alpha: float) -> float:
    """Probability that a true `score` is blocked by the test against `floor`."""
    most = _most_blocked(n, floor, alpha)
    return float(scipy.stats.binom.cdf(most, round(n), score)) if most >= 0 else 0.0


def detectable_score(n: float, floor: float, alpha: float, power: float = 0.8) -> float | None:
    """The highest true score that the floor blocks with `power`; None: it can't block at all."""
    most = _most_blocked(n, floor, alpha)
    return (
        float(scipy.special.betaincinv(most + 1, round(n) - most, 1 - power)) if most >= 0 else None
    )


def sign_flip_rejects(differences: NDArray[Any], alpha: float) -> NDArray[np.bool_]:
    """For each row of differences (runs x questions), whether `sign_flip` is at or under alpha.

    Exact, unless the rows are so many and wide that the normal approximation must do.
    """
    lost = differences.sum(axis=1)
    sizes = -np.sort(-np.abs(differences), axis=1)
    sizes = sizes[:, : max(1, int((sizes > 0).sum(axis=1).max(initial=0)))]
    totals = sizes.sum(axis=1)
    width = int(totals.max(initial=0)) + 1
    if sizes.size * width > _BATCH:
        spread = np.sqrt((sizes.astype(float) ** 2).sum(axis=1))
        p_values = scipy.stats.norm.sf((lost - 1) / np.maximum(spread, 1e-12))
        return np.asarray((p_values <= alpha) & (lost > 0))
    tails = _positive_sums(sizes, width)[:, ::-1].cumsum(axis=1)[:, ::-1]
    p_values = tails[np.arange(len(lost)), (lost + totals) // 2]
    return np.asarray(p_values <= alpha)


def _positive_sums(sizes: NDArray[Any], width: int) -> NDArray[np.float64]:
    """`positive_sum` of each row; shape: runs x sums."""
    pmf = np.zeros((len(sizes), width))
    pmf[:, 0] = 1.0
    for column in sizes.T:
        for size in np.unique(column[column > 0]):
            rows = column == size
            some = pmf[rows]
            moved = np.zeros_like(some)
            moved[:, size:] = some[:, :-size]
            pmf[rows] = 0.5 * (some + moved)
    return pmf


def _mcnemar_power(design: Design, drop: float) -> float:
    """Exact: over the number of discordant pairs, then over how many of them were lost."""
    lost, won = rates(design, drop)
    discordant = lost + won
    if discordant <= 0:
        return 0.0
    pairs = np.arange(
        int(scipy.stats.binom.ppf(1e-12, design.n, discordant)),
        int(scipy.stats.binom.ppf(1 - 1e-12, design.n, discordant)) + 1,
    )
    weights = scipy.stats.binom.pmf(pairs, design.n, discordant)
    least: NDArray[np.float64] = scipy.stats.binom.isf(design.alpha, pairs, 0.5) + 1
    return float((weights * scipy.stats.binom.sf(least - 1, pairs, lost / discordant)).sum())


def _most_blocked(n: float, floor: float, alpha: float) -> int:
    """The largest number of right answers whose upper bound lies below the floor; -1: none."""
    size = round(n)
    guess = int(scipy.stats.binom.ppf(alpha, size, floor))
    while guess >= 0 and scipy.stats.binom.cdf(guess, size, floor) > alpha:
        guess -= 1
    return guess


def _smallest(
    power_of: Callable[[float], float], largest: float, wanted: float, tolerance: float
) -> float | None:
    """The smallest argument up to `largest` at which the rising function reaches `wanted`."""
    low, high = 0.0, largest
    if power_of(high) < wanted:
        return None
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (low, middle) if power_of(middle) >= wanted else (middle, high)
    return high
