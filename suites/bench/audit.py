"""What the capture audit costs, on what runs recorded: `python -m suites.bench.audit OUT ...`.

Runs of the same cell with the audit and without it (GRAPHGATE_AUDIT=off) are told side by side,
from whichever of the OUT folders they lie in; a variant that sets nothing but that switch is the
same cell. Owns the table alone. Must not know which figures are good enough; nothing here is a
test. docs/audit.md quotes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from fixtures.cells.axes import GraphMode
from fixtures.cells.cell import Cell
from fixtures.evidence.audit import CaptureAudit
from fixtures.evidence.cellrun import CellRun
from gates.evidence import read_evidence
from gates.policy import read_policy

_SWITCH = "GRAPHGATE_AUDIT"
_DEFAULT = ("", "default")
_TIMES = ("engine", "workload", "graphs")
"""Seconds of the child: the start, the workload, and asking for the audit."""
_MEMORY = ("allocated", "reserved", "resident")
_SHOWN = 3
"""Parts of the audit that are named, the dearest first."""


class Cost(NamedTuple):
    """One run of a cell that served its workload; `audit` is None where it was switched off.

    `same` is equal for cells that differ by the audit's switch alone, and `usual` says whether the
    switch stands at its default: with poison, say, a run costs something else.
    """

    cell: str
    same: str
    usual: bool
    times: dict[str, float]
    memory: dict[str, float]
    audit: CaptureAudit | None


def costs_in(folders: Iterable[Path]) -> list[Cost]:
    """The costs of all cells with graphs that left a completion record and served."""
    found = []
    for folder in folders:
        evidence = read_evidence([folder], read_policy())
        for run in evidence.runs.values():
            if run.cell.key.mode is not GraphMode.NONE and _served(run):
                found.append(_cost(run, evidence.files.graphs(run)))
    return sorted(found, key=lambda one: (one.cell, one.audit is None))


def _served(run: CellRun) -> bool:
    return run.observation is not None and "workload" in run.observation.timings


def _cost(run: CellRun, audit: CaptureAudit | None) -> Cost:
    if run.observation is None:
        raise ValueError(f"{run.cell.key} did not serve its workload")
    seen = run.observation
    usual = run.cell.environment.get(_SWITCH, "") in _DEFAULT
    return Cost(
        str(run.cell.key), _unswitched(run.cell), usual, seen.timings, seen.worker_mib, audit
    )


def _unswitched(cell: Cell) -> str:
    """What the child is told, without the audit's switch; a variant that sets it loses its name."""
    others = {name: value for name, value in cell.environment.items() if name != _SWITCH}
    variant = cell.key.variant if others == cell.environment else None
    key = cell.key.model_copy(update={"variant": variant})
    changed = {"key": key, "environment": others, "reference": None}
    return cell.model_copy(update=changed).to_json()


def cost_table(costs: Iterable[Cost]) -> Table:
    """A row for each run, and one for each difference between runs of a cell."""
    table = Table(title="What the capture audit costs", title_justify="left")
    table.add_column("cell")
    for name in ("audit", "of it", *_TIMES, *(f"{name} MiB" for name in _MEMORY)):
        table.add_column(name, justify="left" if name == "of it" else "right")
    for cost in costs:
        table.add_row(cost.cell, *_figures(cost))
    for name, plus, minus in pairs(costs):
        table.add_row(f"{name}: with less without", *_difference(plus, minus))
    return table


def pairs(costs: Iterable[Cost]) -> Iterator[tuple[str, Cost, Cost]]:
    """(cell, with the audit as it is by default, without it), the first run of each kind."""
    kinds: dict[str, dict[bool, Cost]] = {}
    for cost in costs:
        if cost.usual or cost.audit is None:
            kinds.setdefault(cost.same, {}).setdefault(cost.audit is not None, cost)
    for both in kinds.values():
        if len(both) == len({True, False}):
            yield both[True].cell, both[True], both[False]


def _figures(cost: Cost) -> Iterator[str]:
    parts = cost.audit.seconds if cost.audit is not None else {}
    yield f"{sum(parts.values()):.2f} s" if parts else "off"
    dearest = sorted(parts.items(), key=lambda item: -item[1])[:_SHOWN]
    yield ", ".join(f"{name} {seconds:.2f}" for name, seconds in dearest)
    yield from (f"{cost.times[name]:.2f} s" if name in cost.times else "-" for name in _TIMES)
    yield from (f"{cost.memory[name]:.0f}" if name in cost.memory else "-" for name in _MEMORY)


def _difference(plus: Cost, minus: Cost) -> Iterator[str]:
    yield from ("", "")
    for names, unit in ((_TIMES, " s"), (_MEMORY, "")):
        for name in names:
            mine, theirs = ((one.times if unit else one.memory).get(name) for one in (plus, minus))
            both = mine is not None and theirs is not None
            yield f"{(mine or 0) - (theirs or 0):+.2f}{unit}" if both else "-"


def main(
    folders: Annotated[list[Path], typer.Argument(metavar="OUT...", help="OUT folders of runs.")],
) -> None:
    """Print what the audit costs by cell, with the runs that had none beside them."""
    Console(width=200).print(cost_table(costs_in(folders)))


if __name__ == "__main__":
    typer.run(main)
