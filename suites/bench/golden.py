"""Noise between processes, false alarms and power, on what an H200 recorded.

`python -m suites.bench.golden` judges the clean cells of the golden runs against each other,
and with faults planted into their outputs. Owns the measurement and its tables. Must not know
which figures are good enough; nothing here is a test. docs/parity.md quotes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from fixtures.cells.axes import GraphMode
from fixtures.cells.scenario import Arms, Kind
from gates.evidence import read_evidence
from gates.parity.blocks import Block, Blocks, blocks_of, is_padded
from gates.parity.gate import judge_blocks
from gates.parity.noisy import Group, floor_of, groups_of, separation_of
from gates.parity.pairs import Pair, padding_of, pairs_of
from gates.parity.permutation import Extent
from gates.parity.rules import ParityRules
from gates.policy import read_policy
from gates.scores.holm import holm
from suites.selftest.golden_runs import unpack

RUN = "h200-0.26.0"
RULES = ParityRules()
NOISY = "dsv4"
S2 = "dsv4.FULL_DECODE_ONLY.bk1.canary.canary-warmup-reused-decode"
FAULTY = ("llama.FULL.bk0.canary", "llama.FULL.bk1.canary")
SHIFTS = (0.0, 0.01, 0.02, 0.03, 0.06, 0.1, 0.3, 1.0, 2.0)


class Tested(NamedTuple):
    """A group with its p-value (raw, then after Holm), its gap and its floor, in nats."""

    group: Group
    p: float
    adjusted: float
    gap: Extent
    floor: Extent

    @property
    def blocked(self) -> bool:
        """Whether the gate fails the group."""
        return self.adjusted <= RULES.alpha and self.gap.beyond(self.floor)


def recorded(part: str) -> dict[str, Blocks]:
    """The blocks of every cell of a golden run that wrote outputs."""
    with TemporaryDirectory() as folder:
        evidence = read_evidence([unpack(f"{RUN}/{part}", Path(folder) / part)], read_policy())
        found: dict[str, Blocks] = {}
        for key, run in evidence.runs.items():
            outputs = evidence.files.outputs(run) if run.observation else None
            eager = run.cell.key.mode is GraphMode.NONE
            if outputs is not None:
                found[key] = blocks_of(outputs, Arms.REFERENCE if eager else Arms.ALL)
        return found


def groups_between(tested: Blocks, reference: Blocks, *, padded: bool) -> Iterator[Group]:
    """The noisy groups of two cells; without `padded` those alone that no graph pads."""
    checks: dict[str, list[Pair]] = {}
    for pair in pairs_of(tested, reference):
        left_out = pair.check == Kind.FREE_TEXT or (not padded and is_padded(pair.tested.scenario))
        if not left_out:
            checks.setdefault(pair.check, []).append(pair)
    padding = padding_of(reference)
    for check, pairs in checks.items():
        if not all(pair.exact for pair in pairs):
            yield from groups_of(check, pairs, padding)


def tested_groups(tested: Blocks, reference: Blocks, *, padded: bool) -> list[Tested]:
    """Those groups as the gate tests them."""
    groups = list(groups_between(tested, reference, padded=padded))
    found = [separation_of(group) for group in groups]
    return [
        Tested(
            *(group, one.p, adjusted, one.gap),
            floor_of(one.spread, group.padding, RULES),
        )
        for group, one, adjusted in zip(groups, found, holm([one.p for one in found]), strict=True)
    ]


def clean_table(cells: dict[str, Blocks]) -> Table:
    """All ordered pairs of the noisy model's clean cells of one breakable flag."""
    kinds: dict[str, list[list[Tested]]] = {}
    for one, other in permutations(cells, 2):
        if one.split(".")[2] != other.split(".")[2] or ".NONE." in other:
            continue
        eager = ".NONE." in one
        kind = "NONE, all steps" if eager else "with the same rounds, steps that no graph pads"
        found = tested_groups(cells[other], cells[one], padded=eager)
        kinds.setdefault(kind, []).append(found)
        if eager:
            bare = tested_groups(cells[other], cells[one], padded=False)
            kinds.setdefault("NONE, steps that no graph pads", []).append(bare)
    table = _table(
        f"{NOISY}, clean pairs by reference",
        *("pairs", "groups", "p <= 0.05", "p <= 0.001", "smallest p"),
        *("largest gap / floor", "pairs with p <= alpha (Holm)", "pairs blocked"),
    )
    for kind, pairs in kinds.items():
        table.add_row(kind, *_summary(pairs))
    return table


