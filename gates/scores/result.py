"""What one test of a score found, in figures: for the decision's family and for reports.

Owns the record only. Must not know how a figure came about.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from fixtures.schema import Record


class TestKind(StrEnum):
    """Which question a test asks."""

    PAIRED = "paired"
    """Were questions lost against the reference cell? One answer a question: exact McNemar."""
    CLUSTERED = "clustered"
    """The same with repeats: an exact permutation test over questions."""
    UNPARSABLE = "unparsable"
    """Did answers become unreadable against the reference cell?"""
    FLOOR = "floor"
    """Does the score lie below the recorded reference less its margin?"""

    __test__ = False


class ScoreTest(Record):
    """One test. Scores, bounds, drops and shares are fractions of 1.

    `n` are questions, `answers` what was compared (pairs, or answers for a floor); `low` and
    `high` the two-sided 95% interval of `score`; `reference` what it is held against. `b` pairs
    were lost and `c` won. `detectable` is the smallest drop that would have shown with
    `wanted_power` (None: none would), and `power` the probability to see a drop of `effect`.
    `error` is the standard error of a simulated p-value. `adjusted` is Holm's p-value among
    all tests of a decision.
    """

    kind: TestKind
    task: str
    n: int
    answers: int
    score: float
    low: float
    high: float
    reference: float
    b: int | None = None
    c: int | None = None
    alpha: float
    p_value: float = Field(ge=0, le=1)
    error: float = 0.0
    adjusted: float | None = None
    detectable: float | None
    wanted_power: float
    effect: float
    power: float

    @property
    def discordance(self) -> float | None:
        """Share of the pairs that differ."""
        return None if self.b is None or self.c is None else (self.b + self.c) / self.answers
