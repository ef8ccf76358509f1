"""How judging and rendering grow with the number of cells: `python -m suites.bench.judge`.

Owns: synthetic evidence on disk, the measurement in a child of its own per size, the
printed table. Must not know: how long is too long; nothing here is a test.
"""

from __future__ import annotations

import io
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from itertools import islice, product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import CellKey
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.exits import Exited
from fixtures.schema import Record
from gates.evidence import judge_evidence, read_evidence
from gates.policy import read_policy
from reports.junit import render_junit
from reports.terminal import print_report
from suites.selftest.build import a_cell, a_crash, a_plan, a_run, an_attempt, write_shard

SIZES = (100, 1_000, 10_000)
_MIB_PER_KIB = 1 / 1024


class Measurement(Record):
    """Seconds of the three steps, and the child's peak resident memory in MiB."""

    cells: int
    read: float
    judge: float
    render: float
    peak_rss_mib: float

    @property
    def total(self) -> float:
        """Seconds from folder to reports."""
        return self.read + self.judge + self.render


def synthetic_runs(count: int) -> Iterator[CellRun]:
    """`count` runs of different cells; every tenth died, every seventh was retried."""
    axes = product(range(10**6), Breakable, GraphMode)
    for index, (number, flag, mode) in enumerate(islice(axes, count)):
        key = CellKey(
            model=f"model{number % 50}",
            mode=mode,
            breakable=flag,
            tier=Tier.CONTRACT,
            variant=f"v{number}",
        )
        cell = a_cell(str(key))
        failed = an_attempt(Exited(code=1), crash=a_crash("INFRA", f"node {index} is busy"))
        if index % 10 == 0:
            died = (an_attempt(Exited(code=1)),)
            yield a_run(
                cell, attempts=died, observation=None, crash=a_crash(title=f"fault {index}")
            )
        elif index % 7 == 0:
            yield a_run(cell, attempts=(failed, an_attempt(index=1)))
        else:
            yield a_run(cell)


def measure(folder: Path) -> Measurement:
    """Judge and render the evidence in `folder`, in this process."""
    policy = read_policy()
    started = time.perf_counter()
    evidence = read_evidence([folder], policy)
    was_read = time.perf_counter()
    verdicts = judge_evidence(evidence, policy, (), date(2026, 11, 30))
    was_judged = time.perf_counter()
    print_report(verdicts, evidence.plan, Console(file=io.StringIO(), width=80))
    render_junit(verdicts, evidence.runs, datetime(2026, 11, 30, tzinfo=UTC))
    ended = time.perf_counter()
    return Measurement(
        cells=len(evidence.plan.cells),
        read=was_read - started,
        judge=was_judged - was_read,
        render=ended - was_judged,
        peak_rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MIB_PER_KIB,
    )


def measure_apart(folder: Path) -> Measurement:
    """`measure` in a process of its own, so that no size sees another's memory."""
    command = [sys.executable, "-m", "suites.bench.judge", "--folder", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Measurement.model_validate_json(done.stdout)


def growth(small: float, large: float, ratio: float) -> float:
    """The exponent e of a figure that grew as size**e while the size grew `ratio` times."""
    return math.log(large / small) / math.log(ratio)


def _per_thousand(small: Measurement, large: Measurement) -> float:
    return (large.peak_rss_mib - small.peak_rss_mib) * 1000 / (large.cells - small.cells)


def render(measurements: list[Measurement]) -> Table:
    """The table of all sizes."""
    table = Table(title="Judging and rendering stored evidence", box=None, title_justify="left")
    for heading in ("cells", "read s", "judge s", "render s", "total s", "peak MiB"):
        table.add_column(heading, justify="right")
    for one in measurements:
        times = (one.read, one.judge, one.render, one.total)
        table.add_row(
            f"{one.cells:,}", *(f"{seconds:.3f}" for seconds in times), f"{one.peak_rss_mib:.0f}"
        )
    return table


def main(
    folder: Annotated[
        Path | None, typer.Option(help="Measure this folder only, and print JSON.")
    ] = None,
) -> None:
    """Make evidence of several sizes, judge and render each, print times and growth."""
    if folder is not None:
        sys.stdout.write(measure(folder).to_json(indent=None))
        return
    measurements = []
    with tempfile.TemporaryDirectory(prefix="graphgate-bench-") as scratch:
        for size in SIZES:
            runs = list(synthetic_runs(size))
            shard = write_shard(Path(scratch) / str(size), a_plan(*(r.cell for r in runs)), runs)
            measurements.append(measure_apart(shard))
    first, last = measurements[0], measurements[-1]
    ratio = last.cells / first.cells
    console = Console(width=80)
    console.print(render(measurements))
    console.print(
        f"growth from {first.cells:,} to {last.cells:,} cells: "
        f"time as n^{growth(first.total, last.total, ratio):.2f}, "
        f"peak memory as n^{growth(first.peak_rss_mib, last.peak_rss_mib, ratio):.2f} "
        f"(Python and its libraries included; {_per_thousand(first, last):.0f} MiB more for "
        "each 1,000 cells)"
    )


if __name__ == "__main__":
    typer.run(main)
