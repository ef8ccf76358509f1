"""Helpers of the tests that run real children: plans, environments, waiting."""

from __future__ import annotations

import os
import subprocess
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
from fixtures.source.environment import slim_python
from fixtures.source.resolve import resolve
from suites.selftest.children import ENTRY

ROOT = Path(__file__).resolve().parents[2]


def in_slim_python(
    release: str, module: str, *arguments: str, folder: Path = ROOT, **variables: str
) -> str:
    """What a module prints, run in the Python of the CPU tiers with a release on its path."""
    done = subprocess.run(
        [str(slim_python()), "-P", "-m", module, *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{resolve(release).python_path}",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def under_emulation(release: str, module: str, *arguments: str) -> str:
    """What a module of suites/selftest/child prints about a release's code on a CPU."""
    return in_slim_python(release, f"suites.selftest.child.{module}", *arguments)


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
