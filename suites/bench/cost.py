"""Where the seconds of canary cells went, and GraphGate's own share of them:
`python -m suites.bench.cost OUT...`, on any machine.

Owns: the measurement from recorded evidence, and its table. Must not know: how much is too much;
nothing here is a test. docs/canary.md says what counts as whose.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from fixtures.cells.spec import Phase
from fixtures.errors import ConfigError
from fixtures.evidence.audit import read_audit
from fixtures.evidence.cellrun import CellRun, EvidenceFile
from fixtures.run.outfolder import OutFolder

VLLM = ("import", "engine", "serving", "shutdown")
"""Timings of an observation in which the child waited for vLLM."""

LIBRARIES = "libraries"
"""The timing of libraries that vLLM needs as well; older evidence has none."""

AUDIT = "graphs"
"""The timing in which the child waited for the audit."""


class Cost(NamedTuple):
    """Seconds of a cell's last attempt; None: its evidence lacks the clock, or the audit's file.

    `total` is from start to end. `vllm` are VLLM's, in their order. `exit` is from the completion
    record to the process's end, in which Python takes down what torch and vLLM have loaded:
    with GraphGate's modules alone it is 0.01 s. `own` is what is left of `total` without these
    and the audit, with the probe's wrappers in the worker added: an upper bound, as the
    interpreter's start and the import of libraries that vLLM needs too are in it. `audit` is
    what the child waited for and what the audit clocked in the worker, partly the same.
    `loader` made the weights.
    """

    key: str
    model: str
    total: float
    vllm: tuple[float | None, ...]
    exit: float | None
    own: float | None
    audit: float | None
    loader: float | None

    @property
    def share(self) -> float | None:
        """`own` as a part of `total`."""
        return None if self.own is None else self.own / self.total

    @property
    def share_with_exit(self) -> float | None:
        """`own` and `exit` as a part of `total`."""
        if self.own is None or self.exit is None:
            return None
        return (self.own + self.exit) / self.total

    @property
    def share_with_audit(self) -> float | None:
        """`own` and `audit` as a part of `total`."""
        if self.own is None or self.audit is None:
            return None
        return (self.own + self.audit) / self.total


def cost_of(run: CellRun, folder: Path) -> Cost | None:
    """What a finished cell cost; None where it left no completion record.

    Args:
        run: the cell's.
        folder: of its last attempt.
    """
    found = run.observation
    if found is None or not run.attempts:
        return None
    phases = run.attempts[-1].timings
    total, leaving = sum(phases.values()), phases.get(Phase.EXIT)
    clocks = found.timings
    waited = sum(clocks.get(name, 0.0) for name in (*VLLM, LIBRARIES, AUDIT))
    known = "child" in clocks
    in_worker = _audited(folder, found.graphs)
    return Cost(
        key=str(run.cell.key),
        model=run.cell.key.model,
        total=total,
        vllm=tuple(clocks.get(name) for name in VLLM),
        exit=leaving,
        own=total - (leaving or 0.0) - waited + clocks.get("probe", 0.0) if known else None,
        audit=None if in_worker is None else clocks.get(AUDIT, 0.0) + in_worker,
        loader=clocks.get("loader"),
    )


def _audited(folder: Path, file: EvidenceFile | None) -> float | None:
    if file is None:
        return 0.0
    try:
        return sum(read_audit(folder, file).seconds.values())
    except ConfigError:
        return None


def costs_in(out: Path) -> Iterator[Cost]:
    """The costs of all cells of a folder of evidence."""
    folder = OutFolder(out)
    for run in folder.ledger.read().runs:
        cost = cost_of(run, folder.cell_folder(run.cell.key) / f"attempt-{len(run.attempts) - 1}")
        if cost is not None:
            yield cost


def table_of(costs: list[Cost]) -> Table:
    """One row a cell, then one a model with its medians."""
    table = Table(box=None)
    table.add_column("cell", no_wrap=True)
    shares = ("own", "own %", "with exit %", "with audit %")
    for name in ("total", *VLLM, "exit", "audit", "loader", *shares):
        table.add_column(name, justify="right")
    for cost in costs:
        table.add_row(cost.key, *_figures(cost))
    for model in dict.fromkeys(cost.model for cost in costs):
        table.add_row(
            f"median of {model}", *_figures(_median([c for c in costs if c.model == model]))
        )
    return table


def _figures(cost: Cost) -> Iterator[str]:
    for seconds in (cost.total, *cost.vllm, cost.exit, cost.audit, cost.loader, cost.own):
        yield "-" if seconds is None else f"{seconds:.1f}"
    for share in (cost.share, cost.share_with_exit, cost.share_with_audit):
        yield "-" if share is None else f"{100 * share:.1f}"


def _median(costs: list[Cost]) -> Cost:
    columns = list(zip(*(cost.vllm for cost in costs), strict=True))
    return costs[0]._replace(
        total=median(cost.total for cost in costs),
        vllm=tuple(_median_of(column) for column in columns),
        exit=_median_of([cost.exit for cost in costs]),
        own=_median_of([cost.own for cost in costs]),
        audit=_median_of([cost.audit for cost in costs]),
        loader=_median_of([cost.loader for cost in costs]),
    )


def _median_of(values: list[float | None] | tuple[float | None, ...]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def main(out: Annotated[list[Path], typer.Argument(help="Folders that gates wrote.")]) -> None:
    """Print the seconds of every cell, of which phase they were, and GraphGate's own share."""
    costs = [cost for folder in out for cost in costs_in(folder)]
    Console(highlight=False, width=180).print(table_of(costs))


if __name__ == "__main__":
    typer.run(main)
