"""Looking more than once: a sample that is extended by a rule fixed in advance.

Owns: the spending of alpha over looks, and the paired test of several looks. Must not know:
tasks, policy files, or who asks further questions.

A look's statistic is the sum of all differences so far. Under the null hypothesis every
question's differences flip their signs together (gates/scores/paired.py), which gives the joint
distribution of all looks given the data: exactly where each question belongs to one look, by
seeded Monte Carlo where repeats of a question are spread over looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import scipy  # its parts load when first used: scipy.stats alone takes a second
from numpy.typing import NDArray

from gates.scores.paired import positive_sum

DRAWS = 100_000
_SEED = 20_261_130
_CHUNK = 10_000


class Spending(StrEnum):
    """How alpha is spent over the fraction of the final sample (Lan and DeMets 1983)."""

    OBRIEN_FLEMING = "obrien-fleming"
    POCOCK = "pocock"

    def spent(self, alpha: float, fraction: float) -> float:
        """Alpha that may be spent in total up to `fraction` of the final sample."""
        if self is Spending.POCOCK:
            return alpha * math.log(1 + (math.e - 1) * fraction)
        return float(2 * scipy.stats.norm.sf(scipy.stats.norm.isf(alpha / 2) / math.sqrt(fraction)))


class Look(NamedTuple):
    """What the looks so far say.

    `p_value` is the probability, under the null hypothesis, of an outcome at least as extreme
    in the order of stages: an earlier rejection is more extreme than any later outcome. At a
    look that rejects, and at the last look, it is at or under alpha exactly where the test
    rejects. `error` is its standard error where it was simulated, else 0.
    """

    number: int
    """Counts from 0."""
    rejects: bool
    p_value: float
    spent: float
    error: float


def sequential_test(
    differences: Sequence[Sequence[int]], spending: Sequence[float], draws: int = DRAWS
) -> Look:
    """The first look that rejects, or the latest one.

    `differences[q][k]` is what question q lost minus won at look k alone (shape: questions x
    looks so far); `spending[k]` the alpha that may be spent in total up to look k.
    """
    table = np.asarray(differences, dtype=np.int64).reshape(-1, len(spending))
    observed = table.sum(axis=0).cumsum()
    if (np.count_nonzero(table, axis=1) <= 1).all():
        return _exact(table, observed, spending)
    return _simulated(table, observed, spending, draws)


def _exact(
    table: NDArray[np.int64], observed: NDArray[np.int64], spending: Sequence[float]
) -> Look:
    """Increments are independent: carry on the distribution of those that did not reject."""
    alive: NDArray[np.float64] = np.ones(1)
    lowest, crossed, allowed = 0, 0.0, 0.0
    look = Look(0, rejects=False, p_value=1.0, spent=0.0, error=0.0)
    for index, level in enumerate(spending):
        sizes = [int(size) for size in np.abs(table[:, index]) if size]
        alive, lowest = _convolved(alive, positive_sum(sizes)), lowest - sum(sizes)
        allowed = max(allowed, level)
        tail = crossed + alive[::-1].cumsum()[::-1]
        p_value = float(tail[int(observed[index]) - lowest])
        rejects = p_value <= allowed
        look = Look(index, rejects, min(1.0, p_value), allowed, 0.0)
        if rejects:
            break
        beyond = tail <= allowed
        crossed += float(alive[beyond].sum())
        alive = np.where(beyond, 0.0, alive)
    return look


def _convolved(alive: NDArray[np.float64], picked: NDArray[np.float64]) -> NDArray[np.float64]:
    """`alive` after a step of plus or minus sizes, whose sums lie two apart."""
    step = np.zeros(2 * len(picked) - 1)
    step[::2] = picked
    return np.convolve(alive, step)


def _simulated(
    table: NDArray[np.int64], observed: NDArray[np.int64], spending: Sequence[float], draws: int
) -> Look:
    """The same over `draws` random flips. Counting the data as one more draw keeps it valid."""
    paths = np.vstack([observed[None, :], _flipped(table.cumsum(axis=1), draws)])
    alive: NDArray[np.bool_] = np.ones(len(paths), dtype=bool)
    look = Look(0, rejects=False, p_value=1.0, spent=0.0, error=0.0)
    for index, level in enumerate(spending):
        at_look = paths[:, index]
        before = int((~alive).sum())
        p_value = (before + int((alive & (at_look >= observed[index])).sum())) / len(paths)
        error = math.sqrt(p_value * (1 - p_value) / len(paths))
        look = Look(index, p_value <= level, p_value, level, error)
        if look.rejects:
            break
        values, counts = np.unique(at_look[alive], return_counts=True)
        tail = (before + counts[::-1].cumsum()[::-1]) / len(paths)
        over = values[tail <= level]
        if len(over):
            alive &= at_look < over.min()
    return look


def _flipped(cumulative: NDArray[np.int64], draws: int) -> NDArray[np.int64]:
    """Sums at each look under random flips of whole questions; shape: draws x looks."""
    moving = cumulative[np.any(cumulative != 0, axis=1)]
    random = np.random.default_rng(_SEED)
    parts = []
    for start in range(0, draws, _CHUNK):
        rows = min(_CHUNK, draws - start)
        signs = random.integers(0, 2, size=(rows, len(moving)), dtype=np.int8) * 2 - 1
        parts.append(signs.astype(np.float64) @ moving)
    return np.rint(np.vstack(parts)).astype(np.int64)
