"""The settings of the score gate, part of the policy.

Owns: the settings' types and their validation. Must not know: evidence.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field, field_validator

from fixtures.evidence.samples import TaskName
from fixtures.schema import Record
from gates.scores.sequential import Spending

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Chance = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class TaskRules(Record):
    """How answers to one task are judged.

    `effect` is the drop that one would not want to miss: the power to see it is stated.
    `looks` are the fractions of the final sample at which the paired test is made; a look
    whose p-value is at or under `extend_at` without a rejection asks for the next one.
    """

    max_unparsable: Share = 0.1
    max_never_returned: Share = 0.01
    effect: Chance = 0.01
    looks: tuple[Chance | Annotated[float, Field(ge=1, le=1)], ...] = (1.0,)
    extend_at: Chance = 0.2

    @field_validator("looks")
    @classmethod
    def _end_with_everything(cls, looks: tuple[float, ...]) -> tuple[float, ...]:
        if not looks or looks[-1] != 1.0 or any(a >= b for a, b in pairwise(looks)):
            raise ValueError("looks must rise and end with 1, like [0.33, 0.67, 1]")
        return looks


class ProbeRules(Record):
    """When an early probe is a collapse.

    `length_ratio`: the mean response is longer or shorter than the reference's by this factor.
    `logprob_shift`: the mean logprob differs by this many nats per token; text that loops is
    more likely than healthy text.
    """

    length_ratio: float = Field(default=3.0, gt=1, allow_inf_nan=False)
    logprob_shift: float = Field(default=1.0, gt=0, allow_inf_nan=False)


class ScoreRules(Record):
    """`alpha` is the chance of one false block or more in a whole decision."""

    alpha: Chance = 0.05
    power: Chance = 0.8
    spending: Spending = Spending.OBRIEN_FLEMING
    default: TaskRules = TaskRules()
    tasks: dict[TaskName, TaskRules] = Field(default_factory=dict)
    probe: ProbeRules = ProbeRules()

    def of(self, task: str) -> TaskRules:
        """The rules of a task: its own, or the default."""
        return self.tasks.get(task, self.default)
