"""Scores from files: one alpha for a decision, the file of answers, and what a reader sees."""

from __future__ import annotations

import hashlib
import lzma
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.samples import (
    SAMPLES_FILE,
    Outcome,
    read_samples,
    write_samples,
)
from gates.evidence import judge_folder, read_evidence
from gates.files import EvidenceFiles
from gates.judge import judge_cell
from gates.verdict import ExitCode, Status
from reports.history.store import History
from reports.html.figures import scores_of
from reports.html.page import render_html
from suites.selftest.answers import (
    FULL,
    NONE,
    a_probe,
    a_reference,
    a_sample,
    a_task,
    some_right,
    some_samples,
    stored,
)
from suites.selftest.build import a_cell, a_plan, write_shard
from suites.selftest.score_judging import (
    GSM8K,
    POLICY,
    TASK,
    TODAY,
    lose,
    named,
    night,
    policy,
)

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
