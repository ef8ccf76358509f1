"""Figures that a cell may have beside its findings: parity by step, and scores.

Owns: what a renderer must be given to draw them, and reading the tests of scores from a
verdict's findings. Must not know: how they were measured. A cell without them has no such
section: nothing is drawn that was not measured.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from fixtures.evidence.audit import CaptureAudit
from fixtures.schema import Record
from gates.scores.result import ScoreTest
from gates.verdict import Verdict


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
    """A task's score with its two-sided interval, as fractions of 1, and a test of it.

    `reference` is what the test holds it against; `b` pairs were lost and `c` won; `adjusted` is
    Holm's p-value. `detectable` is the smallest drop that shows with `power`.
    """

    task: str
    score: float
    low: float
    high: float
    questions: int
    reference: float | None = None
    test: str = ""
    b: int | None = None
    c: int | None = None
    p_value: float | None = None
    adjusted: float | None = None
    detectable: float | None = None
    power: float | None = None


class CellFigures(Record):
    """All figures of one cell."""

    parity: ParitySeries | None = None
    scores: tuple[Score, ...] = ()
    graphs: CaptureAudit | None = None
    """What the capture audit recorded, where it was read."""


def scores_of(verdict: Verdict) -> tuple[Score, ...]:
    """Every test of scores among the findings of a verdict, in their order."""
    return tuple(_score(finding.test) for finding in verdict.findings if finding.test is not None)


def _score(test: ScoreTest) -> Score:
    return Score(
        task=test.task,
        score=test.score,
        low=test.low,
        high=test.high,
        questions=test.n,
        reference=test.reference,
        test=test.kind,
        b=test.b,
        c=test.c,
        p_value=test.p_value,
        adjusted=test.adjusted,
        detectable=test.detectable,
        power=test.wanted_power,
    )
