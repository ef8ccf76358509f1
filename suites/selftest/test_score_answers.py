"""The score gate: documents and answers that are no score, and those that are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import Observation, Refusal, RefusalKind
from fixtures.evidence.exits import Exited, Signaled
from fixtures.evidence.samples import (
    Outcome,
    TaskSamples,
)
from gates.evidence import judge_folder
from gates.scores.gate import judge_scores
from gates.verdict import ExitCode, Gate, Status
from graphgate.simulated import doc_hash
from suites.selftest.answers import (
    FULL,
    NONE,
    Recorded,
    a_sample,
    a_task,
    some_right,
    some_samples,
    stored,
)
from suites.selftest.build import a_cell, a_crash, a_plan, a_run, an_attempt, write_shard
from suites.selftest.score_judging import (
    AIME25,
    POLICY,
    TASK,
    TODAY,
    judged,
    named,
    one_task,
    statuses,
)


def without(task: TaskSamples, *docs: int) -> TaskSamples:
    kept = tuple(sample for sample in task.samples if sample.doc_id not in docs)
    return task.model_copy(update={"samples": kept})


def again(task: TaskSamples, **changes: Any) -> TaskSamples:
    """The task with its first sample once more, changed."""
    more = task.samples[0].model_copy(update=changes)
    return task.model_copy(update={"samples": (*task.samples, more)})


def changed(task: TaskSamples, **changes: Any) -> TaskSamples:
    """The task with its first sample changed."""
    first = task.samples[0].model_copy(update=changes)
    return task.model_copy(update={"samples": (first, *task.samples[1:])})


TWICE = a_task(some_right(180, 200).reshape(100, 2))


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (again(TASK), "answered twice: document 0"),
        (without(TASK, 3, 4), "2 of 100 requests left no record"),
        (changed(TASK, doc_hash=doc_hash(0, "changed")), "not those of made-up/questions"),
        (changed(TWICE, doc_hash=doc_hash(0, "changed")), "changed between repeats: document 0"),
        (changed(TASK, doc_hash=doc_hash(7)), "the same question again under another number"),
        (again(TASK, doc_id=100, doc_hash=doc_hash(100)), "101 documents were asked, 100"),
        (changed(TASK, repeat=1), "repeat 1 was not asked for"),
        (changed(TASK, stage=2), "3 stages of answers, but 1 looks are planned"),
        (TASK.model_copy(update={"samples": ()}), "no answer at all"),
    ],
)
def test_broken_documents_are_no_score(broken: TaskSamples, words: str) -> None:
    findings = judged(some_samples(broken), some_samples(broken))
    found = named(findings, "documents-gsm8k")
    assert found.status is Status.INVALID
    assert words in found.why
    assert not any(finding.test for finding in findings)


def test_a_broken_reference_arm_is_said_to_be_the_references() -> None:
    findings = judged(some_samples(TASK), some_samples(without(TASK, 1)))
    found = named(findings, "reference-gsm8k")
    assert found.status is Status.INVALID
    assert f"{NONE} has no score" in found.why


def test_invalid_answers_are_counted_apart_and_are_not_wrong() -> None:
    table = [True] * 90 + [False] * 4 + [None] * 6
    findings = judged(one_task(table), one_task(table))
    answers, paired = named(findings, "answers-gsm8k"), named(findings, "paired-gsm8k")
    assert "90 right of 94 answered, 6 unparsable" in answers.why
    assert paired.test is not None
    assert paired.test.answers == 94
    assert statuses(findings) == {Status.PASS}


def test_too_many_unparsable_answers_are_no_score() -> None:
    table = [True] * 80 + [None] * 20
    findings = judged(one_task(table), one_task(table))
    assert named(findings, "answers-gsm8k").status is Status.INVALID
    assert "paired-gsm8k" not in {finding.check for finding in findings}
    assert Status.FAIL not in statuses(findings)


def test_answers_that_became_unreadable_are_a_regression() -> None:
    table = [True] * 80 + [None] * 20
    findings = judged(one_task(table), one_task([True] * 100))
    unparsable = named(findings, "unparsable-gsm8k")
    assert unparsable.status is Status.FAIL
    assert unparsable.test is not None
    assert (unparsable.test.b, unparsable.test.c) == (20, 0)
    assert named(findings, "answers-gsm8k").status is Status.INVALID


def lost(doc: int) -> Any:
    return a_sample(doc, None, outcome=Outcome.NEVER_RETURNED, length=None)


def test_requests_that_never_returned_are_no_wrong_answers() -> None:
    silent = TASK.model_copy(update={"samples": (*map(lost, range(50)), *TASK.samples[50:])})
    findings = judged(some_samples(silent), some_samples(TASK))
    found = named(findings, "answers-gsm8k")
    assert found.status is Status.INVALID
    assert "50 never returned" in found.why
    assert Status.FAIL not in statuses(findings)


def test_empty_answers_are_named() -> None:
    empty = TASK.model_copy(
        update={"samples": tuple(a_sample(doc, None, length=0) for doc in range(100))}
    )
    findings = judged(some_samples(empty), some_samples(TASK))
    assert "100 unparsable (100 of them empty)" in named(findings, "answers-gsm8k").why
    assert "not one answer" in named(findings, "answers-gsm8k").why
    assert named(findings, "unparsable-gsm8k").status is Status.FAIL


def test_an_engine_that_died_is_a_crash_and_never_a_score(tmp_path: Path) -> None:
    dead = a_run(
        a_cell(FULL),
        attempts=(an_attempt(Exited(code=1), crash=a_crash()),),
        observation=None,
        crash=a_crash(),
    )
    run = stored(a_cell(NONE), some_samples(TASK), tmp_path)
    write_shard(tmp_path, a_plan(a_cell(NONE), a_cell(FULL)), [run, dead])
    verdicts = judge_folder([tmp_path], POLICY, (), TODAY)
    full = verdicts.verdicts[1]
    assert full.status is Status.CRASH
    assert not any(finding.gate is Gate.SCORES for finding in full.findings)
    assert verdicts.decision.exit_code is ExitCode.CRASH


def test_a_reference_cell_that_died_leaves_nothing_to_compare_with() -> None:
    recorded = Recorded()
    dead = a_run(a_cell(NONE), attempts=(an_attempt(Signaled(signo=6)),), observation=None)
    run = recorded.run(FULL, some_samples(TASK))
    findings = judge_scores(run, dead, POLICY, recorded.samples)
    assert named(findings, "reference").status is Status.INVALID
    assert named(findings, "reference-gsm8k").status is Status.INVALID


def test_a_score_cell_without_answers_is_invalid() -> None:
    assert statuses(judged(None, some_samples(TASK))) == {Status.INVALID}


def test_other_tiers_owe_no_answers() -> None:
    recorded = Recorded()
    run = recorded.run("dsv4.FULL.bk0.canary", None)
    assert judge_scores(run, None, POLICY, recorded.samples) == ()


def test_a_refusal_owes_no_answers() -> None:
    refusal = Refusal(kind=RefusalKind.UNSUPPORTED, why="no such mode")
    run = a_run(a_cell(FULL), observation=Observation(refusal=refusal))
    assert judge_scores(run, None, POLICY, Recorded().samples) == ()


def test_a_task_that_only_the_reference_answered_is_missed() -> None:
    aime = a_task(AIME25, task="aime25")
    findings = judged(some_samples(TASK), some_samples(TASK, aime))
    assert "aime25" in named(findings, "answered").why
    findings = judged(some_samples(TASK, aime), some_samples(TASK))
    assert named(findings, "reference-aime25").status is Status.INVALID


def test_a_task_answered_twice_is_no_score() -> None:
    findings = judged(some_samples(TASK, TASK), some_samples(TASK))
    assert named(findings, "answers-gsm8k").status is Status.INVALID


def test_answers_that_cannot_be_read_are_invalid() -> None:
    findings = judged(ConfigError("cannot be unpacked"), some_samples(TASK))
    assert statuses(findings) == {Status.INVALID}
    assert "cannot be unpacked" in findings[0].why
