"""False alarms and power of the parity gate: `python -m suites.bench.parity`.

Owns the measurement and its tables, on noise that was recorded on an H200. Must not know
which figures are good enough; nothing here is a test. docs/parity.md quotes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from fixtures.cells.scenario import Arms
from gates.parity.blocks import blocks_of
from gates.parity.gate import judge_blocks
from gates.parity.permutation import Unit, separation
from gates.parity.rules import ParityRules
from gates.verdict import Status
from suites.selftest.recorded import noise
from suites.selftest.written import Engine, workload

RULES = ParityRules()
TESTS = 20
"""Groups that share a cell's alpha in the usual workload, about."""

STEPS, REQUESTS, COLUMNS = 3, 8, 6


class Design(NamedTuple):
    """How often a group's rounds run in each of two cells, and in how many units."""

    words: str
    repeats: int
    units: int


DESIGNS = (
    Design("one size alone in its graph", 5, 3),
    Design("three sizes in a graph", 3, 9),
    Design("seven sizes in a graph", 2, 21),
)


class Fault(NamedTuple):
    """A shift in nats of the first `requests` of a batch of eight, in its decode steps."""

    shift: float
    requests: int


FAULTS = (
    Fault(0.0, REQUESTS),
    *(Fault(shift, REQUESTS) for shift in (0.01, 0.02, 0.03, 0.06, 0.3)),
    *(Fault(shift, 1) for shift in (0.1, 0.3, 0.6, 1.0)),
)


def p_values(
    design: Design, fault: Fault, groups: int, chance: np.random.Generator
) -> Iterable[float]:
    """The p-value of each of `groups` imagined groups.

    Noise is drawn from differences of two recorded runs, so it is larger than that of one.
    """
    recorded = np.asarray(noise())
    shape = (design.repeats, REQUESTS, STEPS, COLUMNS)
    for _ in range(groups):
        units = []
        for _ in range(design.units):
            # A row's columns are of one step and move together where its context does.
            runs = [chance.choice(recorded, (*shape[:3], 1)) for _ in range(2)]
            runs = [run + chance.choice(recorded, shape) * 0.5 for run in runs]
            signs = chance.choice([-1.0, 1.0], (fault.requests, STEPS - 1, COLUMNS))
            runs[1][:, : fault.requests, 1:] += fault.shift * signs
            units.append(Unit(*(run.reshape(design.repeats, -1) for run in runs)))
        yield separation(units).p


def power_table(groups: int, chance: np.random.Generator) -> Table:
    """Shares of groups whose p-value is small enough, by design and fault."""
    levels = (0.05, 0.01, RULES.alpha / TESTS)
    table = Table(title=f"Permutation test: {groups} groups a line, batches of {REQUESTS}")
    for head in ("group", "repeats", "units", "shift, nats", "requests"):
        table.add_column(head, justify="left" if head == "group" else "right")
    for level in levels:
        table.add_column(f"p <= {level:g}", justify="right")
    for design in DESIGNS:
        for fault in FAULTS:
            found = np.fromiter(p_values(design, fault, groups, chance), dtype=float)
            shares = [f"{(found <= level).mean():.3f}" for level in levels]
            facts = (design.words, str(design.repeats), str(design.units))
            table.add_row(*facts, f"{fault.shift:g}", str(fault.requests), *shares)
    return table


def false_alarms(cells: int, *, noisy: bool, flips: float) -> tuple[int, int]:
    """Clean cells of an imagined engine that are not PASS, and all their findings."""
    asked, wrong, findings = workload(), 0, 0
    for seed in range(cells):
        reference = Engine(noise=noisy, seed=2 * seed).writes(asked)
        tested = Engine(graphs=True, noise=noisy, flips=flips, seed=2 * seed + 1).writes(asked)
        found = judge_blocks(
            blocks_of(tested, Arms.ALL), blocks_of(reference, Arms.REFERENCE), RULES
        )
        findings += len(found)
        wrong += any(one.status is not Status.PASS for one in found)
    return wrong, findings


def rare_noise_table(runs: int) -> Table:
    """The exact rule's false alarms, if a kernel moved a bit once in 1/q rounds."""
    table = Table(title=f"Bit for bit, {runs} rounds a cell: false alarms by noise per round")
    table.add_column("q", justify="right")
    table.add_column("chance", justify="right")
    for q in (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
        quiet = (1 - q) ** runs
        table.add_row(f"{q:g}", f"{quiet * (1 - quiet):.4f}")
    return table


def main(
    groups: Annotated[int, typer.Option(help="Groups in a line of the power table.")] = 200,
    cells: Annotated[int, typer.Option(help="Clean cells of each kind.")] = 30,
    seed: Annotated[int, typer.Option(help="Of the noise.")] = 1,
) -> None:
    """Measure and print all tables."""
    console = Console()
    for noisy, flips in ((False, 0.3), (True, 0.3), (True, 0.6)):
        wrong, findings = false_alarms(cells, noisy=noisy, flips=flips)
        kind = f"noise, {flips:g} of rows moved by an ULP" if noisy else "no noise"
        console.print(f"{kind}: {wrong} of {cells} clean cells blocked, {findings} findings")
    console.print(rare_noise_table(runs=39))
    console.print(power_table(groups, np.random.default_rng(seed)))


if __name__ == "__main__":
    typer.run(main)
