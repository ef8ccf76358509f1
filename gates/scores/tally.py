"""One task's answers counted, and what keeps them from being a score.

Owns: completeness and the counts of right, wrong and invalid answers. Must not know: other
cells, references, or settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from fixtures.evidence.samples import Outcome, Sample, TaskSamples, documents_digest

_NAMED = 3
"""Documents named in a message."""


class Tally(NamedTuple):
    """Counts of requests by outcome. `empty` are unparsable ones without any text."""

    questions: int
    requests: int
    answered: int
    right: int
    unparsable: int
    empty: int
    never_returned: int
    hit_cap: int

    @property
    def score(self) -> float:
        """Right answers among the valid ones; 0 where there is none."""
        return self.right / self.answered if self.answered else 0.0

    def share(self, count: int) -> float:
        """`count` as a share of all requests."""
        return count / self.requests if self.requests else 0.0

    def __str__(self) -> str:
        return (
            f"{self.right} right of {self.answered} answered, {self.unparsable} unparsable "
            f"({self.empty} of them empty), {self.never_returned} never returned, "
            f"{self.hit_cap} ended by the token cap"
        )


def tally(task: TaskSamples) -> Tally:
    """The counts of a task's requests."""
    outcomes = Counter(sample.outcome for sample in task.samples)
    return Tally(
        questions=len({sample.doc_id for sample in task.samples}),
        requests=len(task.samples),
        answered=outcomes[Outcome.ANSWERED],
        right=sum(sample.correct is True for sample in task.samples),
        unparsable=outcomes[Outcome.UNPARSABLE],
        empty=sum(_is_empty(sample) for sample in task.samples),
        never_returned=outcomes[Outcome.NEVER_RETURNED],
        hit_cap=sum(sample.hit_cap for sample in task.samples),
    )


def _is_empty(sample: Sample) -> bool:
    nothing = sample.length == 0 or (sample.length is None and not sample.excerpt.strip())
    return sample.outcome is Outcome.UNPARSABLE and nothing


def faults(task: TaskSamples) -> tuple[str, ...]:
    """What is wrong with the documents, in words: answers to them are no score."""
    return tuple(_faults(task))


def _faults(task: TaskSamples) -> Iterator[str]:
    if not task.samples:
        yield "there is no answer at all"
        return
    asked = Counter((sample.doc_id, sample.repeat) for sample in task.samples)
    hashes: dict[int, set[str]] = {}
    for sample in task.samples:
        hashes.setdefault(sample.doc_id, set()).add(sample.doc_hash)
    if twice := sorted({doc for (doc, _), count in asked.items() if count > 1}):
        yield f"answered twice: {_documents(twice)}"
    if beyond := sorted({repeat for _, repeat in asked if repeat >= task.repeats}):
        yield f"repeat {beyond[0]} was not asked for: there are {task.repeats}"
    if changed := sorted(doc for doc, of in hashes.items() if len(of) > 1):
        yield f"changed between repeats: {_documents(changed)}"
    else:
        yield from _wrong_documents(task, {doc: min(of) for doc, of in hashes.items()})
    missing = task.dataset.documents * task.repeats - len(asked)
    if missing > 0:
        yield f"{missing} of {task.dataset.documents * task.repeats} requests left no record"


def _wrong_documents(task: TaskSamples, hashes: dict[int, str]) -> Iterator[str]:
    owners: dict[str, list[int]] = {}
    for doc, digest in sorted(hashes.items()):
        owners.setdefault(digest, []).append(doc)
    if same := sorted(doc for docs in owners.values() for doc in docs[1:]):
        yield f"the same question again under another number: {_documents(same)}"
    if len(hashes) > task.dataset.documents:
        yield f"{len(hashes)} documents were asked, {task.dataset.documents} were planned"
    if len(hashes) == task.dataset.documents:
        digest = documents_digest(tuple(hashes[doc] for doc in sorted(hashes)))
        if digest != task.dataset.sha256:
            yield f"the documents are not those of {task.dataset.name}: their digest differs"


def _documents(docs: list[int]) -> str:
    shown = ", ".join(str(doc) for doc in docs[:_NAMED])
    more = f" and {len(docs) - _NAMED} more" if len(docs) > _NAMED else ""
    return f"document {shown}{more}"
