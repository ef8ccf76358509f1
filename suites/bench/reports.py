"""Size and time of every report over many cells, and how long a browser takes to show them:
`python -m suites.bench.reports`.

Owns: the measurement and its table. Must not know: how long is too long; nothing here is
a test.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
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
from suites.selftest.browser import Browser, find_browser
from suites.selftest.build import a_plan

SIZES = (100, 1_000, 10_000)
NOW = datetime(2026, 11, 30, tzinfo=UTC)


_DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))"
_LAST = "[...document.querySelectorAll('article.cell')].at(-1).id"


def measure(cells: int) -> list[tuple[str, float, int]]:
    """Name, seconds and bytes of each report over `cells` cells, a tenth of them crashes.

    With a Chromium on this machine also what a reader waits for.
    """
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
        drawn = render()
        measured.append((name, time.perf_counter() - started, len(drawn)))
        if name == "HTML" and (program := find_browser()) is not None:
            waits = shown(program, drawn).items()
            measured += [(act, seconds, len(drawn)) for act, seconds in waits]
    return measured


def shown(program: str, page: bytes) -> dict[str, float]:
    """Seconds until a browser has drawn the first screen, a cell, the first again, a filter."""
    with tempfile.TemporaryDirectory() as room, Browser(program) as browser:
        path = Path(room) / "index.html"
        path.write_bytes(page)
        acts: dict[str, Callable[[], object]] = {
            "open it": lambda: browser.open(path),
            "open a cell": lambda: browser.run(f"location.hash = '#' + {_LAST}"),
            "go back": lambda: browser.press("Escape"),
            "type in the filter": lambda: _filter(browser),
        }
        waits = {}
        for name, act in acts.items():
            started = time.perf_counter()
            act()
            browser.run(_DRAWN)
            waits[name] = time.perf_counter() - started
        return waits


def _filter(browser: Browser) -> None:
    browser.run("document.getElementById('filter-text').focus()")
    browser.type("model7.")


def main(
    sizes: Annotated[list[int] | None, typer.Argument(help="Numbers of cells.")] = None,
) -> None:
    """Draw every report over several numbers of cells; print times and sizes."""
    table = Table(title="Reports", box=None, title_justify="left")
    for heading in ("cells", "what", "seconds", "MiB"):
        table.add_column(heading, justify="right")
    for size in sizes or SIZES:
        for name, seconds, size_bytes in measure(size):
            table.add_row(f"{size:,}", name, f"{seconds:.2f}", f"{size_bytes / 2**20:.2f}")
    Console(width=80).print(table)


if __name__ == "__main__":
    typer.run(main)
