"""Stored evidence: the folders of one or more shards, merged and judged.

Owns: reading plan and ledger, merging shards, telling which runs count. Must not know:
processes. It reads files and writes none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

from fixtures.cells.cell import Cell, Plan
from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun
from fixtures.run.ledger import Ledger
from fixtures.run.outfolder import PLAN_FILE
from gates.decide import complete, decide
from gates.drift import Drift, drift_findings
from gates.files import NO_FILES, CellFiles, EvidenceFiles
from gates.judge import judge_cell
from gates.known import KnownIssue
from gates.policy import Policy
from gates.scores.family import share_alpha
from gates.verdict import Finding, Status, Verdict, Verdicts

LEDGER_FILE = "ledger.jsonl"
DRIFT_FILE = "drift.json"


class Evidence(NamedTuple):
    """What the folders hold together: one plan, the runs that count by key, drift, remarks.

    `files` are the evidence files that the runs name.
    """

    plan: Plan
    runs: Mapping[str, CellRun]
    drift: tuple[Finding, ...]
    notes: tuple[str, ...]
    files: CellFiles = NO_FILES


def judge_folder(
    dirs: Iterable[Path],
    policy: Policy,
    known: tuple[KnownIssue, ...],
    today: date,
) -> Verdicts:
    """The verdicts on the evidence in `dirs`, all shards of one run.

    Raises:
        ConfigError: a folder holds no readable plan, or the folders do not belong together.
    """
    return judge_evidence(read_evidence(dirs, policy), policy, known, today)


def judge_evidence(
    evidence: Evidence,
    policy: Policy,
    known: tuple[KnownIssue, ...],
    today: date,
) -> Verdicts:
    """The verdicts on evidence that was read before."""
    plan = evidence.plan
    verdicts = complete(plan, share_alpha(_judge_runs(evidence, policy, known, today)))
    return Verdicts(
        source=plan.source.identity,
        sweep=plan.sweep,
        verdicts=verdicts,
        findings=evidence.drift,
        notes=evidence.notes,
        decision=decide(plan, verdicts, evidence.drift, policy),
    )


def _judge_runs(
    evidence: Evidence, policy: Policy, known: tuple[KnownIssue, ...], today: date
) -> Iterable[Verdict]:
    runs = evidence.runs
    for run in runs.values():
        reference = runs.get(str(run.cell.reference)) if run.cell.reference else None
        yield judge_cell(run, reference, policy, known, today, evidence.files)


def read_evidence(dirs: Iterable[Path], policy: Policy) -> Evidence:
    """The evidence in `dirs`; their order does not matter.

    Raises:
        ConfigError: a folder holds no readable plan, or the folders do not belong together.
    """
    folders = sorted(set(dirs))
    plan = merge_plans([(folder, _read_plan(folder)) for folder in folders])
    cells = {str(cell.key): cell for cell in plan.cells}
    runs: dict[str, CellRun] = {}
    notes: list[str] = []
    files = EvidenceFiles(folders)
    for folder in folders:
        received, remarks = _read_shard(folder)
        notes += [f"{folder.name}: {remark}" for remark in remarks]
        for key, run in received.items():
            stranger = _why_not_counted(run, cells.get(key), plan)
            if stranger:
                notes.append(f"{folder.name}: the run of {key} does not count: {stranger}")
            elif key in runs:
                runs[key] = _more_telling(runs[key], run, policy, files)
                notes.append(f"{key} was run in more than one shard; the more telling run counts")
            else:
                runs[key] = run
    return Evidence(plan, runs, _read_drift(folders, plan), tuple(notes), files)


def _read_drift(folders: Iterable[Path], plan: Plan) -> tuple[Finding, ...]:
    """What changed in the capture contract, where a shard recorded it."""
    found: dict[Finding, None] = {}
    for path in (folder / DRIFT_FILE for folder in folders):
        if path.exists():
            drift = Drift.read_json(path)
            if drift.new.identity != plan.source.identity:
                raise ConfigError(
                    f"is about {drift.new.identity}, the plan about {plan.source.identity}",
                    source=path,
                    key="new.identity",
                    remedy="record the drift of the tree that is tested",
                )
            found |= dict.fromkeys(drift_findings(drift))
    return tuple(found)


def _read_plan(folder: Path) -> Plan:
    if not (folder / PLAN_FILE).exists():
        raise ConfigError(
            f"holds no {PLAN_FILE}", source=folder, remedy="name the output folder of a run"
        )
    return Plan.read_json(folder / PLAN_FILE)


def merge_plans(plans: list[tuple[Path, Plan]]) -> Plan:
    """One plan of all cells of `plans`, which must test one source in one sweep.

    Raises:
        ConfigError: there is no plan, or the plans do not belong together.
    """
    if not plans:
        raise ConfigError("no folder of evidence was given", remedy="name the OUT of a run")
    (first_folder, first), *others = plans
    cells = {str(cell.key): cell for cell in first.cells}
    for folder, plan in others:
        _require_equal(folder, "source", plan.source.identity, first.source.identity, first_folder)
        _require_equal(folder, "sweep", plan.sweep, first.sweep, first_folder)
        for cell in plan.cells:
            if cells.setdefault(str(cell.key), cell) != cell:
                raise _mismatch(folder, "cells", f"{cell.key} is planned differently", first_folder)
    every = [plan for _, plan in plans]
    return first.model_copy(
        update={
            "cells": tuple(cells.values()),
            "omissions": tuple(dict.fromkeys(o for plan in every for o in plan.omissions)),
            "hardware_tiers_due": tuple(
                sorted({model for plan in every for model in plan.hardware_tiers_due})
            ),
        }
    )


def _require_equal(folder: Path, key: str, value: str, wanted: str, first: Path) -> None:
    if value != wanted:
        raise _mismatch(folder, key, f"{value} is not {wanted}", first)


def _mismatch(folder: Path, key: str, problem: str, first: Path) -> ConfigError:
    return ConfigError(
        f"{problem}, as in {first.name}",
        source=folder / PLAN_FILE,
        key=key,
        remedy="judge only the shards of one run together",
    )


def _read_shard(folder: Path) -> tuple[dict[str, CellRun], list[str]]:
    """The latest run of each cell in one ledger; an absent ledger is an empty one."""
    ledger = folder / LEDGER_FILE
    if not ledger.exists():
        return {}, [f"no {LEDGER_FILE}: no cell of this shard has run"]
    try:
        contents = Ledger(ledger).read()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error}", source=ledger) from error
    runs = {str(run.cell.key): run for run in contents.runs}
    counts = Counter(str(run.cell.key) for run in contents.runs)
    notes = [
        f"{LEDGER_FILE}, line {problem.line} is left out: {problem.why}"
        for problem in contents.problems
    ]
    notes += [
        f"{key} was run {count} times; the latest run counts"
        for key, count in counts.items()
        if count > 1
    ]
    return runs, notes


def _why_not_counted(run: CellRun, planned: Cell | None, plan: Plan) -> str | None:
    """Why a run is no evidence for this plan, or None if it is."""
    if planned is None:
        return "it was not planned"
    if run.provenance.source != plan.source.identity:
        return f"it tested {run.provenance.source}, not {plan.source.identity}"
    if run.cell != planned:
        return "its cell differs from the planned one"
    return None


def _more_telling(one: CellRun, other: CellRun, policy: Policy, files: CellFiles) -> CellRun:
    """Of two shards' runs of a cell: one that says something, then the worse.

    Shards carry no clock to go by, and their order must not matter.
    """

    def weight(run: CellRun) -> tuple[bool, int, str]:
        status = judge_cell(run, None, policy, (), date.max, files).status
        return status in (Status.INFRA, Status.MISSING), status.rank, run.to_json(indent=None)

    return min(one, other, key=weight)
