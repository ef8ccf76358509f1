"""Size and time of every report over many cells: `python -m suites.bench.reports`.

Owns: the measurement and its table. Must not know: how long is too long; nothing here is
a test.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from gates.evidence import Evidence, judge_evidence
from gates.policy import read_policy
from reports.annotation import render_annotation
from reports.html import render_html
from reports.junit import render_junit
from reports.terminal import print_report
from suites.bench.judge import synthetic_runs
from suites.selftest.build import a_plan

SIZES = (100, 1_000, 10_000)
NOW = datetime(2026, 11, 30, tzinfo=UTC)


def measure(cells: int) -> list[tuple[str, float, int]]:
    """Name, seconds and bytes of each report over `cells` cells, a tenth of them crashes."""
    runs = {str(run.cell.key): run for run in synthetic_runs(cells)}
    plan = a_plan(*(run.cell for run in runs.values()))
    evidence = Evidence(plan, runs, (), ())
    verdicts = judge_evidence(evidence, read_policy(), (), date(2026, 11, 30))

    def terminal() -> bytes:
        stream = io.StringIO()
        print_report(verdicts, plan, Console(file=stream, width=80))
        return stream.getvalue().encode()

    reports: dict[str, Callable[[], bytes]] = {
        "HTML": lambda: render_html(verdicts, plan, runs, NOW),
        "JUnit": lambda: render_junit(verdicts, runs, NOW),
        "annotation": lambda: render_annotation(verdicts, plan, runs).encode(),
        "terminal": terminal,
    }
    measured = []
    for name, render in reports.items():
        started = time.perf_counter()
        size = len(render())
        measured.append((name, time.perf_counter() - started, size))
    return measured


def main(
    sizes: Annotated[list[int] | None, typer.Argument(help="Numbers of cells.")] = None,
) -> None:
    """Draw every report over several numbers of cells; print times and sizes."""
    table = Table(title="Reports", box=None, title_justify="left")
    for heading in ("cells", "report", "seconds", "MiB"):
        table.add_column(heading, justify="right")
    for size in sizes or SIZES:
        for name, seconds, size_bytes in measure(size):
            table.add_row(f"{size:,}", name, f"{seconds:.2f}", f"{size_bytes / 2**20:.2f}")
    Console(width=80).print(table)


if __name__ == "__main__":
    typer.run(main)
