"""A parcel: the evidence of one cell in one file, as it travels from its shard to the judge.

Owns: packing, and unpacking against the digests that the cell's run lists. Must not know:
how parcels travel, and what the evidence means.

Names and sizes in a parcel were chosen by a child that may be hostile: only regular files that
the run lists are unpacked, below the folder that is given, at the length that is listed.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from pydantic import ValidationError

from fixtures.cells.spec import ATTEMPT_FILE
from fixtures.evidence.cellrun import Artifact, CellRun

RUN_FILE = "run.json"
_LARGEST_RUN = 512 * 2**20
"""Bytes. An observation has at most 256 MiB, and a run holds one."""
_BLOCK = 2**20
_OUR_TROUBLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS})
"""Errors of this machine's disk. Any other (a name too long, a file twice) is the parcel's."""


class DamagedParcelError(Exception):
    """The parcel is not what its shard packed; the text says how."""


def pack(folder: Path, target: Path, run: CellRun | None = None) -> None:
    """Write the regular files below `folder`, and `run` where the cell was finished.

    Raises:
        OSError: the parcel can't be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:gz", compresslevel=3, format=tarfile.PAX_FORMAT) as archive:
        if run is not None:
            _add(archive, RUN_FILE, run.to_json(indent=None).encode())
        for path in _regular_files(folder):
            name = str(path.relative_to(folder)).encode("utf-8", "backslashreplace").decode()
            with path.open("rb") as file:
                archive.addfile(_header(name, path.stat().st_size), file)


def unpack(parcel: Path, folder: Path) -> CellRun:
    """Put the evidence of a finished cell below `folder`, and hand back its run.

    Every file that the run lists must be there, with its length and SHA-256. What the run does
    not list stays in the parcel. A damaged parcel leaves nothing in `folder`.

    Raises:
        DamagedParcelError: a file is missing or another one, or this is no parcel.
        OSError: the evidence can't be written.
    """
    try:
        with gzip.open(parcel) as stream:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                run = _run_in(archive)
                _unpack_listed(archive, run, folder)
            # At its very end stands the checksum that covers the run's own record too.
            while stream.read(_BLOCK):
                pass
            return run
    except (tarfile.TarError, zlib.error, EOFError, ValueError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in _OUR_TROUBLE:
            raise
        raise DamagedParcelError(f"it can't be unpacked: {error}") from error
    except DamagedParcelError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _run_in(archive: tarfile.TarFile) -> CellRun:
    first = archive.next()
    if first is None or first.name != RUN_FILE or not first.isreg() or first.size > _LARGEST_RUN:
        raise DamagedParcelError(f"it does not begin with {RUN_FILE}")
    file = archive.extractfile(first)
    try:
        return CellRun.model_validate_json(file.read() if file else b"")
    except ValidationError as error:
        raise DamagedParcelError(f"its {RUN_FILE} is invalid") from error


def _unpack_listed(archive: tarfile.TarFile, run: CellRun, folder: Path) -> None:
    listed = _listed(run)
    records = {f"attempt-{attempt.index}/{ATTEMPT_FILE}" for attempt in run.attempts}
    for member in archive:
        artifact = listed.pop(member.name, None)
        if artifact is not None or member.name in records:
            file = archive.extractfile(member) if member.isreg() else None
            if file is None:
                raise DamagedParcelError(f"{member.name} is no regular file")
            if artifact is not None and member.size != artifact.bytes:
                raise DamagedParcelError(
                    f"{member.name} has {member.size} bytes, not {artifact.bytes} as listed"
                )
            digest = _write(file, folder / member.name)
            if artifact is not None and digest != artifact.sha256:
                raise DamagedParcelError(f"{member.name} has another SHA-256 than is listed")
    if listed:
        raise DamagedParcelError(f"{min(listed)} is listed and not there")


def _listed(run: CellRun) -> dict[str, Artifact]:
    """The artifacts of all attempts by their path in the cell's folder."""
    found: dict[str, Artifact] = {}
    for attempt in run.attempts:
        for artifact in attempt.artifacts:
            inside = PurePosixPath(artifact.path)
            if inside.is_absolute() or ".." in inside.parts or not inside.parts:
                raise DamagedParcelError(f"it lists {artifact.path!r}, which is outside of it")
            found[f"attempt-{attempt.index}/{inside}"] = artifact
    return found


def _write(file: IO[bytes], target: Path) -> str:
    """Copy a file to where none is yet, and say its SHA-256."""
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as out:
        while block := file.read(_BLOCK):
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def _regular_files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, followlinks=False):
        folders.sort()
        for name in sorted(names):
            path = Path(parent) / name
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    archive.addfile(_header(name, len(data)), io.BytesIO(data))


def _header(name: str, size: int) -> tarfile.TarInfo:
    """Owner, time and mode say nothing, so equal evidence makes equal headers."""
    header = tarfile.TarInfo(name)
    header.size = size
    return header
