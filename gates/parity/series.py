"""A cell's differences from its reference by step, for a plot.

Owns the largest difference of each step and the reference's own spread beside it. Must not
know policy, verdicts or drawings.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from fixtures.cells.scenario import Arms, Kind
from fixtures.evidence.outputs import Outputs
from gates.parity.blocks import Block, blocks_of
from gates.parity.pairs import pairs_of, rows_apart


class Series(NamedTuple):
    """By step, in nats: the largest difference, and the largest within the reference's repeats."""

    differences: tuple[float, ...]
    band: tuple[float, ...]


def series_of(outputs: Outputs, reference: Outputs) -> Series | None:
    """The series over all forced batches; free text, which feeds on itself, is left out.

    Returns:
        None where the two were asked different workloads, or a step has no finite logprobs.

    Raises:
        ConfigError: either of them is not whole.
    """
    if outputs.head != reference.head:
        return None
    apart: dict[int, float] = defaultdict(float)
    band: dict[int, float] = defaultdict(float)
    for pair in pairs_of(blocks_of(outputs, Arms.ALL), blocks_of(reference, Arms.REFERENCE)):
        if pair.tested.scenario.kind is Kind.FREE_TEXT:
            continue
        _raise_by_step(apart, pair.tested, rows_apart(pair))
        for block in pair.references:
            _raise_by_step(band, block, np.ptp(block.values, axis=0).max(axis=1))
    steps = sorted(apart)
    if not np.isfinite([*apart.values(), *band.values()]).all():
        return None
    return Series(tuple(apart[step] for step in steps), tuple(band[step] for step in steps))


def _raise_by_step(largest: dict[int, float], block: Block, values: np.ndarray) -> None:
    for step, value in zip(block.step.tolist(), values.tolist(), strict=True):
        # Unlike max, this keeps a NaN.
        largest[step] = float(np.maximum(largest[step], value))
