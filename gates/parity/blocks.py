"""Outputs as blocks: all repeats of one scenario in one pass, row by row.

Owns the arrangement of outputs for comparison, and what makes them incomplete. Must not
know policy or what a difference means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fixtures.cells.scenario import Arms, Kind, Scenario
from fixtures.errors import ConfigError
from fixtures.evidence.outputs import OUTPUTS_FILE, Outputs


class Block(NamedTuple):
    """A scenario's rows in one pass; every repeat has the same m rows, by request and step.

    `values` float64[repeats, m, 1 + TOP] are raw logprobs in nats: that of the emitted token,
    then those of the likeliest ones in order. `tokens` int64[repeats, m] were emitted.
    """

    scenario: Scenario
    pass_index: int
    request: np.ndarray
    step: np.ndarray
    tokens: np.ndarray
    values: np.ndarray

    @property
    def exact(self) -> bool:
        """Whether the repeats are equal bit for bit."""
        same_tokens = bool((self.tokens == self.tokens[:1]).all())
        return same_tokens and bool((self.values == self.values[:1]).all())

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        return (
            f"{self.scenario.name}, pass {self.pass_index}, request {self.request[row]}, "
            f"step {self.step[row]}"
        )


Blocks = Mapping[tuple[str, int], Block]
"""By scenario name and pass."""


def blocks_of(outputs: Outputs, arms: Arms) -> dict[tuple[str, int], Block]:
    """All blocks that a cell of these arms must have.

    Raises:
        ConfigError: a scenario, a repeat or a token is missing.
    """
    keys = (outputs.step, outputs.request, outputs.repeat, outputs.pass_index, outputs.scenario)
    order = np.lexsort(keys)
    place = outputs.scenario[order] * 256 + outputs.pass_index[order]
    names, starts = np.unique(place, return_index=True)
    rows = dict(zip(names.tolist(), np.split(order, starts[1:]), strict=True)) if len(order) else {}
    blocks = {}
    for index, scenario in enumerate(outputs.head.scenarios):
        if arms is Arms.REFERENCE or scenario.arms is Arms.ALL:
            for pass_index in range(scenario.passes):
                picked = rows.get(index * 256 + pass_index, order[:0])
                block = _block(outputs, scenario, pass_index, picked)
                blocks[scenario.name, pass_index] = block
    return blocks


def _block(outputs: Outputs, scenario: Scenario, pass_index: int, picked: np.ndarray) -> Block:
    """The block of the rows `picked`, which are sorted by repeat, request and step."""
    repeats, wanted = scenario.repeats, scenario.repeats * scenario.rows
    if len(picked) != wanted:
        raise _incomplete(scenario, pass_index, f"{len(picked)} of {wanted} tokens")
    request = outputs.request[picked].reshape(repeats, -1)
    step = outputs.step[picked].reshape(repeats, -1)
    repeat = outputs.repeat[picked].reshape(repeats, -1)
    uneven = (request != request[:1]).any() or (step != step[:1]).any()
    if uneven or (repeat != np.arange(repeats)[:, None]).any():
        raise _incomplete(scenario, pass_index, "repeats of different requests or lengths")
    logprobs = np.column_stack([outputs.logprob[picked], outputs.top_logprobs[picked]])
    return Block(
        scenario=scenario,
        pass_index=pass_index,
        request=request[0],
        step=step[0],
        tokens=outputs.token[picked].reshape(repeats, -1),
        values=logprobs.reshape(repeats, -1, logprobs.shape[1]),
    )


def _incomplete(scenario: Scenario, pass_index: int, what: str) -> ConfigError:
    return ConfigError(
        f"{scenario.name}, pass {pass_index}, has {what}",
        source=OUTPUTS_FILE,
        remedy="run the cell again: its outputs are not whole",
    )


def check_of(scenario: Scenario) -> str:
    """The check that a scenario counts for, with where its size lies among the graphs'."""
    if scenario.kind not in (Kind.PROMPT_ALONE, Kind.BATCH, Kind.MIXED):
        return str(scenario.kind)
    if scenario.capture_size is None:
        return f"{scenario.kind}-beyond"
    return f"{scenario.kind}-{'on' if scenario.on_size else 'off'}-size"


def is_padded(scenario: Scenario) -> bool:
    """Whether a graph may have padded steps of the scenario, now or earlier in its context."""
    off_size = scenario.capture_size is not None and not scenario.on_size
    return off_size or scenario.kind is Kind.DRAIN
