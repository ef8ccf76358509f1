"""How the history answers when it holds much: `python -m suites.bench.history`.

Owns: a synthetic history, the measurement and its table. Must not know: how long is too
long; nothing here is a test.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import CellKey
from reports.history.page import render_history, trends
from reports.history.questions import flakes, nights, past, phases, titles, turns
from reports.history.store import History
from suites.bench.judge import synthetic_runs
from suites.selftest.nights import night

START = datetime(2016, 1, 1, 6, tzinfo=UTC)
ROWS = 1_000_000
CELLS = 1_000
_PHASES = ("start", "work", "exit")


def keys(count: int) -> list[CellKey]:
    """`count` different keys."""
    axes = product(range(count), Breakable, GraphMode)
    made = (
        CellKey(model=f"model{n}", mode=mode, breakable=flag, tier=Tier.CONTRACT)
        for n, flag, mode in axes
    )
    return [next(made) for _ in range(count)]


def fill(path: Path, cells: int, count: int) -> None:
    """Put `count` nights of `cells` cells into an empty history, by bulk.

    Every 97th result is a crash, every 41st the node's fault; cells turn about once a year.
    """
    History(path).__exit__()
    raw = sqlite3.connect(path)
    raw.executemany("INSERT INTO cell VALUES (?, ?)", enumerate(map(str, keys(cells)), 1))
    raw.executemany("INSERT INTO phase VALUES (?, ?)", enumerate(_PHASES, 1))
    raw.executemany("INSERT INTO title VALUES (?, ?)", ((n, f"fault {n}") for n in range(1, 51)))
    moments = [(START + timedelta(days=n)).isoformat(timespec="seconds") for n in range(count)]
    raw.executemany(
        "INSERT INTO night VALUES (?, ?, ?, ?, 'nightly', 0, ?, ?, ?, ?)",
        (
            (n, at, f"0.{n}.0", f"vllm-{n}", cells, cells, cells // 41, str(n))
            for n, at in enumerate(moments, 1)
        ),
    )
    raw.executemany("INSERT INTO result VALUES (?, ?, ?, ?, ?, 1)", _results(cells, moments))
    raw.executemany(
        "INSERT INTO timing VALUES (?, ?, ?, ?, ?)",
        (
            (cell, at, n, phase, cell % 7 + phase)
            for cell in range(1, cells + 1)
            for n, at in enumerate(moments, 1)
            for phase in (1, 2, 3)
        ),
    )
    raw.executemany(
        "INSERT INTO crash VALUES (?, ?, ?, ?, 0, 'REG')",
        (
            ((cell + n) % 50 + 1, at, n, cell)
            for cell in range(1, cells + 1)
            for n, at in enumerate(moments, 1)
            if (cell + n) % 97 == 0
        ),
    )
    raw.commit()
    raw.execute("ANALYZE")
    raw.close()


def _results(cells: int, moments: list[str]) -> Iterator[tuple[object, ...]]:
    for cell in range(1, cells + 1):
        for number, at in enumerate(moments, 1):
            infra = (cell * 13 + number) % 41 == 0
            red = (number + cell) // 365 % 2 == 1
            status = "INFRA" if infra else "FAIL" if red else "PASS"
            yield cell, at, number, status, "audit:C shared-state" if red else ""


def measure(path: Path) -> dict[str, float]:
    """Seconds of every question, of the page, and of adding a night of 1,000 cells."""
    with History(path) as history:
        key = keys(CELLS)[CELLS // 2]
        questions: dict[str, Callable[[], object]] = {
            "latest nights": lambda: nights(history),
            "one cell's past": lambda: past(history, key),
            "turns of one cell": lambda: turns(history, key=str(key)),
            "turns of all cells": lambda: turns(history),
            "titles, first and last seen": lambda: titles(history),
            "flake rate by month": lambda: flakes(history),
            "seconds by phase": lambda: phases(history),
            "the whole trend page": lambda: render_history(trends(history), START),
            "add a night of 1,000 cells": lambda: _add(history),
        }
        seconds = {}
        for name, ask in questions.items():
            started = time.perf_counter()
            ask()
            seconds[name] = time.perf_counter() - started
        return seconds


def _add(history: History) -> None:
    verdicts, plan, runs = night(synthetic_runs(1_000))
    history.add_night(verdicts, plan, runs, datetime(2026, 11, 30, tzinfo=UTC))


def main(
    rows: Annotated[int, typer.Option(help="Results: nights times cells.")] = ROWS,
) -> None:
    """Fill a history, ask it everything, print the times."""
    with tempfile.TemporaryDirectory(prefix="graphgate-bench-") as scratch:
        path = Path(scratch) / "history.db"
        started = time.perf_counter()
        fill(path, CELLS, max(1, rows // CELLS))
        filled = time.perf_counter() - started
        table = Table(title=f"History of {rows:,} results", box=None, title_justify="left")
        table.add_column("question")
        table.add_column("seconds", justify="right")
        for name, seconds in measure(path).items():
            table.add_row(name, f"{seconds:.3f}")
        console = Console(width=80)
        console.print(table)
        size = path.stat().st_size / 2**20
        console.print(f"filled in bulk in {filled:.1f} s; the file holds {size:.0f} MiB")


if __name__ == "__main__":
    typer.run(main)
