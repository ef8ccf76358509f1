"""What a bisect found: the steps, the border, and the report of both.

Owns: the record and its words. Must not know: how revisions are chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from buildkite.bisect.hunt import Hunted, Reading, State
from fixtures.schema import SCHEMA_VERSION, Record


class Step(Record):
    """One tested revision. `evidence` is its folder below the output folder."""

    revision: str
    subject: str = ""
    state: State
    title: str | None = None
    why: str
    seconds: float = 0.0
    evidence: str

    @classmethod
    def of(cls, revision: str, reading: Reading, seconds: float, subject: str = "") -> Step:
        """The step of a revision whose verdict was read."""
        return cls(
            revision=revision,
            subject=subject,
            state=reading.state,
            title=reading.title,
            why=reading.why,
            seconds=seconds,
            evidence=f"steps/{revision}",
        )


class Outcome(Record):
    """The border between two states, or the revisions among which it lies.

    `steps` are all tested revisions, oldest first. `new` is the first revision known to be in
    the newer state, `old` the last known to be in the older. `suspects` are the revisions of
    which one is the first in the newer state: `new` alone where the border was found.
    """

    schema_version: int = SCHEMA_VERSION
    hunted: Hunted
    repair: bool
    """The finding went (the good revision is the newer one), instead of coming."""
    old: Step
    new: Step
    suspects: tuple[str, ...]
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        """Whether one revision alone is left."""
        return len(self.suspects) == 1

    @property
    def word(self) -> str:
        """What the border is called."""
        return "first good" if self.repair else "first bad"


def report_lines(outcome: Outcome) -> Iterator[str]:
    """The report, line by line."""
    hunted = outcome.hunted
    yield f"{hunted.finding} in {hunted.cell}"
    if outcome.found:
        yield f"{outcome.word} revision: {_named(outcome.new)}"
    else:
        yield (
            f"{outcome.word} revision is one of {', '.join(outcome.suspects)}: "
            "those in between could not be judged"
        )
    yield f"  {_named(outcome.old)} is {outcome.old.state}: {outcome.old.why}"
    yield f"  {_named(outcome.new)} is {outcome.new.state}: {outcome.new.why}"
    yield from (f"note: {note}" for note in outcome.notes)
    yield from title_changes(outcome.steps)
    for step in outcome.steps:
        if step.state is State.SKIP:
            yield f"skipped {_named(step)}: {step.why}"


def title_changes(steps: Iterable[Step]) -> Iterator[str]:
    """Where the failure is called otherwise than in the bad revision before it."""
    bad = [step for step in steps if step.state is State.BAD]
    for before, after in pairwise(bad):
        if before.title != after.title:
            yield (
                f"the title changed on the way: {before.title} in {before.revision}, "
                f"{after.title} in {after.revision}"
            )


def _named(step: Step) -> str:
    return f"{step.revision} ({step.subject})" if step.subject else step.revision