def _summary(pairs: list[list[Tested]]) -> Iterator[str]:
    every = [one for pair in pairs for one in pair]
    yield str(len(pairs))
    yield str(len(every))
    yield f"{np.mean([one.p <= 0.05 for one in every]):.3f}"
    yield f"{np.mean([one.p <= 0.001 for one in every]):.3f}"
    yield f"{min(one.p for one in every):.1e}"
    yield f"{max(one.gap.mean / one.floor.mean for one in every):.2f}"
    yield str(sum(any(one.adjusted <= RULES.alpha for one in pair) for pair in pairs))
    yield str(sum(any(one.blocked for one in pair) for pair in pairs))


def groups_table(title: str, found: Iterable[Tested]) -> Table:
    """Group by group: gaps beside floors."""
    table = _table(title, "graph", "p", "mean gap", "floor", "widest gap", "floor", "blocked")
    for one in found:
        table.add_row(
            *(one.group.check, str(one.group.capture_size or "-"), f"{one.p:.1e}"),
            *(f"{one.gap.mean:.4f}", f"{one.floor.mean:.4f}"),
            *(f"{one.gap.widest:.2f}", f"{one.floor.widest:.2f}"),
            "yes" if one.blocked else "no",
        )
    return table


def exact_table(cells: dict[str, Blocks]) -> Table:
    """Models that repeat themselves: clean cells against NONE, by the gate."""
    table = _table("Clean cells against NONE, by the gate", "cells", "findings", "blocked")
    for model in sorted({key.split(".")[0] for key in cells}):
        found = [
            judge_blocks(blocks, cells[f"{model}.NONE.{key.split('.')[2]}.canary"], RULES)
            for key, blocks in cells.items()
            if key.startswith(f"{model}.") and ".NONE." not in key
        ]
        blocked = sum(any(one.status.blocks for one in findings) for findings in found)
        table.add_row(model, str(len(found)), str(sum(map(len, found))), str(blocked))
    return table


def power_table(cells: dict[str, Blocks], seed: int) -> Table:
    """Shares of groups that fail with a shift planted into the decode steps of batches."""
    table = _table(
        "Planted into clean outputs: share of groups of batches blocked",
        *("of each batch", "groups on size", "off size", "cells"),
    )
    for shift in SHIFTS:
        for alone in (False, True):
            shares = list(_shares(cells, shift, np.random.default_rng(seed), alone=alone))
            who = "one request" if alone else "all requests"
            told = [f"{np.mean([share[place] for share in shares]):.2f}" for place in range(3)]
            table.add_row(f"{shift:g} nats", who, *told)
    return table


def _shares(
    cells: dict[str, Blocks], shift: float, chance: np.random.Generator, *, alone: bool
) -> Iterator[tuple[float, float, bool]]:
    """Of each clean cell: blocked groups on size and off size, and whether any is."""
    for key, blocks in cells.items():
        if ".NONE." in key:
            continue
        reference = cells[f"{NOISY}.NONE.{key.split('.')[2]}.canary"]
        planted = {
            place: _planted(one, shift, chance, alone=alone) for place, one in blocks.items()
        }
        found = tested_groups(planted, reference, padded=True)
        by_check = {
            check: [one.blocked for one in found if one.group.check == check]
            for check in ("batch-on-size", "batch-off-size")
        }
        shares = [float(np.mean(blocked)) for blocked in by_check.values()]
        yield shares[0], shares[1], any(one.blocked for one in found)


def _planted(block: Block, shift: float, chance: np.random.Generator, *, alone: bool) -> Block:
    """A batch that a graph serves, its decode steps shifted alike in every repeat."""
    scenario = block.scenario
    if scenario.kind is not Kind.BATCH or scenario.capture_size is None:
        return block
    signs = chance.choice([-1.0, 1.0], block.values.shape[1:])
    rows = block.step > 0
    if alone:
        rows = rows & (block.request == chance.integers(block.request.max() + 1))
    return block._replace(values=block.values + shift * signs * rows[:, None])


def _table(title: str, *heads: str) -> Table:
    table = Table(title=title)
    table.add_column("")
    for head in heads:
        table.add_column(head, justify="right")
    return table


def main(seed: Annotated[int, typer.Option(help="Of the planted signs.")] = 1) -> None:
    """Measure and print all tables."""
    console = Console(width=160)
    cells = {key: one for key, one in recorded("matrix").items() if key not in FAULTY}
    noisy = {key: one for key, one in cells.items() if key.startswith(f"{NOISY}.")}
    console.print(exact_table(cells))
    console.print(clean_table(noisy))
    mutant = recorded("mutants")[S2]
    reference = noisy[f"{NOISY}.NONE.bk1.canary"]
    console.print(groups_table("S2, planted", tested_groups(mutant, reference, padded=True)))
    console.print(power_table(noisy, seed))


if __name__ == "__main__":
    typer.run(main)
