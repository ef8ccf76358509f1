"""Helpers of the tests that run real children: plans, environments, waiting."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from fixtures.cells.cell import Cell, Plan, Source
from fixtures.evidence.cellrun import CellRun
from fixtures.run.cellrun import RunLimits, Watcher, run_cell
from fixtures.run.environment import ChildEnvironment
from fixtures.run.pool import LauncherPool
from suites.selftest.children import ENTRY

SOURCE = Source(
    kind="checkout", request="toy", version="0.0.0", identity="toy@1", python_path="/nowhere"
)


def environment(*, fork_server: bool = True, entry: str = ENTRY) -> ChildEnvironment:
    """This Python, answering cells with the selftest's behaviours."""
    preload = ("suites.selftest.children",) if fork_server else ()
    return ChildEnvironment(
        python=sys.executable, entry=entry, fork_server=fork_server, preload=preload
    )


def plan_of(*cells: Cell, source: Source = SOURCE) -> Plan:
    """A plan of these cells."""
    return Plan(source=source, sweep="selftest", cells=cells)


def run_alone(
    cell: Cell, folder: Path, pool: LauncherPool, limits: RunLimits | None = None
) -> CellRun:
    """The run of one cell in this thread."""
    return run_cell(
        cell,
        SOURCE,
        folder,
        pool,
        limits=limits or RunLimits(),
        watcher=Watcher(started=lambda index: None, progressed=lambda phase, event: None),
        stop=threading.Event(),
    )


def wait_until(true: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Wait until `true()`; fails the test when that takes too long."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not true within {seconds} s: {true}"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie doesn't)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pid_in(path: Path) -> int:
    """The process id that a child has written into a file, waited for."""
    wait_until(lambda: path.exists() and path.read_text().isdigit())
    return int(path.read_text())


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))
