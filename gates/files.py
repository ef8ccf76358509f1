"""Files of evidence that are too big for the ledger, as gates ask for them.

Owns: where a run's files lie in the folders of a run's shards. Must not know: what is in them
beyond their types, or what a gate makes of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from fixtures.errors import ConfigError
from fixtures.evidence.audit import AUDIT_FILE, CaptureAudit, read_audit
from fixtures.evidence.cellrun import CellRun, EvidenceFile
from fixtures.evidence.outputs import Outputs, read_outputs
from fixtures.evidence.samples import Samples, read_samples


class CellFiles(Protocol):
    """The files that a run's observation names; None where it names none.

    An audit is there without an observation too, where the engine died after its captures.

    Raises:
        ConfigError: the file is missing, was changed, or cannot be read.
    """

    def samples(self, run: CellRun) -> Samples | None:
        """The answers to questions that the run recorded."""

    def outputs(self, run: CellRun) -> Outputs | None:
        """What the run's engine wrote for the workload."""

    def graphs(self, run: CellRun) -> CaptureAudit | None:
        """What the run's capture audit recorded."""


class NoFiles:
    """For runs that are judged away from their folders."""

    def samples(self, run: CellRun) -> Samples | None:
        """Nothing, unless the run recorded what is not at hand here."""
        if run.observation is not None and run.observation.samples is not None:
            raise ConfigError("is not at hand", source=run.observation.samples.file)
        return None

    def outputs(self, run: CellRun) -> Outputs | None:
        """Nothing, unless the run recorded what is not at hand here."""
        if run.observation is not None and run.observation.outputs is not None:
            raise ConfigError("is not at hand", source=run.observation.outputs.file)
        return None

    def graphs(self, run: CellRun) -> CaptureAudit | None:
        """Nothing, unless the run recorded what is not at hand here."""
        if run.observation is not None and run.observation.graphs is not None:
            raise ConfigError("is not at hand", source=run.observation.graphs.file)
        return None


NO_FILES = NoFiles()


class EvidenceFiles:
    """The files in OUT folders: a run's lie beside its last attempt."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)
        self._samples: dict[str, Samples] = {}
        self._outputs: dict[str, Outputs] = {}
        self._graphs: dict[str, CaptureAudit] = {}

    def samples(self, run: CellRun) -> Samples | None:
        """The answers to questions; each file is read once."""
        file = run.observation.samples if run.observation is not None else None
        if file is None:
            return None
        if file.sha256 not in self._samples:
            self._samples[file.sha256] = read_samples(self._attempt(run, file), file)
        return self._samples[file.sha256]

    def outputs(self, run: CellRun) -> Outputs | None:
        """What the engine wrote for the workload; each file is read once."""
        file = run.observation.outputs if run.observation is not None else None
        if file is None:
            return None
        if file.sha256 not in self._outputs:
            self._outputs[file.sha256] = read_outputs(self._attempt(run, file), file)
        return self._outputs[file.sha256]

    def graphs(self, run: CellRun) -> CaptureAudit | None:
        """What the capture audit recorded; each file is read once.

        An engine that died left what was known before its first replay.
        """
        file = run.observation.graphs if run.observation is not None else _left_behind(run)
        if file is None:
            return None
        if file.sha256 not in self._graphs:
            self._graphs[file.sha256] = read_audit(self._attempt(run, file), file)
        return self._graphs[file.sha256]

    def _attempt(self, run: CellRun, file: EvidenceFile) -> Path:
        """The folder of the attempt that holds the file, in whichever shard ran the cell.

        Where several shards ran it, their files differ, and the digest tells which is meant.
        """
        last = run.attempts[-1].index if run.attempts else 0
        places = [
            folder / "cells" / str(run.cell.key) / f"attempt-{last}" for folder in self._folders
        ]
        found = [place for place in places if (place / file.file).is_file()]
        for place in found:
            if hashlib.sha256((place / file.file).read_bytes()).hexdigest() == file.sha256:
                return place
        if not found:
            raise ConfigError(
                f"is missing in attempt-{last} of {run.cell.key}",
                source=file.file,
                remedy="judge the whole output folder, with its cells",
            )
        return found[0]


def _left_behind(run: CellRun) -> EvidenceFile | None:
    """The audit in the last attempt's folder, by the list that the supervisor made of it."""
    found = (one for attempt in run.attempts[-1:] for one in attempt.artifacts)
    digest = next((one.sha256 for one in found if one.path == AUDIT_FILE), None)
    return EvidenceFile(file=AUDIT_FILE, sha256=digest) if digest else None
