"""Figures that a cell may have beside its findings: parity by step, and scores.

Owns: what a renderer must be given to draw them. Must not know: how they were measured.
A cell without them has no such section: nothing is drawn that was not measured.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from fixtures.schema import Record


class ParitySeries(Record):
    """Largest logprob difference against the reference, in nats, for each decode step.

    `band` is the spread within the reference's own repeats, in nats, for the same steps.
    """

    differences: tuple[float, ...] = Field(min_length=1)
    band: tuple[float, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _same_length(self) -> ParitySeries:
        if len(self.differences) != len(self.band):
            raise ValueError("differences and band differ in length")
        return self


class Score(Record):
    """A task's score with its two-sided interval, as fractions of 1, and its paired test."""

    task: str
    score: float
    low: float
    high: float
    questions: int
    reference: float | None = None
    p_value: float | None = None
    power: float | None = None


class CellFigures(Record):
    """All figures of one cell."""

    parity: ParitySeries | None = None
    scores: tuple[Score, ...] = ()
