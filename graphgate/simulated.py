"""A score tier's night without a model: simulated answers, for the demo and for tests of scores.

Owns the simulation of two arms by the model in gates/scores/power.py, and the figures of the
demo's night. What is shown says that no model ran.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import Cell, CellKey, Plan, Resolution
from fixtures.evidence.cellrun import Attempt, CellRun, Engagement, Observation, Provenance
from fixtures.evidence.exits import Exited
from fixtures.evidence.samples import (
    DatasetId,
    Outcome,
    Protocol,
    Sample,
    Samples,
    TaskSamples,
    documents_digest,
    write_samples,
)
from fixtures.run.outfolder import PLAN_FILE, OutFolder
from gates.scores.power import Design, rates
from graphgate.zoo import SOURCE

Bools = Any
"""An array of truth values (numpy is Any to the type checker here)."""

GSM8K = Design(n=1319, score=0.954, discordance=0.02)
AIME25 = Design(n=30, score=0.942, discordance=0.05, repeats=4)
PROTOCOL = Protocol(
    template="question-answer",
    shots=5,
    token_cap=256,
    metric="exact_match,flexible-extract",
    filters=("regex", "take_first"),
    thinking=None,
    seed=0,
    temperature=0.0,
    lm_eval="0.4.9",
    task_sha256="a" * 64,
)
"""Five shots, greedy, as for gsm8k."""
_SICK = {"gsm8k": 0.954 - 0.169, "aime25": 0.942}
"""The drops that the repair of FlashMLA's planning in FULL graphs was published with."""
_HEALTHY: dict[str, float] = {"gsm8k": 0.0, "aime25": 0.0}
_SEED = 49_364
_DROPS = {
    GraphMode.NONE: _HEALTHY,
    GraphMode.PIECEWISE: _HEALTHY,
    GraphMode.FULL: _SICK,
    GraphMode.FULL_DECODE_ONLY: {"gsm8k": 0.02, "aime25": 0.0},
}


def two_arms(design: Design, drop: float, random: np.random.Generator) -> tuple[Bools, Bools]:
    """Answers of the reference and of the arm that is tested; shape: questions x repeats."""
    lost, won = rates(design, drop)
    shape = (design.n, design.repeats)
    before = random.random(shape) < design.score
    dice = random.random(shape)
    losing = before & (dice < lost / design.score)
    winning = ~before & (dice < won / max(1 - design.score, 1e-12))
    return before, (before & ~losing) | winning


def doc_hash(doc: int, edition: str = "test") -> str:
    """The hash of a made-up document."""
    return hashlib.sha256(f"{edition} {doc}".encode()).hexdigest()


def made_up_dataset(count: int, edition: str = "test") -> DatasetId:
    """`count` made-up documents."""
    digest = documents_digest(tuple(doc_hash(doc, edition) for doc in range(count)))
    return DatasetId(name="made-up/questions", split="test", documents=count, sha256=digest)


def answer(doc: int, correct: bool | None, repeat: int = 0) -> Sample:
    """One answer; `correct` None is one that could not be parsed."""
    return Sample(
        doc_id=doc,
        doc_hash=doc_hash(doc),
        repeat=repeat,
        outcome=Outcome.UNPARSABLE if correct is None else Outcome.ANSWERED,
        correct=correct,
        length=80,
    )


def answered(correct: Sequence[Any] | Bools, task: str) -> TaskSamples:
    """A whole task from its answers: one per question, or questions x repeats."""
    table = np.asarray(correct, dtype=object)
    table = table.reshape(len(table), -1)
    return TaskSamples(
        task=task,
        protocol=PROTOCOL,
        dataset=made_up_dataset(len(table)),
        repeats=table.shape[1],
        samples=tuple(
            answer(doc, None if value is None else bool(value), repeat)
            for doc, row in enumerate(table)
            for repeat, value in enumerate(row)
        ),
    )


def write_night(out: Path) -> None:
    """An OUT folder of cells whose answers were drawn, not asked for."""
    folder = OutFolder(out)
    arms = {task: _arms(design, task) for task, design in (("gsm8k", GSM8K), ("aime25", AIME25))}
    runs = [
        _run(
            _cell(mode),
            tuple(answered(by_mode[mode], task) for task, by_mode in arms.items()),
            folder,
        )
        for mode in _DROPS
    ]
    plan = Plan(source=SOURCE, sweep="demo", cells=tuple(run.cell for run in runs))
    (out / PLAN_FILE).write_text(plan.to_json(), encoding="utf-8")
    for run in runs:
        folder.ledger.append(run)


def _run(cell: Cell, tasks: tuple[TaskSamples, ...], target: OutFolder) -> CellRun:
    """What a cell would have left behind that gave these answers."""
    folder = target.cell_folder(cell.key) / "attempt-0"
    folder.mkdir(parents=True)
    samples = Samples(backend="vllm", checkpoint="simulated: no model ran", tasks=tasks)
    graphs = 0 if cell.key.mode is GraphMode.NONE else 11
    engagement = Engagement(
        requested=cell.key.mode,
        effective=cell.expected.mode,
        planned=graphs,
        captured=graphs,
        replayed=graphs,
        graphs=graphs,
        eager_breaks=0,
        compiled=False,
    )
    return CellRun(
        cell=cell,
        attempts=(Attempt(index=0, exit=Exited(code=0), phase="exit", timings={}),),
        observation=Observation(engagement=engagement, samples=write_samples(folder, samples)),
        provenance=Provenance(vllm=SOURCE.version, source=SOURCE.identity),
    )


def _arms(design: Design, task: str) -> dict[GraphMode, Bools]:
    """Every mode's answers to the questions of one task, against the same NONE arm."""
    arms = {}
    for mode, drops in _DROPS.items():
        before, after = two_arms(design, drops[task], np.random.default_rng(_SEED))
        arms[mode] = before if mode is GraphMode.NONE else after
    return arms


def _cell(mode: GraphMode) -> Cell:
    key = CellKey(model="simulated", mode=mode, breakable=Breakable.OFF, tier=Tier.SCORE)
    reference = key.model_copy(update={"mode": GraphMode.NONE})
    return Cell(
        key=key,
        model={},
        expected=Resolution(mode=mode, reason="what was asked for"),
        reference=None if mode is GraphMode.NONE else reference,
    )
