"""The parcels of all shards, checked and laid out as folders that `gates.evidence` reads.

Owns: which parcels count. Must not know: what the evidence means; a cell without a parcel that
counts has no ledger line, and the judge finds it missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from buildkite.delivery import PARCELS, SUFFIX, UNFINISHED
from buildkite.parcel import DamagedParcelError, unpack
from buildkite.shards import Schedule, Shard
from fixtures.cells.cell import CellKey
from fixtures.evidence.crash import CrashKind
from fixtures.run.ledger import Ledger
from fixtures.run.outfolder import PLAN_FILE
from gates.evidence import DRIFT_FILE, LEDGER_FILE

_JOB = re.compile(r"^try\d{1,3}-[a-z0-9][a-z0-9_-]{0,62}$")


class Collected(NamedTuple):
    """A folder of evidence per job that delivered, and per shard of which none did; remarks."""

    folders: tuple[Path, ...]
    notes: tuple[str, ...]


class _Parcel(NamedTuple):
    shard: Shard
    job: str
    key: str
    path: Path


def collect(schedule: Schedule, downloads: Path, into: Path) -> Collected:
    """Lay out below `into` what was downloaded to `downloads`, in the order of names.

    A parcel that is damaged, or of a cell that its shard was not given, does not count.

    Raises:
        OSError: `into` cannot be written.
    """
    notes: list[str] = []
    folders: dict[str, Path] = {}
    for parcel in _parcels(schedule, downloads, notes):
        name = f"{parcel.shard.name}.{parcel.job}"
        if name not in folders:
            folders[name] = _folder(schedule, parcel.shard, into / name)
        folder = folders[name]
        try:
            run = unpack(parcel.path, folder / "cells" / parcel.key)
            if str(run.cell.key) != parcel.key:
                raise DamagedParcelError(f"it holds a run of {run.cell.key}")
        except DamagedParcelError as error:
            notes.append(f"{name}: the parcel of {parcel.key} does not count: {error}")
            continue
        Ledger(folder / LEDGER_FILE).append(run)
    delivered = {name.partition(".")[0] for name in folders}
    for shard in schedule.shards:
        if shard.name not in delivered:
            folders[shard.name] = _folder(schedule, shard, into / shard.name)
    _keep_drift(schedule, folders)
    return Collected(tuple(folders.values()), tuple(notes))


def settled(schedule: Schedule, downloads: Path, into: Path) -> set[str]:
    """Keys of the cells whose evidence is there and is no failure of a node.

    A retry leaves them alone: only what a node did is tried again.
    """
    collected = collect(schedule, downloads, into)
    ledgers = [Ledger(folder / LEDGER_FILE).read() for folder in collected.folders]
    return {
        str(run.cell.key)
        for ledger in ledgers
        for run in ledger.runs
        if run.crash is None or run.crash.kind is not CrashKind.INFRA
    }


def _parcels(schedule: Schedule, downloads: Path, notes: list[str]) -> Iterator[_Parcel]:
    shards = {shard.name: shard for shard in schedule.shards}
    root = downloads / schedule.settings.name / PARCELS
    for path in sorted(root.glob(f"*/*/*{SUFFIX}")):
        shard, job = shards.get(path.parent.parent.name), path.parent.name
        key = path.name.removesuffix(SUFFIX)
        if key == "logs" or key.endswith(UNFINISHED):
            continue  # for people; they stay where they are
        if shard is None or not _JOB.match(job) or key not in {str(k) for k in shard.cells}:
            notes.append(f"an artefact that no shard of this plan sends was left out: {key[:200]}")
        else:
            yield _Parcel(shard, job, str(CellKey.parse(key)), path)


def _folder(schedule: Schedule, shard: Shard, path: Path) -> Path:
    """A folder of evidence with the shard's part of the plan, which is the schedule's word."""
    path.mkdir(parents=True, exist_ok=True)
    (path / PLAN_FILE).write_text(schedule.part(shard.cells).to_json(), encoding="utf-8")
    return path


def _keep_drift(schedule: Schedule, folders: dict[str, Path]) -> None:
    if schedule.drift is not None and folders:
        first = folders[min(folders)]
        (first / DRIFT_FILE).write_text(schedule.drift.to_json(), encoding="utf-8")
