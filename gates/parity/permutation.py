"""A permutation test on the repeats of two cells: is one separate from the other?

Owns the statistic and its exact null distribution. Must not know scenarios, policy or words.

Where a reference does not repeat itself, its a runs of a round and the b runs of the cell
under test are, if nothing is wrong, a + b runs of one thing: which of them are called the
cell's is a label, and every choice of labels is equally likely. The statistic is the share of
the spread that lies in the gap between the two sets of runs. One outlier in one run opens no
gap, however large it is: all runs of a cell must lie on one side.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

GRID = 1000
"""Steps in which a unit's statistic is counted, so that its distribution is a short list."""


class Unit(NamedTuple):
    """The runs of one round in two cells: float64[a, m] and float64[b, m], the same m values."""

    reference: np.ndarray
    tested: np.ndarray


class Extent(NamedTuple):
    """Gaps or ranges in nats: the mean over all values (most of them may be 0), and the widest."""

    mean: float
    widest: float

    def beyond(self, floor: Extent) -> bool:
        """Whether all values together, or one of them, lie further apart than the floor."""
        return self.mean > floor.mean or self.widest > floor.widest


class Separation(NamedTuple):
    """`p` of the test, the smallest `p` it could give, and the gaps between the cells.

    `spread` are the ranges of values within one cell. `unit` and `value` index the widest gap.
    """

    p: float
    least_p: float
    gap: Extent
    spread: Extent
    unit: int
    value: int


def separation(units: Sequence[Unit]) -> Separation:
    """The permutation test over all `units`, whose labels are permuted one by one."""
    null, observed, least_p = np.ones(1), 0, 1.0
    for unit in units:
        scores = _scores(unit)
        chances = np.bincount(scores, minlength=GRID + 1) / len(scores)
        null = np.convolve(null, chances)
        observed += int(scores[0])
        # Equal numbers of runs can be swapped as a whole without changing the gap.
        least_p *= (1 + (len(unit.reference) == len(unit.tested))) / len(scores)
    p = min(1.0, float(null[observed:].sum()))
    gaps = [gap_between(unit.reference, unit.tested) for unit in units]
    unit_index = int(np.argmax([gap.max(initial=0.0) for gap in gaps]))
    ranges = [np.ptp(runs, axis=0) for unit in units for runs in unit if len(runs) > 1]
    return Separation(
        p=p,
        least_p=least_p,
        gap=extent_of(gaps),
        spread=extent_of(ranges),
        unit=unit_index,
        value=int(np.argmax(gaps[unit_index])),
    )


def gap_between(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """By how much the ranges of two sets of runs are apart, value by value; 0: they overlap."""
    above = other.min(axis=0) - one.max(axis=0)
    below = one.min(axis=0) - other.max(axis=0)
    gap: np.ndarray = np.maximum(np.maximum(above, below), 0.0)
    return gap


def extent_of(sizes: Sequence[np.ndarray]) -> Extent:
    """The extent of all `sizes` together; of none, nothing."""
    if not sizes:
        return Extent(0.0, 0.0)
    every = np.concatenate(sizes)
    return Extent(float(every.mean()), float(every.max()))


def _scores(unit: Unit) -> np.ndarray:
    """The unit's statistic under every choice of labels, 0 to GRID; the true one first.

    Half of it weighs values by their size, so that one request that is far off counts; half
    counts every value that moves alike, so that small shifts of all of them count.
    """
    runs = np.concatenate([unit.reference, unit.tested])
    total = np.ptp(runs, axis=0)
    moving = total > 0
    labels = _labels(len(unit.reference), len(unit.tested))
    if not moving.any():
        return np.zeros(len(labels), dtype=int)
    runs, total = runs[:, moving], total[moving]
    gaps = np.stack([gap_between(runs[~label], runs[label]) for label in labels])
    by_size = gaps.sum(axis=1) / total.sum()
    by_count = (gaps / total).mean(axis=1)
    scores: np.ndarray = np.floor((by_size + by_count) / 2 * GRID).astype(int)
    return scores


@cache
def _labels(reference: int, tested: int) -> np.ndarray:
    """Every choice of `tested` runs out of all, as masks; the true one first."""
    count = reference + tested
    chosen = list(combinations(range(count - 1, -1, -1), tested))
    masks: np.ndarray = np.zeros((len(chosen), count), dtype=bool)
    np.put_along_axis(masks, np.asarray(chosen), True, axis=1)
    return masks
