"""The score gate: what each kind of evidence comes to, and the figures that are stated."""

from __future__ import annotations

import hashlib
import lzma
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun, Observation, Refusal, RefusalKind
from fixtures.evidence.exits import Exited, Signaled
from fixtures.evidence.samples import (
    SAMPLES_FILE,
    Outcome,
    Samples,
    TaskSamples,
    read_samples,
    write_samples,
)
from gates.evidence import judge_folder, read_evidence
from gates.files import EvidenceFiles
from gates.judge import judge_cell
from gates.policy import Policy, read_policy
from gates.scores.gate import judge_scores
from gates.scores.references import Reference
from gates.scores.result import TestKind
from gates.verdict import ExitCode, Finding, Gate, Status
from graphgate.simulated import doc_hash, made_up_dataset
from reports.history.store import History
from reports.html.figures import scores_of
from reports.html.page import render_html
from suites.selftest.answers import (
    FULL,
    NONE,
    Recorded,
    a_probe,
    a_protocol,
    a_reference,
    a_sample,
    a_task,
    references,
    some_right,
    some_samples,
    stored,
)
from suites.selftest.build import a_cell, a_crash, a_plan, a_run, an_attempt, write_shard

POLICY = read_policy()
TODAY = date(2026, 11, 30)
GSM8K, SICK_GSM8K = some_right(1258, 1319), some_right(223, 1319)
"""0.954 and 0.169, as the repair of FlashMLA's planning was published with."""
AIME25 = some_right(113, 120).reshape(30, 4)
"""0.942 of thirty questions, four times each."""


def policy(*recorded: Reference, **changes: Any) -> Policy:
    rules = POLICY.scores.model_copy(update=changes)
    return POLICY.model_copy(update={"scores": rules, "references": (references(recorded),)})


def judged(
    graph: Samples | ConfigError | None,
    none: Samples | ConfigError | None,
    rules: Policy = POLICY,
) -> tuple[Finding, ...]:
    recorded = Recorded()
    reference = recorded.run(NONE, none)
    return judge_scores(recorded.run(FULL, graph), reference, rules, recorded.samples)


def named(findings: tuple[Finding, ...], check: str) -> Finding:
    (found,) = (finding for finding in findings if finding.check == check)
    return found


def statuses(findings: tuple[Finding, ...]) -> set[Status]:
    return {finding.status for finding in findings}


def one_task(*args: Any, **changes: Any) -> Samples:
    return some_samples(a_task(*args, **changes))


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


def lose(table: Any, b: int, c: int) -> Any:
    """The answers after `b` right ones were lost and `c` wrong ones won."""
    changed = table.copy()
    changed[[i for i, right in enumerate(table) if right][:b]] = False
    changed[[i for i, right in enumerate(table) if not right][:c]] = True
    return changed


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


TASK = a_task(some_right(90, 100))
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


# Looks fixed in advance


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


# One alpha for a decision, from files


def night(out: Path, tables: dict[str, Any]) -> Any:
    """Cells of llama's modes judged from an OUT folder."""
    cells = [a_cell(key) for key in tables]
    runs = [
        stored(cell, some_samples(a_task(table)), out)
        for cell, table in zip(cells, tables.values(), strict=True)
    ]
    write_shard(out, a_plan(*cells), runs)
    return judge_folder([out], POLICY, (), TODAY)


MODES = ("FULL", "PIECEWISE", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")


def test_a_lone_small_p_does_not_block_among_many(tmp_path: Path) -> None:
    tables = {NONE: GSM8K} | {f"dsv4.{mode}.bk0.score": lose(GSM8K, 3, 3) for mode in MODES}
    tables["dsv4.FULL.bk0.score"] = lose(GSM8K, 9, 2)
    verdicts = night(tmp_path, tables)
    assert verdicts.decision.allow
    test = next(f.test for v in verdicts.verdicts for f in v.findings if f.test and f.test.b == 9)
    assert test.p_value == pytest.approx(0.0327, abs=1e-4)
    assert test.adjusted == pytest.approx(4 * test.p_value)


def test_a_real_drop_blocks_among_many_with_its_figures(tmp_path: Path) -> None:
    tables = {NONE: GSM8K} | {f"dsv4.{mode}.bk0.score": GSM8K for mode in MODES}
    tables["dsv4.FULL.bk0.score"] = lose(GSM8K, 30, 3)
    verdicts = night(tmp_path, tables)
    assert verdicts.decision.exit_code is ExitCode.FAIL
    (blocker,) = verdicts.decision.blockers
    assert "30 were lost and 3 won" in blocker.reason
    assert "after Holm over 4 tests" in blocker.reason


def test_the_family_does_not_depend_on_order(tmp_path: Path) -> None:
    tables = {NONE: GSM8K} | {
        f"dsv4.{mode}.bk0.score": lose(GSM8K, 9 + 3 * i, 1) for i, mode in enumerate(MODES)
    }
    one = night(tmp_path / "one", tables)
    other = night(tmp_path / "other", dict(reversed(tables.items())))
    assert {v.key: v for v in one.verdicts} == {v.key: v for v in other.verdicts}


# The file


def test_the_file_comes_back_equal(tmp_path: Path) -> None:
    samples = some_samples(TASK, probe=a_probe(logprob=float("-inf")))
    assert read_samples(tmp_path, write_samples(tmp_path, samples)) == samples


def test_a_file_that_was_changed_is_not_read(tmp_path: Path) -> None:
    file = write_samples(tmp_path, some_samples(TASK))
    path = tmp_path / SAMPLES_FILE
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ConfigError, match="not the file"):
        read_samples(tmp_path, file)
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        read_samples(tmp_path, file)


