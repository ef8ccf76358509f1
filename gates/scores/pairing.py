"""Two arms' answers to one task, set side by side.

Owns: what must be equal before answers may be paired, and the differences question by
question. Must not know: tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from fixtures.evidence.samples import Outcome, Protocol, Sample, TaskSamples
from gates.scores.paired import Discordance

Value = Callable[[Sample], bool | None]
"""What is compared of a sample; None: it has no such value, and its pair does not count."""


def correct(sample: Sample) -> bool | None:
    """Whether the answer is right; only an answered request has one."""
    return sample.correct


def readable(sample: Sample) -> bool | None:
    """Whether what came back could be parsed; what never returned says nothing about that."""
    if sample.outcome is Outcome.NEVER_RETURNED:
        return None
    return sample.outcome is Outcome.ANSWERED


class Pairs(NamedTuple):
    """The pairs in which both arms have a value.

    `right` and `reference_right` count the pairs that are true in either arm;
    `differences[q][s]` is what question q lost minus won in stage s, and `counts` holds each
    question's true values of this arm and its pairs.
    """

    answers: int
    right: int
    reference_right: int
    discordance: Discordance
    differences: tuple[tuple[int, ...], ...]
    counts: tuple[tuple[int, int], ...]

    @property
    def questions(self) -> int:
        """Questions with a pair or more."""
        return len(self.counts)

    @property
    def losable(self) -> int:
        """Questions of which the reference has something to lose."""
        both = zip(self.differences, self.counts, strict=True)
        return sum(sum(lost) + right > 0 for lost, (right, _) in both)


def why_apart(task: TaskSamples, reference: TaskSamples) -> str | None:
    """Why the two arms' answers cannot be paired, in words, or None."""
    if task.protocol.digest != reference.protocol.digest:
        return f"another protocol than the reference cell's: {protocols(task, reference)}"
    if task.dataset.sha256 != reference.dataset.sha256:
        return f"other documents than the reference cell's: {task.dataset.name} has changed"
    if _requests(task).keys() != _requests(reference).keys():
        return "not the questions, repeats and stages that the reference cell answered"
    return None


def protocols(task: TaskSamples, reference: TaskSamples) -> str:
    """Where two protocols differ, field by field."""
    names = [
        name
        for name in Protocol.model_fields
        if getattr(task.protocol, name) != getattr(reference.protocol, name)
    ]
    return ", ".join(
        f"{name} {getattr(task.protocol, name)!r} instead of {getattr(reference.protocol, name)!r}"
        for name in names
    )


def pair(task: TaskSamples, reference: TaskSamples, stages: int, value: Value) -> Pairs:
    """The pairs of two arms that `why_apart` has nothing against."""
    others = _requests(reference)
    lost: dict[int, list[int]] = {}
    counts: dict[int, tuple[int, int]] = {}
    tallied: Counter[tuple[bool, bool]] = Counter()
    for request, sample in _requests(task).items():
        mine, other = value(sample), value(others[request])
        if mine is None or other is None:
            continue
        tallied[mine, other] += 1
        lost.setdefault(sample.doc_id, [0] * stages)[sample.stage] += other - mine
        right, asked = counts.get(sample.doc_id, (0, 0))
        counts[sample.doc_id] = (right + mine, asked + 1)
    return Pairs(
        answers=tallied.total(),
        right=tallied[True, True] + tallied[True, False],
        reference_right=tallied[True, True] + tallied[False, True],
        discordance=Discordance(b=tallied[False, True], c=tallied[True, False]),
        differences=tuple(tuple(by_stage) for by_stage in lost.values()),
        counts=tuple(counts.values()),
    )


def _requests(task: TaskSamples) -> dict[tuple[int, int, int], Sample]:
    return {(one.doc_id, one.repeat, one.stage): one for one in task.samples}
