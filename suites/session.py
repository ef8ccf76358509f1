"""One pytest session over the cells of a tier: the plan, and each cell's verdict once.

Owns: how the processes of a session share one OUT. Must not know: pytest's items.
Verdicts come from the same runner and the same judge as the command line's.
"""

from __future__ import annotations

from datetime import date
from functools import cached_property
from pathlib import Path
from uuid import uuid4

from filelock import FileLock

from fixtures.cells.axes import Tier
from fixtures.cells.cell import CellKey, Plan
from fixtures.cells.machine import probe_machine
from fixtures.cells.planner import plan
from fixtures.cells.request import PlanRequest
from fixtures.cells.sweeps import load_catalog
from fixtures.cells.tiers import no_hopper
from fixtures.errors import InfraError
from fixtures.run.environment import ChildEnvironment
from fixtures.run.outfolder import OutFolder
from fixtures.run.runner import run_cell_once
from fixtures.source.environment import child_environment
from fixtures.source.resolve import resolve
from gates.files import EvidenceFiles
from gates.judge import judge_cell
from gates.known import read_known_issues
from gates.policy import read_policy
from gates.verdict import Verdict

_NOTE = ".pytest-session"


class NoHopperError(InfraError):
    """The machine has no Hopper GPU, whole or broken: no test of kernels could be meant for it."""


def tier_plan(tier: Tier, vllm: str | None, sweep: str) -> Plan:
    """The cells of a tier in a sweep. Raises what the planner and the resolver raise.

    The machine is looked at before a release is fetched.

    Raises:
        NoHopperError: the tier needs a Hopper GPU, and there is none.
    """
    request, machine = PlanRequest(sweep=sweep, tiers=(tier,)), probe_machine()
    missing = None if tier is Tier.CONTRACT else no_hopper(machine)
    if missing:
        raise NoHopperError(f"--tier {tier}: not available here: {missing}")
    return plan(request, resolve(vllm), machine, load_catalog())


class CellSession:
    """The cells of one pytest session.

    Args:
        planned: what may be run.
        out: the folder for evidence, shared by all processes of the session.
        session_id: equal in those processes and nowhere else; None where there is one process.
    """

    def __init__(self, planned: Plan, out: Path, session_id: str | None) -> None:
        self._plan = planned
        self._out = out
        self._session_id = session_id or uuid4().hex
        self._verdicts: dict[CellKey, Verdict] = {}
        self._ready = False

    def verdict(self, key: CellKey) -> Verdict:
        """The verdict on a cell, which runs first unless some process of the session ran it."""
        if not self._ready:
            self._prepare()
        if key not in self._verdicts:
            self._verdicts[key] = self._judged(key)
        return self._verdicts[key]

    def _judged(self, key: CellKey) -> Verdict:
        run = run_cell_once(self._plan, key, self._out, self._environment)
        reference = (
            run_cell_once(self._plan, run.cell.reference, self._out, self._environment)
            if run.cell.reference
            else None
        )
        known, files = read_known_issues(), EvidenceFiles([self._out])
        return judge_cell(run, reference, read_policy(), known, date.today(), files)

    @cached_property
    def _environment(self) -> ChildEnvironment:
        return child_environment(self._plan.source)

    def _prepare(self) -> None:
        """The first process of the session begins a fresh OUT, the others join it."""
        folder = OutFolder(self._out)
        note = self._out / _NOTE
        with FileLock(self._out / f"{_NOTE}.lock"):
            if note.exists() and note.read_text(encoding="utf-8") == self._session_id:
                folder.join(self._plan)
            else:
                with folder.held():
                    folder.begin(self._plan)
                note.write_text(self._session_id, encoding="utf-8")
        self._ready = True
