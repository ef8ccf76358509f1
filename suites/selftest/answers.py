"""Answers to questions, made for tests: whole tasks, arms that differ as told, runs on disk.

Owns: healthy defaults around the answers that graphgate/simulated.py makes up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fixtures.cells.cell import Cell
from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun, Observation
from fixtures.evidence.samples import (
    EarlyProbe,
    ProbeAnswer,
    Protocol,
    Sample,
    Samples,
    TaskSamples,
    write_samples,
)
from gates.scores.references import Origin, Reference, References
from graphgate.simulated import PROTOCOL, Bools, answer, answered
from suites.selftest.build import a_cell, a_run, an_engagement

FULL = "dsv4.FULL.bk0.score"
NONE = "dsv4.NONE.bk0.score"


def a_protocol(**changes: Any) -> Protocol:
    """Five shots, greedy, as for gsm8k."""
    return Protocol(**{**dict(PROTOCOL), **changes})


def a_sample(doc: int, correct: bool | None, *, repeat: int = 0, **changes: Any) -> Sample:
    """One answer; `correct` None is one that could not be parsed."""
    return Sample(**{**answer(doc, correct, repeat).model_dump(), **changes})


def a_task(correct: Sequence[Any] | Bools, task: str = "gsm8k", **changes: Any) -> TaskSamples:
    """A whole task from its answers: one per question, or questions x repeats."""
    return TaskSamples(**{**dict(answered(correct, task)), **changes})


def some_right(right: int, n: int) -> Bools:
    """`right` of `n` answers, spread evenly."""
    return np.asarray([(i + 1) * right // n > i * right // n for i in range(n)])


def a_probe(length: int = 100, logprob: float | None = -0.3, **changes: Any) -> EarlyProbe:
    """Thirty-two questions, all answered alike."""
    answers = tuple(
        ProbeAnswer(doc_id=doc, length=length, mean_logprob=logprob) for doc in range(32)
    )
    fields: dict[str, Any] = {"task": "gsm8k", "protocol": "b" * 64, "answers": answers}
    return EarlyProbe(**{**fields, **changes})


def some_samples(*tasks: TaskSamples, **changes: Any) -> Samples:
    """What a child writes down."""
    fields: dict[str, Any] = {"backend": "vllm", "checkpoint": "made-up/model", "tasks": tasks}
    return Samples(**{**fields, **changes})


class Recorded:
    """Runs and their answers in memory, as a gate asks for them."""

    def __init__(self) -> None:
        self._samples: dict[str, Samples | ConfigError] = {}

    def run(self, key: str, samples: Samples | ConfigError | None) -> CellRun:
        """A run of the cell that recorded `samples`, or whose file gives that error."""
        if samples is not None:
            self._samples[key] = samples
        return a_run(a_cell(key))

    def samples(self, run: CellRun) -> Samples | None:
        """The answers of a run of `run`."""
        found = self._samples.get(str(run.cell.key))
        if isinstance(found, ConfigError):
            raise found
        return found


def stored(cell: Cell, samples: Samples, out: Path) -> CellRun:
    """A run whose answers lie in the OUT folder `out`."""
    folder = out / "cells" / str(cell.key) / "attempt-0"
    folder.mkdir(parents=True)
    file = write_samples(folder, samples)
    return a_run(cell, observation=Observation(engagement=an_engagement(cell), samples=file))


def a_reference(task: TaskSamples, right: int, n: int, **changes: Any) -> Reference:
    """A recorded score for `task`'s protocol and documents."""
    origin = Origin.model_validate(
        {
            "commit": "vllm-0.26.0",
            "vllm": "0.26.0",
            "driver": "580.1",
            "gpu": "NVIDIA H200",
            "checkpoint": "made-up/model",
            "recorded": "2026-11-01",
            "cells": ["dsv4.NONE.bk0.score"],
        }
    )
    fields: dict[str, Any] = {
        "task": task.task,
        "protocol": task.protocol.digest,
        "documents": task.dataset.sha256,
        "questions": task.dataset.documents,
        "right": right,
        "n": n,
        "margin": 0.01,
        "margin_why": "half of the spread between nights",
        "origin": origin,
    }
    return Reference(**{**fields, **changes})


def references(found: Iterable[Reference], model: str = "dsv4") -> References:
    """A file of references."""
    return References(schema_version=1, model=model, references=tuple(found))
