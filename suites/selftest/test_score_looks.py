"""The score gate: looks fixed in advance, and the early probe."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.evidence.samples import (
    TaskSamples,
)
from gates.policy import Policy
from gates.verdict import Status
from suites.selftest.answers import (
    a_probe,
    a_task,
    some_right,
    some_samples,
)
from suites.selftest.score_judging import (
    POLICY,
    TASK,
    judged,
    lose,
    named,
    policy,
)


def in_stages(table: Any, sizes: tuple[int, ...]) -> TaskSamples:
    """The task whose questions came in stages of these sizes."""
    task = a_task(table)
    stages = [stage for stage, size in enumerate(sizes) for _ in range(size)]
    samples = tuple(
        sample.model_copy(update={"stage": stage})
        for sample, stage in zip(task.samples, stages, strict=True)
    )
    return task.model_copy(update={"samples": samples})


def looks(*fractions: float) -> Policy:
    rules = POLICY.scores.default.model_copy(update={"looks": fractions})
    return policy(default=rules)


HUNDRED = some_right(90, 100)


@pytest.mark.parametrize(
    ("b", "c", "status"),
    [(0, 0, Status.PASS), (4, 1, Status.MISSING), (12, 0, Status.FAIL)],
)
def test_an_undecided_look_asks_for_the_next(b: int, c: int, status: Status) -> None:
    rules = looks(0.5, 1.0)
    arms = (in_stages(lose(HUNDRED, b, c), (100,)), in_stages(HUNDRED, (100,)))
    findings = judged(some_samples(arms[0]), some_samples(arms[1]), rules)
    found = named(findings, "paired-gsm8k")
    assert found.status is status
    assert ("the next look" in found.why) == (status is Status.MISSING)


def test_the_last_look_decides() -> None:
    rules = looks(0.5, 1.0)
    arms = (in_stages(lose(HUNDRED, 4, 1), (50, 50)), in_stages(HUNDRED, (50, 50)))
    findings = judged(some_samples(arms[0]), some_samples(arms[1]), rules)
    assert named(findings, "paired-gsm8k").status is Status.PASS


def test_looks_that_were_not_planned_are_no_score() -> None:
    rules = looks(0.5, 1.0)
    arm = some_samples(in_stages(HUNDRED, (20, 80)))
    findings = judged(arm, arm, rules)
    assert "planned 0.50" in named(findings, "documents-gsm8k").why


# The early probe


@pytest.mark.parametrize(
    ("probe", "status", "words"),
    [
        (a_probe(), Status.PASS, "1.00 of the length"),
        (a_probe(length=2), Status.FAIL, "collapsed"),
        (a_probe(length=400), Status.FAIL, "collapsed"),
        (a_probe(logprob=-2.0), Status.FAIL, "-1.700 nats"),
        (a_probe(logprob=-0.01, length=90), Status.PASS, "+0.290 nats"),
        (a_probe(logprob=float("nan")), Status.FAIL, "no numbers"),
        (a_probe(answers=()), Status.INVALID, "no answer"),
        (a_probe(protocol="c" * 64), Status.INVALID, "protocol"),
        (a_probe(stopped="looked odd"), Status.INVALID, "looked odd"),
        (a_probe(length=2, stopped="short"), Status.FAIL, "collapsed"),
    ],
)
def test_a_probe_tells_a_collapse(probe: Any, status: Status, words: str) -> None:
    findings = judged(some_samples(probe=probe), some_samples(TASK, probe=a_probe()))
    found = named(findings, "probe")
    assert found.status is status
    assert words in found.why


def test_a_stopped_cell_owes_no_scores() -> None:
    collapsed = some_samples(probe=a_probe(length=2, stopped="short"))
    findings = judged(collapsed, some_samples(TASK, probe=a_probe()))
    assert [finding.check for finding in findings] == ["probe"]
