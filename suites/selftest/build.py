"""Cells, runs and plans for tests and benchmarks, made through the public types.

Owns: healthy defaults, so that a test states only what is special in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fixtures.cells.axes import GraphMode, Tier
from fixtures.cells.cell import Cell, CellKey, Plan, Resolution, Source
from fixtures.evidence.cellrun import Attempt, CellRun, Engagement, Observation, Provenance
from fixtures.evidence.crash import CrashKind, CrashReport, Frame
from fixtures.evidence.exits import Exit, Exited

SOURCE = Source(
    kind="release", request="0.26.0", version="0.26.0", identity="vllm-0.26.0", python_path="src"
)


def a_cell(key: str = "dsv4.FULL.bk0.contract", *, expected: str | None = None) -> Cell:
    """A planned cell; without `expected` its mode resolves to itself."""
    parsed = CellKey.parse(key)
    mode = GraphMode(expected) if expected else parsed.mode
    reference = None
    if parsed.mode is not GraphMode.NONE:
        reference = parsed.model_copy(update={"mode": GraphMode.NONE})
    return Cell(
        key=parsed,
        model={"name": parsed.model},
        expected=Resolution(mode=mode, reason="what the YAML says"),
        reference=reference,
    )


def an_engagement(cell: Cell, **changes: Any) -> Engagement:
    """What a worker reports that did as the cell's YAML expects."""
    eager = cell.expected.mode is GraphMode.NONE
    count = 0 if eager else 11
    fields: dict[str, Any] = {
        "requested": cell.key.mode,
        "effective": cell.expected.mode,
        "planned": count,
        "captured": count,
        "replayed": count,
        "graphs": count,
        "eager_breaks": 0,
        "compiled": False,
    }
    if cell.key.tier is Tier.CANARY:
        fields["processes"] = ("frontend", "core", "worker-0")
    return Engagement(**{**fields, **changes})


def a_crash(kind: str = "REG", title: str = "illegal memory access") -> CrashReport:
    """What triage says about a dead child."""
    return CrashReport(
        title=title,
        kind=CrashKind(kind),
        frame=Frame(function="gather_rows", file="kernels.cu", line=42),
        excerpt="CUDA error: an illegal memory access was encountered",
        sources=("log",),
    )


def an_attempt(
    exit_: Exit | None = None,
    *,
    index: int = 0,
    crash: CrashReport | None = None,
    **changes: Any,
) -> Attempt:
    """An attempt that ended well, unless told otherwise."""
    return Attempt(
        index=index,
        exit=exit_ or Exited(code=0),
        phase="exit",
        timings={"start": 1.0, "work": 2.5},
        crash=crash,
        **changes,
    )


_UNSET: Any = object()


def a_run(
    cell: Cell | None = None,
    *,
    attempts: tuple[Attempt, ...] | None = None,
    observation: Observation | None = _UNSET,
    crash: CrashReport | None = None,
    source: str = SOURCE.identity,
) -> CellRun:
    """A run that did all that its cell asks for, unless told otherwise."""
    cell = cell or a_cell()
    if observation is _UNSET:
        observation = Observation(engagement=an_engagement(cell))
    return CellRun(
        cell=cell,
        attempts=(an_attempt(),) if attempts is None else attempts,
        crash=crash,
        observation=observation,
        provenance=Provenance(vllm="0.26.0", source=source, torch="2.13.0"),
    )


def a_plan(*cells: Cell, **changes: Any) -> Plan:
    """A plan of `cells`."""
    return Plan(**{"source": SOURCE, "sweep": "pr", "cells": cells, **changes})


def write_shard(folder: Path, plan: Plan, runs: list[CellRun] | None) -> Path:
    """An OUT folder with a plan and, unless `runs` is None, a ledger."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    if runs is not None:
        lines = "".join(f"{run.to_json(indent=None)}\n" for run in runs)
        (folder / "ledger.jsonl").write_text(lines, encoding="utf-8")
    return folder
