"""What a shard sends: each cell's evidence as soon as it is finished, and at the end the rest.

Owns: when evidence is sent and under which name. Must not know: how cells are run or judged.

A cell's folder is removed once it was stored. So what lies below `cells/` was not sent yet,
whoever finds it: this process at its end, `graphgate pipeline salvage` after its death, or
Buildkite's own `artifact_paths`.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from buildkite.agent import Agent, Job
from buildkite.parcel import pack
from buildkite.shards import Shard
from fixtures.cells.cell import CellKey
from fixtures.errors import InfraError
from fixtures.evidence.cellrun import CellRun
from fixtures.run.events import CellFinished, Note, RunEvent
from fixtures.run.outfolder import OutFolder

PARCELS = "shards"
"""Folder of all parcels among a build's artefacts: shards/SHARD/JOB/KEY.tar.gz below the name."""
SUFFIX = ".tar.gz"
UNFINISHED = ".unfinished"
"""In the name of what a cell left that has no ledger line."""

_SENT = ".sent-"


class Delivery:
    """Sends the evidence in `out` as that of one job of one shard.

    Args:
        agent: who stores it.
        name: the settings' name, first part of every artefact's path.
        shard: whose evidence it is.
        job: the job that runs the shard; a retry is another one.
        out: the output folder of the run.
    """

    def __init__(self, agent: Agent, name: str, shard: Shard, job: Job, out: Path) -> None:
        self._agent = agent
        self._prefix = f"{name}/{PARCELS}/{shard.name}/try{job.retry}-{job.id}"
        self._out = out
        self._keys = {str(key) for key in shard.cells}

    def along(self, events: Generator[RunEvent, None, None]) -> Generator[RunEvent, None, None]:
        """The events of a run, each finished cell's evidence sent before it is told of."""
        with closing(events):
            for event in events:
                if isinstance(event, CellFinished):
                    yield from self._deliver(event.run)
                yield event

    def rest(self) -> None:
        """Send all that was not sent: finished cells, what unfinished ones left, the logs.

        Raises:
            InfraError: something could not be stored; it is still in the folder.
        """
        if not self._out.exists():
            return
        folder = OutFolder(self._out)
        failures = []
        for path in _subfolders(self._out / "cells"):
            if path.name in self._keys:
                run = folder.ledger.last_run(CellKey.parse(path.name))
                mark = UNFINISHED if run is None else ""
                failures += self._sent(path, f"{path.name}{mark}{SUFFIX}", run)
        if (logs := self._out / "logs").exists():
            failures += self._sent(logs, f"logs{SUFFIX}", None)
        if failures:
            raise InfraError(f"evidence could not be stored: {failures[0]}")

    def _deliver(self, run: CellRun) -> Iterable[Note]:
        key = str(run.cell.key)
        # The next cells go on; `rest` tries again.
        why = self._sent(self._out / "cells" / key, f"{key}{SUFFIX}", run)
        return [Note(text=f"{key} was not stored yet: {reason}") for reason in why]

    def _sent(self, folder: Path, name: str, run: CellRun | None) -> list[str]:
        """Why the folder could not be sent; nothing where it was, and then it is gone."""
        path = f"{self._prefix}/{name}"
        try:
            with TemporaryDirectory(dir=self._out, prefix=".parcel-") as root:
                pack(folder, Path(root) / path, run)
                self._agent.upload(Path(root), path)
        except (OSError, InfraError) as error:
            return [str(error)]
        # In one step: whoever finds the folder after our death finds all of it, or nothing.
        gone = folder.rename(folder.with_name(f"{_SENT}{folder.name}"))
        shutil.rmtree(gone, ignore_errors=True)
        return []


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.exists() else []
