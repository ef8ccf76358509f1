"""Children of the stand-in night: each hands out a recorded observation, or plays its part.

Run in processes of their own through the entry `suites.selftest.standin.children:replay`. The
folder `$STANDIN_NIGHT` holds the observations by cell key, and for some cells a part to play.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from fixtures.cells.cell import Cell
from fixtures.child.report import Reporter
from fixtures.evidence.cellrun import Observation

ENTRY = "suites.selftest.standin.children:replay"
NIGHT_VARIABLE = "STANDIN_NIGHT"
SICK = "sick"
"""In the name of an agent whose node fails at every cell."""


def replay(cell: Cell, reporter: Reporter) -> Observation:
    """What was recorded for this cell; or what its part asks for."""
    folder = Path(os.environ[NIGHT_VARIABLE])
    part = folder / f"{cell.key}.part"
    reporter.progress(1, 2, "steps")
    if SICK in os.environ["TMPDIR"]:
        raise RuntimeError("CUDA error: no CUDA-capable device is detected")
    if part.exists():
        _play(part)
    Path("variables.txt").write_text("\n".join(os.environ))
    Path("core.1234").write_bytes(b"not much of a core")
    return Observation.model_validate_json((folder / f"{cell.key}.json").read_bytes())


def _play(part: Path) -> None:
    """Kill the process that runs the shard, or the whole job with it, the first time."""
    what = part.read_text()
    runner = _parent_of(os.getppid())  # the parent of the fork server
    if what == "kill-runner":
        os.kill(runner, signal.SIGKILL)
        time.sleep(60)
    if what == "lose-agent-once":
        part.unlink()
        shell = _parent_of(runner)
        os.kill(shell, signal.SIGKILL)
        os.kill(runner, signal.SIGKILL)
        time.sleep(60)


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
