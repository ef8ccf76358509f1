"""Children that misbehave, each in one way: what the supervisor must survive.

Run in processes of their own through the entry `suites.selftest.children:behave`; the
cell's model names the behaviour.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import Cell, CellKey, Deadlines, Resolution
from fixtures.child.report import Reporter
from fixtures.evidence.cellrun import Observation

ENTRY = "suites.selftest.children:behave"

Behaviour = Callable[[Cell, Reporter], Observation]


def cell_that(
    behaviour: str,
    *,
    name: str = "toy",
    deadline: float = 20.0,
    environment: dict[str, str] | None = None,
    **settings: object,
) -> Cell:
    """A contract cell whose child behaves as the function of that name in this module."""
    key = CellKey(
        model=name, mode=GraphMode.FULL, breakable=Breakable.OFF, tier=Tier.CONTRACT, variant=None
    )
    return Cell(
        key=key,
        model={"behaviour": behaviour, **settings},
        environment=environment or {},
        deadlines=Deadlines(start=20.0, work=deadline, exit=deadline),
        expected=Resolution(mode=GraphMode.FULL, reason="a child of the selftest"),
    )


def behave(cell: Cell, reporter: Reporter) -> Observation:
    """Do what the cell's model asks for."""
    behaviour: Behaviour = globals()[cell.model["behaviour"]]
    return behaviour(cell, reporter)


def _observation(**timings: float) -> Observation:
    return Observation(timings=timings)


def finish(cell: Cell, reporter: Reporter) -> Observation:
    """End well, with progress, logs and the process's own facts."""
    for done in range(3):
        reporter.progress(done + 1, 3, "steps")
    print("said on stdout", flush=True)
    print("said on stderr", file=sys.stderr, flush=True)
    return _observation(pid=os.getpid(), session=os.getsid(0), group=os.getpgid(0))


def show_environment(cell: Cell, reporter: Reporter) -> Observation:
    """Write the environment into the evidence, to be looked at."""
    Path("environment.json").write_text(json.dumps(dict(os.environ)))
    return _observation()


def sleep_a_little(cell: Cell, reporter: Reporter) -> Observation:
    """Be under way for `seconds`, making progress; note each start in the file `log`."""
    if "log" in cell.model:
        with Path(cell.model["log"]).open("a") as file:
            file.write(f"{cell.key} {os.getpid()}\n")
    deadline = time.monotonic() + float(cell.model["seconds"])
    step = 0
    while time.monotonic() < deadline:
        reporter.progress(step := step + 1)
        time.sleep(0.05)
    return _observation()


def raise_error(cell: Cell, reporter: Reporter) -> Observation:
    """End with a traceback."""
    raise RuntimeError("the planted failure")


def raise_error_once(cell: Cell, reporter: Reporter) -> Observation:
    """End with a traceback in the first attempt only."""
    if Path.cwd().name == "attempt-0":
        raise RuntimeError("the planted failure")
    return _observation()


def leave_with_code(cell: Cell, reporter: Reporter) -> Observation:
    """Call sys.exit."""
    sys.exit(int(cell.model["code"]))


def leave_at_once(cell: Cell, reporter: Reporter) -> NoReturn:
    """Leave without a completion record and with the exit code of success."""
    os._exit(0)


def abort(cell: Cell, reporter: Reporter) -> NoReturn:
    """Die as a failed assertion in C does."""
    os.abort()


def overflow_the_stack(cell: Cell, reporter: Reporter) -> Observation:
    """Recurse until the stack ends."""
    sys.setrecursionlimit(10**9)

    def deeper(key: object) -> int:
        # Through C, where no Python limit counts.
        return len(sorted([0], key=deeper))

    return _observation(depth=deeper(0))


def kill_itself(cell: Cell, reporter: Reporter) -> Observation:
    """Die as by the kernel's OOM killer."""
    os.kill(os.getpid(), signal.SIGKILL)
    return _observation()


def wait_forever(cell: Cell, reporter: Reporter) -> NoReturn:
    """Make some progress, then none; say the own pid first."""
    Path("waiting.pid").write_text(str(os.getpid()))
    reporter.progress(1, 10)
    while True:
        time.sleep(60)


def wait_as_a_driver(cell: Cell, reporter: Reporter) -> NoReturn:
    """Be stuck beside a pipe; whoever writes to it gets the core `core`, and this aborts."""
    pipe, core = (Path(f"{name}{os.getpid()}") for name in ("corepipe_", "cuda_coredump_"))
    os.mkfifo(pipe)
    reporter.progress(1)
    with pipe.open("rb") as words:
        words.read(1)
    core.write_bytes(Path(cell.model["core"]).read_bytes())
    os.abort()


def wait_deaf(cell: Cell, reporter: Reporter) -> NoReturn:
    """Ignore every polite signal, and wait."""
    for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(signo, signal.SIG_IGN)
    wait_forever(cell, reporter)


