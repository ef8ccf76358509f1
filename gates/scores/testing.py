"""The tests that one task's answers go through, as figures.

Owns: which test a design asks for, and the power stated with it. Must not know: statuses and
words, which are the gate's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fixtures.evidence.samples import TaskSamples
from gates.scores.bounds import below_floor, lower, upper, worth
from gates.scores.paired import Discordance, mcnemar, sign_flip
from gates.scores.pairing import Pairs
from gates.scores.power import (
    Design,
    detectable_drop,
    detectable_score,
    floor_power,
    paired_power,
)
from gates.scores.references import Reference
from gates.scores.result import ScoreTest, TestKind
from gates.scores.rules import ScoreRules, TaskRules
from gates.scores.sequential import Look, sequential_test

_INTERVAL = 0.025
"""Each side of the two-sided interval that is shown."""


class Tested(NamedTuple):
    """A test and whether it rejects; `extend` says that the next look is due instead."""

    test: ScoreTest
    rejects: bool
    extend: bool = False


def stages_of(task: TaskSamples) -> int:
    """How many stages the answers came in."""
    return 1 + max((sample.stage for sample in task.samples), default=0)


def why_not_planned(task: TaskSamples, rules: TaskRules) -> str | None:
    """Why the stages of the answers are not those that were fixed in advance, or None."""
    stages = stages_of(task)
    if stages > len(rules.looks):
        return f"{stages} stages of answers, but {len(rules.looks)} looks are planned"
    counts = [sum(one.stage == stage for one in task.samples) for stage in range(stages)]
    reached = [sum(counts[: stage + 1]) / len(task.samples) for stage in range(stages)]
    planned = [look / rules.looks[stages - 1] for look in rules.looks[:stages]]
    for number, (share, wanted) in enumerate(zip(reached, planned, strict=True), start=1):
        if abs(share - wanted) > 0.05:
            return f"look {number} came at {share:.2f} of the answers so far, planned {wanted:.2f}"
    return None


def compare(kind: TestKind, name: str, pairs: Pairs, rules: ScoreRules) -> Tested:
    """The paired test of one arm against the other; `kind` is PAIRED or UNPARSABLE."""
    own = rules.of(name)
    repeats = max(1, round(pairs.answers / pairs.questions))
    reference = pairs.reference_right / pairs.answers
    found = _look(pairs, rules, own)
    design = Design(
        n=pairs.questions,
        score=reference,
        discordance=round(_noise(pairs.discordance, found) / pairs.answers, 6),
        repeats=repeats,
        alpha=rules.alpha,
    )
    count = worth(pairs.counts, _INTERVAL)
    clustered = kind is TestKind.PAIRED and pairs.answers != pairs.questions
    test = ScoreTest(
        kind=TestKind.CLUSTERED if clustered else kind,
        task=name,
        n=pairs.questions,
        answers=pairs.answers,
        score=pairs.right / pairs.answers,
        low=lower(count, _INTERVAL),
        high=upper(count, _INTERVAL),
        reference=reference,
        b=pairs.discordance.b,
        c=pairs.discordance.c,
        alpha=rules.alpha,
        p_value=found.p_value,
        error=found.error,
        detectable=detectable_drop(design, rules.power),
        wanted_power=rules.power,
        effect=own.effect,
        power=paired_power(design, min(own.effect, reference)).value,
    )
    return Tested(test, found.rejects, _extends(found, own, stages=len(pairs.differences[0])))


def can_reject(pairs: Pairs, alpha: float) -> bool:
    """Whether the paired test would reject if everything that can be lost were lost."""
    return 0.5**pairs.losable <= alpha


def _noise(seen: Discordance, found: Look) -> int:
    """Pairs that differ by noise alone, for the stated power: all that do, unless some are a drop.

    After a rejection what was lost is mostly the drop itself; noise goes both ways, so what was
    won is taken for half of it.
    """
    return min(seen.total, 2 * seen.c) if found.rejects else seen.total


def _look(pairs: Pairs, rules: ScoreRules, own: TaskRules) -> Look:
    """A plan of one look is the plain exact test; more looks spend alpha as planned."""
    if len(own.looks) > 1:
        fractions = own.looks[: len(pairs.differences[0])]
        spending = [rules.spending.spent(rules.alpha, fraction) for fraction in fractions]
        return sequential_test(pairs.differences, spending)
    if pairs.answers == pairs.questions:
        p_value = mcnemar(*pairs.discordance)
    else:
        p_value = sign_flip([sum(stages) for stages in pairs.differences])
    return Look(0, rejects=p_value <= rules.alpha, p_value=p_value, spent=rules.alpha, error=0.0)


def _extends(found: Look, own: TaskRules, *, stages: int) -> bool:
    more = stages < len(own.looks)
    return more and not found.rejects and found.p_value <= own.extend_at


def hold_to(
    reference: Reference, name: str, counts: Sequence[tuple[int, int]], rules: ScoreRules
) -> Tested:
    """The test of a score against a recorded reference less its margin.

    `counts` holds each question's right and valid answers.
    """
    own = rules.of(name)
    count = worth(counts, rules.alpha)
    shown = worth(counts, _INTERVAL)
    p_value = below_floor(count, reference.floor)
    blocked = detectable_score(count.n, reference.floor, rules.alpha, rules.power)
    test = ScoreTest(
        kind=TestKind.FLOOR,
        task=name,
        n=len(counts),
        answers=sum(asked for _, asked in counts),
        score=count.score,
        low=lower(shown, _INTERVAL),
        high=upper(shown, _INTERVAL),
        reference=reference.score,
        alpha=rules.alpha,
        p_value=p_value,
        detectable=None if blocked is None else reference.score - blocked,
        wanted_power=rules.power,
        effect=own.effect,
        power=floor_power(
            count.n, reference.floor, max(0.0, reference.score - own.effect), rules.alpha
        ),
    )
    return Tested(test, p_value < rules.alpha)
