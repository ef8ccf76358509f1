"""The score gate: what pairs of arms and recorded references come to, with their figures."""

from __future__ import annotations

from typing import Any

import pytest

from gates.scores.result import TestKind
from gates.verdict import Status
from graphgate.simulated import made_up_dataset
from suites.selftest.answers import (
    a_protocol,
    a_reference,
    a_task,
    some_right,
    some_samples,
)
from suites.selftest.score_judging import (
    AIME25,
    GSM8K,
    SICK_GSM8K,
    judged,
    lose,
    named,
    one_task,
    policy,
    statuses,
)


def test_healthy_dsv4_passes() -> None:
    task, aime = a_task(GSM8K), a_task(AIME25, task="aime25")
    both = some_samples(task, aime)
    rules = policy(a_reference(task, 1258, 1319), a_reference(aime, 113, 120))
    findings = judged(both, both, rules)
    assert statuses(findings) == {Status.PASS}
    tests = {finding.test.kind for finding in findings if finding.test}
    assert tests == {TestKind.PAIRED, TestKind.CLUSTERED, TestKind.FLOOR}


def test_sick_gsm8k_fails_both_tests_with_its_figures() -> None:
    task = a_task(SICK_GSM8K)
    rules = policy(a_reference(task, 1258, 1319))
    findings = judged(some_samples(task), one_task(GSM8K), rules)
    paired, floor = named(findings, "paired-gsm8k"), named(findings, "floor-gsm8k")
    assert paired.status is floor.status is Status.FAIL
    assert paired.test is not None
    assert (paired.test.score, paired.test.reference) == pytest.approx((0.169, 0.954), abs=5e-4)
    assert paired.test.n == 1319
    assert (paired.test.b or 0) - (paired.test.c or 0) == 1258 - 223
    assert "16.91% against 95.38%" in paired.why
    assert "80% power" in paired.why


def test_sick_aime25_fails_in_a_single_pass_too() -> None:
    aime = a_task(some_right(28, 30), task="aime25")
    sick = a_task(some_right(0, 30), task="aime25")
    rules = policy(a_reference(aime, 113, 120))
    findings = judged(some_samples(sick), some_samples(aime), rules)
    assert named(findings, "paired-aime25").status is Status.FAIL
    assert named(findings, "floor-aime25").status is Status.FAIL


def test_a_healthy_single_pass_of_aime25_is_not_blocked_by_one_bad_draw() -> None:
    """26 of 30 is 0.867, below 0.90, which a healthy model reaches in 6% of its runs."""
    aime = a_task(some_right(26, 30), task="aime25")
    findings = judged(
        some_samples(aime),
        some_samples(a_task(some_right(28, 30), task="aime25")),
        policy(a_reference(aime, 113, 120)),
    )
    assert statuses(findings) == {Status.PASS}


def test_nine_lost_and_one_won_block() -> None:
    findings = judged(one_task(lose(GSM8K, 9, 1)), one_task(GSM8K))
    test = named(findings, "paired-gsm8k").test
    assert test is not None
    assert test.p_value == 0.0107421875
    assert (test.b, test.c) == (9, 1)
    assert test.discordance == pytest.approx(10 / 1319)
    assert named(findings, "paired-gsm8k").status is Status.FAIL


@pytest.mark.parametrize(
    ("right", "status"), [(0, Status.VACUOUS), (4, Status.VACUOUS), (5, Status.PASS)]
)
def test_a_comparison_that_cannot_fail_proves_nothing(right: int, status: Status) -> None:
    """Four right answers, all lost, would give p = 1/16."""
    table = some_right(right, 40)
    found = named(judged(one_task(table), one_task(table)), "paired-gsm8k")
    assert found.status is status
    assert ("can't fail" in found.why) == (status is Status.VACUOUS)
    everything = judged(one_task(some_right(0, 40)), one_task(table))
    lost_all = named(everything, "paired-gsm8k").status
    assert lost_all is (Status.VACUOUS if status is Status.VACUOUS else Status.FAIL)


def test_repeats_of_few_questions_cannot_fail_either() -> None:
    table = [[True] * 8] * 4 + [[False] * 8] * 26
    found = named(judged(one_task(table), one_task(table)), "paired-gsm8k")
    assert found.status is Status.VACUOUS


def test_a_better_arm_passes() -> None:
    findings = judged(one_task(lose(GSM8K, 1, 30)), one_task(GSM8K))
    assert statuses(findings) == {Status.PASS}


def test_without_a_reference_on_record_the_published_figure_is_shown_not_used() -> None:
    findings = judged(one_task(GSM8K), one_task(GSM8K))
    floor = named(findings, "floor-gsm8k")
    assert floor.status is Status.PASS
    assert floor.test is None
    assert "95.4% is published without" in floor.why


def test_a_reference_of_another_protocol_is_refused() -> None:
    other = a_task(GSM8K, protocol=a_protocol(shots=8))
    findings = judged(one_task(GSM8K), one_task(GSM8K), policy(a_reference(other, 1258, 1319)))
    found = named(findings, "protocol-gsm8k")
    assert found.status is Status.INVALID
    assert "another protocol" in found.why
    assert "floor-gsm8k" not in {finding.check for finding in findings}


def test_a_reference_of_other_documents_is_refused() -> None:
    other = a_task(GSM8K, dataset=made_up_dataset(1319, "new edition"))
    findings = judged(one_task(GSM8K), one_task(GSM8K), policy(a_reference(other, 1258, 1319)))
    assert "other documents" in named(findings, "protocol-gsm8k").why


@pytest.mark.parametrize(
    "changes",
    [
        {"shots": 8},
        {"template": "chat"},
        {"token_cap": 512},
        {"filters": ("take_first",)},
        {"thinking": "off"},
        {"seed": 1},
        {"limit": 200},
        {"task_sha256": "c" * 64},
        {"chat_template_sha256": "d" * 64},
        {"lm_eval": "0.4.10"},
    ],
)
def test_arms_of_two_protocols_are_not_compared(changes: dict[str, Any]) -> None:
    findings = judged(one_task(GSM8K, protocol=a_protocol(**changes)), one_task(GSM8K))
    found = named(findings, "protocol-gsm8k")
    assert found.status is Status.INVALID
    assert next(iter(changes)) in found.why
    assert "paired-gsm8k" not in {finding.check for finding in findings}