@pytest.mark.parametrize(
    "content",
    [
        b"no xz",
        lzma.compress(b"{"),
        lzma.compress(some_samples(TASK).to_json().encode())[:-30],
        lzma.compress(some_samples(TASK).to_json().replace("true", "NaN", 1).encode()),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    file = write_samples(tmp_path, some_samples(TASK))
    (tmp_path / SAMPLES_FILE).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    with pytest.raises(ConfigError):
        read_samples(tmp_path, file.model_copy(update={"sha256": digest}))


def test_files_of_evidence_are_found_in_any_shard(tmp_path: Path) -> None:
    run = stored(a_cell(FULL), some_samples(TASK), tmp_path / "two")
    (tmp_path / "one").mkdir()
    files = EvidenceFiles([tmp_path / "one", tmp_path / "two"])
    assert files.samples(run) == some_samples(TASK)
    with pytest.raises(ConfigError, match="attempt-0 of dsv4"):
        EvidenceFiles([tmp_path / "one"]).samples(run)


def test_a_cell_judged_away_from_its_files_is_no_pass(tmp_path: Path) -> None:
    run: CellRun = stored(a_cell(NONE), some_samples(TASK), tmp_path)
    verdict = judge_cell(run, None, POLICY, (), TODAY)
    assert verdict.status is Status.INVALID
    assert judge_cell(run, None, POLICY, (), TODAY, EvidenceFiles([tmp_path])).status is Status.PASS


def test_only_an_answer_is_right_or_wrong() -> None:
    with pytest.raises(ValueError, match="although"):
        a_sample(0, True, outcome=Outcome.NEVER_RETURNED)


# What a reader sees


def test_reports_state_the_figures_of_every_test(tmp_path: Path) -> None:
    verdicts = night(tmp_path, {NONE: GSM8K, FULL: lose(GSM8K, 30, 3)})
    (full,) = (verdict for verdict in verdicts.verdicts if str(verdict.key) == FULL)
    (score,) = scores_of(full)
    assert (score.task, score.test, score.b, score.c) == ("gsm8k", "paired", 30, 3)
    evidence = read_evidence([tmp_path], POLICY)
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    page = render_html(verdicts, evidence.plan, evidence.runs, moment).decode()
    assert "<h3>Scores</h3>" in page
    assert "30, 3" in page
    with History(tmp_path / "history.db") as history:
        assert history.add_night(verdicts, evidence.plan, evidence.runs, moment)
        ((task, value),) = history.rows("SELECT task, score FROM score")
    assert task == "gsm8k"
    assert float(value) == pytest.approx(1231 / 1319)


def test_of_a_cell_that_two_shards_ran_each_run_has_its_own_answers(tmp_path: Path) -> None:
    """The worse run counts, with its own file; neither is taken for a changed one."""
    for name, table in (("one", some_right(90, 100)), ("two", some_right(20, 100))):
        run = stored(a_cell(NONE), some_samples(a_task(table)), tmp_path / name)
        write_shard(tmp_path / name, a_plan(run.cell), [run])
    rules = policy(a_reference(a_task(some_right(90, 100)), 90, 100))
    (verdict,) = judge_folder([tmp_path / "one", tmp_path / "two"], rules, (), TODAY).verdicts
    assert verdict.status is Status.FAIL
    assert "20.00% of 100 answers" in named(verdict.findings, "floor-gsm8k").why
