"""Which block of the reference a block is compared with, and what padding does by itself.

Owns the pairing of blocks and the padding floor. Must not know policy or findings.

A graph that is larger than its step computes rows that are thrown away, and kernels that see
more rows may add up in another order. So a step that may have been padded is held against
the reference without fillers and with them, whichever is nearer; and what fillers alone do
in the reference is the padding floor, for where the two ways of padding are not the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from fixtures.cells.scenario import Kind
from gates.parity.blocks import Block, Blocks, check_of
from gates.parity.permutation import Extent, extent_of, gap_between


class Pair(NamedTuple):
    """A tested block beside the reference's block, or two where one has fillers."""

    tested: Block
    references: tuple[Block, ...]

    @property
    def check(self) -> str:
        """The check that the pair counts for."""
        return check_of(self.tested.scenario)

    @property
    def exact(self) -> bool:
        """Whether the reference repeats itself bit for bit."""
        return all(block.exact for block in self.references)


class Difference(NamedTuple):
    """The largest difference of a pair in nats (inf: other tokens), and its row.

    `repeats` counts the tested repeats that differ at all.
    """

    nats: float
    row: int
    repeats: int


class Padding(NamedTuple):
    """The gaps that fillers open in the reference, by kind and capture size."""

    gaps: Mapping[tuple[Kind, int | None], Extent]

    def floor(self) -> float | None:
        """The widest gap in nats; None: the reference has no fillers."""
        return max((gap.widest for gap in self.gaps.values()), default=None)

    def of(self, kind: Kind, capture_size: int | None) -> Extent:
        """The largest gaps in steps of that kind, and of that graph where one is named.

        Draining batches are decode steps like others. Where no such step has fillers, the
        largest gaps of all.
        """
        kind = Kind.BATCH if kind is Kind.DRAIN else kind
        alike = [
            gap
            for (own, size), gap in self.gaps.items()
            if own is kind and capture_size in (None, size)
        ] or list(self.gaps.values())
        return Extent(
            mean=max((gap.mean for gap in alike), default=0.0),
            widest=max((gap.widest for gap in alike), default=0.0),
        )


def pairs_of(tested: Blocks, reference: Blocks) -> list[Pair]:
    """Every tested block with what it is compared with."""
    filled = {
        (block.scenario.fills, block.pass_index): block
        for block in reference.values()
        if block.scenario.fills
    }
    return [
        Pair(block, (reference[key], *([filled[key]] if key in filled else [])))
        for key, block in tested.items()
        if block.scenario.fills is None
    ]


def difference(pair: Pair) -> Difference:
    """How far the tested block is from the nearer of its references.

    The reference's first repeat stands for it: where it matters, all of them are equal.
    """
    return min(
        (_between(pair.tested, block) for block in pair.references), key=lambda found: found.nats
    )


def _between(tested: Block, reference: Block) -> Difference:
    apart = np.abs(tested.values - reference.values[:1]).max(axis=2)
    apart[tested.tokens != reference.tokens[:1]] = np.inf
    per_row = apart.max(axis=0)
    # The first row that differs at all says more than the worst one.
    row = int(np.argmax(per_row > 0))
    return Difference(float(per_row.max()), row, int((apart > 0).any(axis=1).sum()))


def rows_apart(pair: Pair) -> np.ndarray:
    """Each row's largest difference in nats from the nearer reference: float64[m]."""
    tested = pair.tested.values
    nearer: np.ndarray = np.min(
        [np.abs(tested - block.values[:1]).max(axis=(0, 2)) for block in pair.references], axis=0
    )
    return nearer


def padding_of(reference: Blocks) -> Padding:
    """What fillers do in the reference."""
    gaps: dict[tuple[Kind, int | None], list[np.ndarray]] = {}
    for block, plain in _filled_pairs(reference):
        key = block.scenario.kind, block.scenario.capture_size
        gaps.setdefault(key, []).append(gap_between(values_of(block), values_of(plain)))
    return Padding({key: extent_of(found) for key, found in gaps.items()})


def _filled_pairs(reference: Blocks) -> Iterator[tuple[Block, Block]]:
    for block in reference.values():
        if block.scenario.fills:
            yield block, reference[block.scenario.fills, block.pass_index]


def values_of(block: Block) -> np.ndarray:
    """All values of each repeat in a row: float64[repeats, m * (1 + TOP)]."""
    values: np.ndarray = block.values.reshape(len(block.values), -1)
    return values
