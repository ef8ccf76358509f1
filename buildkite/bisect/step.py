"""One step: the hunted cell of one revision, run and judged, with its evidence kept.

Owns: the plan of a step, its folder and its cached verdict. Must not know: which revision comes
next, and what the verdict says about the hunt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from datetime import date
from pathlib import Path

from fixtures.cells.assembly import assemble
from fixtures.cells.axes import Tier
from fixtures.cells.cell import Cell, CellKey, Deadlines, Plan, Source
from fixtures.cells.machine import probe_machine
from fixtures.cells.models import DEFAULT_VARIANT
from fixtures.cells.sweeps import Catalog, known
from fixtures.cells.tiers import obstacle
from fixtures.errors import ConfigError, InfraError
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.crash import CrashReport
from fixtures.run.events import RunEvent
from fixtures.run.runner import run_plan
from fixtures.schema import SCHEMA_VERSION, Record
from fixtures.source.environment import child_environment
from fixtures.source.progress import Progress
from gates.evidence import judge_evidence, read_evidence
from gates.policy import read_policy
from gates.verdict import Finding, Gate, Status, Verdict
from reports.files import write_whole

Follow = Callable[[Generator[RunEvent, None, None], int], Sequence[CellRun]]
"""Consumes the events of a run of so many cells, and shows them."""

STEP_FILE = "step.json"
_SWEEP = "bisect"


class RevisionVerdict(Record):
    """The file step.json: the verdict on the hunted cell of one revision."""

    schema_version: int = SCHEMA_VERSION
    revision: str
    source: Source | None = None
    cell: Cell | None = None
    verdict: Verdict
    crash: CrashReport | None = None
    seconds: float


class Tester:
    """Tests the cell `key` of any vLLM, in a folder a revision below `out`.

    Args:
        key: the cell, of any model, variant and tier that the catalogue has.
        catalog: the models.
        out: where evidence goes; a verdict that lies there is not made again.
        progress: shows slow steps, as a download.
        follow: shows a run.

    Raises:
        ConfigError: there is no such cell.
    """

    def __init__(
        self, key: CellKey, catalog: Catalog, out: Path, progress: Progress, follow: Follow
    ) -> None:
        self.key, self._catalog, self._out = key, catalog, out
        self._progress, self._follow = progress, follow
        self._spec = catalog.model(key.model)
        known(key.variant or DEFAULT_VARIANT, self._spec.variants, "variant", "--cell")
        if not self._spec.has(key.tier):
            raise ConfigError(
                f"{key.model} has no {key.tier} tier", source="--cell", remedy="take another tier"
            )

    def test(self, revision: str, find: Callable[[], Source]) -> RevisionVerdict:
        """The verdict on the vLLM that `find` gives; `revision` also names its folder.

        What keeps a revision from being tested (no such model yet, a wheel that can't be had)
        is a verdict too: CONFIG or INFRA.
        """
        began = time.monotonic()
        try:
            source = find()
            cells = self._cells(source)
        except (ConfigError, InfraError) as error:
            return _untested(revision, self.key, error)
        folder = self._out / revision
        stored = _stored(folder / STEP_FILE, source, cells[-1])
        if stored is not None:
            return stored
        tested = self._run(revision, source, cells, folder)
        tested = tested.model_copy(update={"seconds": round(time.monotonic() - began, 1)})
        write_whole(folder / STEP_FILE, tested.to_json().encode())
        return tested

    def _cells(self, source: Source) -> tuple[Cell, ...]:
        """The reference, where there is one, then the cell itself."""
        if not self._spec.exists_in(source.version):
            raise ConfigError(f"vLLM {source.version} has no {self._spec.name}")
        if self.key.tier is not Tier.CONTRACT:
            reason = obstacle(self.key.tier, probe_machine(), source)
            if reason is not None:
                raise InfraError(f"the {self.key.tier} tier can't run here: {reason}")
        cell = self._assembled(self.key, source)
        if cell.reference is None:
            return (cell,)
        return self._assembled(cell.reference, source), cell

    def _assembled(self, key: CellKey, source: Source) -> Cell:
        engine = self._catalog.canary_engine
        return assemble(key, self._spec, engine, Deadlines(), source.version)

    def _run(
        self, revision: str, source: Source, cells: tuple[Cell, ...], folder: Path
    ) -> RevisionVerdict:
        plan = Plan(source=source, sweep=_SWEEP, cells=cells)
        environment = child_environment(source, self._progress)
        runs = self._follow(run_plan(plan, folder, environment), len(cells))
        policy = read_policy()
        # No known issues: an excuse that expires on the way would look like a change.
        judged = judge_evidence(read_evidence([folder], policy), policy, (), date.today())
        verdict = next(one for one in judged.verdicts if one.key == self.key)
        crash = next((run.crash for run in runs if run.cell.key == self.key), None)
        return RevisionVerdict(
            revision=revision,
            source=source,
            cell=cells[-1],
            verdict=verdict,
            crash=crash,
            seconds=0.0,
        )


def _untested(revision: str, key: CellKey, error: ConfigError | InfraError) -> RevisionVerdict:
    status = Status.CONFIG if isinstance(error, ConfigError) else Status.INFRA
    finding = Finding(gate=Gate.LIVENESS, check="started", status=status, why=str(error))
    verdict = Verdict(key=key, status=status, findings=(finding,), attempts=0)
    return RevisionVerdict(revision=revision, verdict=verdict, seconds=0.0)


def _stored(path: Path, source: Source, cell: Cell) -> RevisionVerdict | None:
    """The verdict of an earlier step on the same tree and cell; one of a sick node counts not."""
    try:
        tested = RevisionVerdict.read_json(path)
    except ConfigError:
        return None
    same = tested.cell == cell and tested.source and tested.source.identity == source.identity
    return tested if same and tested.verdict.status is not Status.INFRA else None
