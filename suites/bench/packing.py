"""Canary cells side by side on a GPU, then the same ones one by one, in one go:
`python -m suites.bench.packing --vllm installed --cell 'llama.*' --cell dsv4.NONE.bk0`.

Needs a Hopper GPU. Owns: the order of the runs, their clock and their ratio. Must not know: how a
cell is run, which the runner of `graphgate gate` does, nor which ratio is good enough; nothing
here is a test. After every cell `packing.json` in the folder holds what is known so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field
from rich.console import Console
from rich.table import Table

from fixtures.cells.axes import Tier
from fixtures.cells.cell import Plan
from fixtures.errors import ConfigError, GraphGateError
from fixtures.evidence.cellrun import CellRun
from fixtures.run.environment import ChildEnvironment
from fixtures.run.events import CellFinished, CellStarted, RunEvent
from fixtures.run.runner import run_plan
from fixtures.schema import Record
from fixtures.source.environment import plan_environment
from reports.files import write_whole
from suites.session import tier_plan

RESULT = "packing.json"
PACKED, ALONE = "packed", "one by one"


class CellTime(Record):
    """`held` seconds from the cell's start to its ledger line, `attempt` those of its processes.

    The difference is the runner's: leases, the look at the node afterwards, triage.
    """

    cell: str
    completed: bool
    held: float
    attempt: float


class Pass(Record):
    """One run of all cells. `cpu` are the seconds of a CPU that this process itself took."""

    name: str
    cells: tuple[CellTime, ...] = ()
    wall: float = 0.0
    cpu: float = 0.0


class Packing(Record):
    """What was measured so far, of `cells` cells a pass."""

    vllm: str
    cells: int
    passes: tuple[Pass, ...] = Field(default=())

    def of(self, name: str) -> Pass | None:
        """The pass of that name, finished or not."""
        return next((one for one in self.passes if one.name == name), None)

    @property
    def ratio(self) -> float | None:
        """One by one over packed; too small where the former was cut off, never too large."""
        packed, alone = self.of(PACKED), self.of(ALONE)
        if packed is None or alone is None or len(packed.cells) < self.cells:
            return None
        return alone.wall / packed.wall if packed.wall else None


def chosen(planned: Plan, patterns: list[str]) -> Plan:
    """The plan with those cells alone whose key, without its tier, fits a pattern.

    Raises:
        ConfigError: a pattern fits no cell.
    """
    names = {cell.key: str(cell.key).replace(f".{Tier.CANARY}", "") for cell in planned.cells}
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in names.values()):
            raise ConfigError(f"--cell {pattern}: fits no cell", remedy="see `graphgate plan`")
    fits = [c for c in planned.cells if any(fnmatch(names[c.key], one) for one in patterns)]
    return planned.model_copy(update={"cells": tuple(fits)})


def passed(name: str, events: Iterator[RunEvent], until: float) -> Iterator[Pass]:
    """The pass as it grows, a cell at a time; `until` (monotonic) it is cut off at an event."""
    began, cpu = time.monotonic(), time.process_time()
    started: dict[str, float] = {}
    result = Pass(name=name)
    for event in events:
        now = time.monotonic()
        if isinstance(event, CellStarted):
            started.setdefault(str(event.key), now)
        elif isinstance(event, CellFinished):
            cell = _cell_time(event.run, now - started[str(event.run.cell.key)])
            done = (*result.cells, cell)
            spent = round(time.process_time() - cpu, 2)
            changes = {"cells": done, "wall": round(now - began, 2), "cpu": spent}
            result = result.model_copy(update=changes)
            yield result
        if now > until:
            return


def _cell_time(run: CellRun, held: float) -> CellTime:
    return CellTime(
        cell=str(run.cell.key),
        completed=run.observation is not None and run.crash is None,
        held=round(held, 2),
        attempt=round(sum(sum(a.timings.values()) for a in run.attempts), 2),
    )


def measure(
    plan: Plan,
    environment: ChildEnvironment,
    out: Path,
    names: list[tuple[str, int | None]],
    until: float,
    tell: Callable[[str], None],
) -> Packing:
    """Run the passes `names`, each with its number of cells at a time (None: as many as fit)."""
    result = Packing(vllm=plan.source.version, cells=len(plan.cells))
    for name, jobs in names:
        if time.monotonic() > until:
            break
        finished = result.passes
        folder = out / name.replace(" ", "-")
        with closing(run_plan(plan, folder, environment, jobs=jobs)) as events:
            for one in passed(name, events, until):
                result = result.model_copy(update={"passes": (*finished, one)})
                write_whole(out / RESULT, result.to_json().encode())
                last = one.cells[-1]
                tell(f"{name} [{len(one.cells)}/{result.cells}] {last.cell}: {last.held:.1f} s")
    return result


def show(result: Packing, console: Console) -> None:
    """The seconds of each cell in each pass, and the ratio."""
    table = Table(box=None)
    table.add_column("cell", no_wrap=True)
    for one in result.passes:
        table.add_column(f"{one.name}, s", justify="right")
    seconds = {one.name: {c.cell: c for c in one.cells} for one in result.passes}
    for cell in dict.fromkeys(c.cell for one in result.passes for c in one.cells):
        told = [seconds[one.name].get(cell) for one in result.passes]
        table.add_row(cell, *("-" if c is None else _told(c) for c in told))
    console.print(table)
    for one in result.passes:
        after = sum(cell.held - cell.attempt for cell in one.cells)
        console.print(
            f"{one.name}: {len(one.cells)} of {result.cells} cells in {one.wall:.1f} s; around "
            f"their processes {after:.1f} s, and {one.cpu:.1f} s of a CPU for the runner"
        )
    alone, ratio = result.of(ALONE), result.ratio
    if alone is not None and ratio is not None:
        least = "" if len(alone.cells) == result.cells else "at least "
        console.print(f"one by one takes {least}{ratio:.2f} times as long as packed")


def _told(cell: CellTime) -> str:
    return f"{cell.held:.1f}" + ("" if cell.completed else " (did not complete)")


def main(
    *,
    cell: Annotated[list[str], typer.Option("--cell", help="Cells, as dsv4.NONE.bk0; * fits.")],
    vllm: Annotated[str | None, typer.Option("--vllm", help="As of `graphgate gate`.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for evidence and results.")],
    minutes: Annotated[
        float, typer.Option("--minutes", help="Stop after so long; what ran is kept.")
    ] = 60,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Cells at a time when packed.")] = None,
    warm: Annotated[bool, typer.Option("--warm", help="Run packed once before.")] = False,
) -> None:
    """Run cells packed and then one by one; print the seconds of each and the ratio."""
    console = Console(highlight=False, width=120)
    names: list[tuple[str, int | None]] = [("warm-up", jobs)] if warm else []
    names += [(PACKED, jobs), (ALONE, 1)]
    until = time.monotonic() + 60 * minutes
    try:
        plan = chosen(tier_plan(Tier.CANARY, vllm, "pr"), cell)
        environment = plan_environment(plan)
        show(measure(plan, environment, out, names, until, console.print), console)
    except GraphGateError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(main)
