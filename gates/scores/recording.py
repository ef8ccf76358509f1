"""A reference score made from runs.

Owns: which runs may become a reference, and what each must be able to say about itself. Must
not know: where references are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date
from typing import Any, NamedTuple

from fixtures.cells.axes import GraphMode
from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.samples import Samples, TaskSamples
from gates.liveness import judge_liveness
from gates.policy import Policy
from gates.scores.gate import judge_answers
from gates.scores.references import Origin, Reference
from gates.scores.tally import faults, tally
from gates.verdict import Status

_CPU = "none: CPU"


class Source(NamedTuple):
    """One run that answered the task."""

    run: CellRun
    samples: Samples
    task: TaskSamples


def sources(
    runs: Iterable[CellRun], model: str, task: str, samples_of: Callable[[CellRun], Samples | None]
) -> list[Source]:
    """The runs of a model without graphs, at its default settings, that answered `task`.

    A planted fault is none of them.

    Raises:
        ConfigError: the answers of one of them cannot be read.
    """
    found = []
    for run in runs:
        key = run.cell.key
        plain = key.mode is GraphMode.NONE and key.variant is None and run.cell.mutant is None
        if key.model != model or not plain or run.observation is None:
            continue
        samples = samples_of(run)
        for one in samples.tasks if samples is not None else ():
            if samples is not None and one.task == task:
                found.append(Source(run, samples, one))
    return found


def record(
    found: list[Source], policy: Policy, *, recorded: date, margin: float, margin_why: str
) -> Reference:
    """The reference that `found` make together: all of their valid answers to one task.

    Invalid answers are counted beside them, as the gate does: a run with more of them than the
    policy allows is no score.

    Raises:
        ConfigError: there is no run, one is no score, one cannot say where it comes from, or
            they were not made under the same conditions.
    """
    if not found:
        raise ConfigError(
            "no run without graphs answered that task",
            source="--model, --task",
            remedy="name the folders of a score tier whose NONE cells ran, and a task by the "
            "name that its findings use",
        )
    for source in found:
        _require_score(source, policy)
    task, counts = found[0].task, [tally(source.task) for source in found]
    return Reference(
        task=task.task,
        protocol=_same(found, "protocol", lambda one: one.task.protocol.digest),
        documents=_same(found, "documents", lambda one: one.task.dataset.sha256),
        questions=task.dataset.documents,
        right=sum(one.right for one in counts),
        n=sum(one.answered for one in counts),
        invalid=sum(one.unparsable + one.never_returned for one in counts),
        margin=margin,
        margin_why=margin_why,
        origin=_origin(found, recorded),
    )


def _origin(found: list[Source], recorded: date) -> Origin:
    revisions = {one.samples.revision for one in found}
    return Origin(
        commit=_same(found, "commit", lambda one: one.run.provenance.source),
        vllm=_same(found, "vllm", lambda one: one.run.provenance.vllm),
        driver=_same(found, "driver", lambda one: _device(one, "driver")),
        gpu=_same(found, "gpu", lambda one: _device(one, "gpu")),
        checkpoint=_same(found, "checkpoint", lambda one: one.samples.checkpoint),
        revision=None if revisions == {None} else _same(found, "revision", _revision),
        recorded=recorded,
        cells=tuple(sorted({str(one.run.cell.key) for one in found})),
    )


def _revision(source: Source) -> str | None:
    return source.samples.revision


def _device(source: Source, name: str) -> str | None:
    """The driver or the GPU; transformers without a GPU have none, and say so."""
    value: str | None = getattr(source.run.provenance, name)
    if value is None and source.samples.backend == "hf" and source.run.attempts[-1].gpu is None:
        return _CPU
    return value


def _same(found: list[Source], name: str, value_of: Callable[[Source], Any]) -> str:
    """The one value that all runs state.

    Raises:
        ConfigError: a run states none, or two differ.
    """
    values = {value_of(source): source for source in found}
    for value, source in values.items():
        if not value:
            raise ConfigError(
                f"{source.run.cell.key} does not say its {name}: without it there is no reference",
                source="provenance",
                key=name,
                remedy="run the cell again with a GraphGate that records it",
            )
    if len(values) > 1:
        shown = ", ".join(sorted(str(value) for value in values))
        raise ConfigError(
            f"the runs differ: {shown}",
            source="provenance",
            key=name,
            remedy="make a reference of runs under one condition",
        )
    return str(next(iter(values)))


def _require_score(source: Source, policy: Policy) -> None:
    """Raises ConfigError unless the run ended well and its answers are a score."""
    key = source.run.cell.key
    lived = judge_liveness(source.run, None, policy)[0]
    answers = judge_answers(source.task, tally(source.task), policy.scores)
    problems = [lived.why] if lived.status is not Status.PASS else []
    problems += faults(source.task)
    problems += [answers.why] if answers.status is not Status.PASS else []
    if problems:
        raise ConfigError(
            f"{key} is no score: {'; '.join(problems)}", remedy="leave out its folder, or mend it"
        )