def wait_with_heartbeat(cell: Cell, reporter: Reporter) -> NoReturn:
    """Be stuck while a thread repeats the last count."""

    def beat() -> None:
        while True:
            reporter.progress(1, 10)
            reporter.phase("start")
            time.sleep(0.05)

    threading.Thread(target=beat, daemon=True).start()
    wait_forever(cell, reporter)


def wait_while_chatting(cell: Cell, reporter: Reporter) -> NoReturn:
    """Be stuck while the log goes on for ever."""
    while True:
        os.write(1, b"still here\n" * 1000)


def wait_with_helpers(cell: Cell, reporter: Reporter) -> NoReturn:
    """Be stuck with a helper process that is stuck too."""
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path("helper.pid").write_text(str(helper.pid))
    wait_forever(cell, reporter)


def hang_at_exit(cell: Cell, reporter: Reporter) -> Observation:
    """Leave the completion record, and stay."""
    reporter.finish(_observation())
    wait_forever(cell, reporter)


def flood(cell: Cell, reporter: Reporter) -> Observation:
    """Write `mib` of log with no newline in it, between a first and a last word."""
    os.write(2, b"first word")
    block = b"x" * 2**20
    for done in range(int(cell.model["mib"])):
        view = memoryview(block)
        while view:
            view = view[os.write(2, view) :]
        reporter.progress(done, cell.model["mib"], "MiB")
    os.write(2, b"last word")
    return _observation()


def close_streams(cell: Cell, reporter: Reporter) -> Observation:
    """Go on without stdout and stderr."""
    os.close(1)
    os.close(2)
    time.sleep(0.3)
    return _observation()


def leave_a_helper(cell: Cell, reporter: Reporter) -> Observation:
    """Leave a process behind, in one of several disguises."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    disguise = cell.model["disguise"]
    if disguise == "plain":
        pid = subprocess.Popen(command).pid
    elif disguise == "no-environment":
        pid = subprocess.Popen(command, env={}).pid
    elif disguise == "daemon":
        pid = _daemon(command)
    else:
        pid = _daemon(None)
    return _observation(helper=pid)


def _daemon(command: list[str] | None) -> int:
    """A process of a session of its own whose parent has ended; forked only, or exec'd too."""
    reading, writing = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        if (second := os.fork()) == 0:
            if command is not None:
                os.execv(command[0], command)  # noqa: S606 - the point is that no shell is there
            time.sleep(600)
        os.write(writing, str(second).encode())
        os._exit(0)
    os.waitpid(first, 0)
    return int(os.read(reading, 100))


def leave_a_quick_helper(cell: Cell, reporter: Reporter) -> Observation:
    """Leave a helper that ends soon by itself, as multiprocessing's resource tracker does."""
    subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(0.2)"])
    return _observation()


def lie(cell: Cell, reporter: Reporter) -> Observation:
    """Leave a completion record that is none, and the exit code of success."""
    target = Path("observation.json")
    what = cell.model["what"]
    if what == "truncated":
        target.write_text(Observation().to_json()[:-10])
    elif what == "other-type":
        target.write_text('["all", "fine"]')
    elif what == "other-version":
        target.write_text('{"schema_version": 99}')
    elif what == "binary":
        target.write_bytes(bytes(range(256)))
    elif what == "link":
        outside = Path("../../../elsewhere.json")
        outside.write_text(Observation().to_json())
        target.symlink_to(outside.resolve())
    elif what == "pipe":
        os.mkfifo(target)
    elif what == "folder":
        target.mkdir()
    os._exit(0)


def babble(cell: Cell, reporter: Reporter) -> Observation:
    """Fill the events with what is no event, then go on as usual."""
    with Path("events.jsonl").open("ab") as events:
        events.write(b"\xff\xfe\n{}\n[1]\n" + b"y" * 300_000 + b"\n")
        events.write(b'{"event":"progress","t":NaN,"done":1e999}\n{"event":"phase","phase":"?"}\n')
    reporter.progress(1, 1, "real")
    return _observation()


def use_memory(cell: Cell, reporter: Reporter) -> Observation:
    """Hold 200 MiB for a moment, and die without a record."""
    block = bytearray(200 * 2**20)
    for at in range(0, len(block), 4096):
        block[at] = 1
    os._exit(3)


def fill_the_disk(cell: Cell, reporter: Reporter) -> Observation:
    """Write more log than the disk holds."""
    while True:
        os.write(1, b"x" * 65536)


def crash_in_c(cell: Cell, reporter: Reporter) -> Observation:
    """Read where nothing is."""
    ctypes.string_at(8)
    return _observation()


def kill_the_server(cell: Cell, reporter: Reporter) -> NoReturn:
    """Take the fork server along (the parent, of a forked child)."""
    os.kill(os.getppid(), signal.SIGKILL)
    wait_forever(cell, reporter)
