"""Score cells that ran on an H200, judged again under the shipped policy and reference."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from fixtures.cells.cell import CellKey, Plan
from fixtures.evidence.samples import Outcome, Samples, read_samples, write_samples
from fixtures.run.ledger import Ledger
from fixtures.run.outfolder import PLAN_FILE
from gates.evidence import LEDGER_FILE, judge_folder, read_evidence
from gates.judge import judge_cell
from gates.policy import Policy, read_policy
from gates.scores.references import references_of
from gates.scores.result import ScoreTest, TestKind
from gates.verdict import Finding, Status, Verdict
from suites.selftest.score_corpus import (
    EXPECTED,
    PAGE,
    Expected,
    judged,
    recordings,
    table,
    unpacked,
    with_table,
)
from suites.selftest.scrubbed import machine_path

DAY = date(2026, 11, 30)
NONE = "arithmetic.NONE.bk0.score"
DECODE = "arithmetic.FULL_DECODE_ONLY.bk0.score"
RECORDINGS = pytest.mark.parametrize("corpus", recordings(), ids=lambda path: path.name)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return unpacked(tmp_path / "out")


def verdict(out: Path, key: str, policy: Policy) -> Verdict:
    verdicts = judge_folder([out], policy, (), DAY).verdicts
    return next(one for one in verdicts if str(one.key) == key)


def named(found: Verdict, check: str) -> Finding:
    return next(finding for finding in found.findings if finding.check == check)


def figures(test: ScoreTest) -> list[float]:
    """All numbers of a test; another scipy may differ in their last digits."""
    values = test.plain().values()
    return [value for value in values if isinstance(value, int | float)]


def with_wrong(samples: Samples, count: int) -> Samples:
    """The first `count` answers turned wrong."""
    (task,) = samples.tasks
    wrong = tuple(one.model_copy(update={"correct": False}) for one in task.samples[:count])
    task = task.model_copy(update={"samples": (*wrong, *task.samples[count:])})
    return samples.model_copy(update={"tasks": (task,)})


def unreadable(samples: Samples, count: int) -> Samples:
    """The first `count` answers turned into what cannot be parsed."""
    (task,) = samples.tasks
    changes = {"outcome": Outcome.UNPARSABLE, "correct": None, "answer": None}
    spoiled = tuple(one.model_copy(update=changes) for one in task.samples[:count])
    task = task.model_copy(update={"samples": (*spoiled, *task.samples[count:])})
    return samples.model_copy(update={"tasks": (task,)})


def lose(
    out: Path, key: str, count: int, spoil: Callable[[Samples, int], Samples] = with_wrong
) -> None:
    """Spoil `count` recorded answers of a cell, in its file and in the ledger."""
    folder = out / "cells" / key / "attempt-0"
    run = Ledger(out / LEDGER_FILE).last_run(CellKey.parse(key))
    assert run is not None
    assert run.observation is not None
    assert run.observation.samples is not None
    file = write_samples(folder, spoil(read_samples(folder, run.observation.samples), count))
    observation = run.observation.model_copy(update={"samples": file})
    Ledger(out / LEDGER_FILE).append(run.model_copy(update={"observation": observation}))


@RECORDINGS
def test_the_recorded_cells_are_judged_as_expected(corpus: Path, tmp_path: Path) -> None:
    wanted = Expected.read_json(corpus / EXPECTED)
    found = judged(unpacked(tmp_path / "out", corpus), DAY)
    assert found.killed == wanted.killed
    for one, other in zip(found.cells, wanted.cells, strict=True):
        assert (one.key, one.status, one.liveness) == (other.key, other.status, other.liveness)
        assert one.blocks == other.blocks
        for test, expected in zip(one.tests, other.tests, strict=True):
            assert figures(test) == pytest.approx(figures(expected), rel=1e-6)
            assert (test.kind, test.task) == (expected.kind, expected.task)


def test_the_page_shows_the_figures_of_every_recorded_cell() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page) == page
    told = table()
    cells = [
        cell for corpus in recordings() for cell in Expected.read_json(corpus / EXPECTED).cells
    ]
    assert len(told) >= 2 + len(cells)
    assert with_table(page.replace(told[2], "| old |")) == page


def test_graphs_of_the_h200_lost_no_answer(out: Path) -> None:
    for mode in ("PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"):
        found = verdict(out, f"arithmetic.{mode}.bk0.score", read_policy())
        assert found.status is Status.PASS
        kinds = {finding.test.kind: finding.test for finding in found.findings if finding.test}
        assert set(kinds) == {TestKind.PAIRED, TestKind.FLOOR}
        paired = kinds[TestKind.PAIRED]
        assert (paired.n, paired.b, paired.c, paired.p_value) == (1000, 0, 0, 1.0)
        assert paired.detectable == pytest.approx(0.0067, abs=1e-4)


@RECORDINGS
def test_every_mutant_that_ran_was_killed_by_its_gate(corpus: Path) -> None:
    planted = {cell.key.variant for cell in Plan.read_json(corpus / PLAN_FILE).cells}
    assert set(Expected.read_json(corpus / EXPECTED).killed) == planted - {None}


@pytest.mark.parametrize(
    ("cell", "check", "b", "n"),
    [
        ("FULL_DECODE_ONLY.bk0.score.score-stale-lengths", "unparsable", 1000, 1000),
        ("FULL_AND_PIECEWISE.bk0.score.score-stale-block-table", "paired", 1000, 1000),
        ("FULL_DECODE_ONLY.bk0.score.score-replay-skipped", "unparsable", 995, 1000),
        ("FULL.bk0.score.score-frozen-query-length", "paired", 754, 996),
    ],
)
def test_planted_faults_block_with_figures(
    out: Path, cell: str, check: str, b: int, n: int
) -> None:
    found = verdict(out, f"arithmetic.{cell}", read_policy())
    blocking = named(found, f"{check}-graphgate-arithmetic")
    assert (found.status, blocking.status) == (Status.FAIL, Status.FAIL)
    assert blocking.test is not None
    assert (blocking.test.b, blocking.test.c, blocking.test.n) == (b, 0, n)
    assert blocking.test.p_value < 1e-200
    assert blocking.test.adjusted is not None
    assert blocking.test.adjusted < 1e-200
    assert blocking.test.power > 0.95


def test_a_planted_fault_blocks_by_scores_alone_though_logprobs_are_told(out: Path) -> None:
    """FULL as it is differs by nats in short prompts and loses nothing: parity only tells."""
    plain = verdict(out, "arithmetic.FULL.bk0.score", read_policy())
    told = named(plain, "difference")
    assert told.status is Status.PASS
    assert "6.29 nats at most (prompt-8" in told.why
    assert (
        "0.0391 nats at most"
        in named(verdict(out, "arithmetic.PIECEWISE.bk0.score", read_policy()), "difference").why
    )


def test_a_frozen_query_length_spares_the_prompts_that_no_graph_ran(out: Path) -> None:
    """The first 64 questions fill steps beyond the largest graph; later ones come one by one."""
    key = "arithmetic.FULL.bk0.score.score-frozen-query-length"
    run = Ledger(out / LEDGER_FILE).last_run(CellKey.parse(key))
    assert run is not None
    assert run.observation is not None
    assert run.observation.samples is not None
    folder = out / "cells" / key / "attempt-0"
    (task,) = read_samples(folder, run.observation.samples).tasks
    right = [one.doc_id for one in task.samples if one.correct]
    assert sum(one < 64 for one in right) == 63
    assert len(right) == 242
    lost = [one for one in task.samples if one.outcome is Outcome.UNPARSABLE]
    assert [one.length for one in lost] == [6, 6, 2, 6]
    assert not any(one.hit_cap for one in lost)


@pytest.mark.parametrize(
    ("count", "checks"), [(4, set()), (5, {"paired"}), (30, {"paired", "floor"})]
)
def test_lost_answers_would_have_blocked(out: Path, count: int, checks: set[str]) -> None:
    """The recorded evidence with answers turned wrong: no drop passes for lack of a test."""
    lose(out, DECODE, count)
    evidence, policy = read_evidence([out], read_policy()), read_policy()
    # Alone: five lost answers (p = 1/32) are one test's rejection, and no whole family's.
    found = judge_cell(
        evidence.runs[DECODE], evidence.runs[NONE], policy, (), DAY, evidence.files
    ).findings
    failed = {finding.check.split("-")[0] for finding in found if finding.status is Status.FAIL}
    assert failed == checks


def test_answers_that_cannot_be_read_block_with_figures(out: Path) -> None:
    """What a graph leaves that computes nothing of use: there is no score, and still a test."""
    lose(out, DECODE, 900, unreadable)
    found = verdict(out, DECODE, read_policy())
    assert named(found, "answers-graphgate-arithmetic").status is Status.INVALID
    blocking = named(found, "unparsable-graphgate-arithmetic")
    assert blocking.status is Status.FAIL
    assert blocking.test is not None
    assert (blocking.test.b, blocking.test.c, blocking.test.n) == (900, 0, 1000)
    assert blocking.test.p_value < 1e-200
    assert blocking.test.detectable == pytest.approx(0.0067, abs=1e-4)


def test_the_recorded_reference_says_where_it_comes_from() -> None:
    (reference,) = references_of("arithmetic", read_policy().references).references
    assert (reference.right, reference.n, reference.questions) == (1000, 1000, 1000)
    origin = reference.origin
    assert (origin.vllm, origin.driver, origin.gpu) == ("0.26.0", "580.159.04", "NVIDIA H200")
    assert origin.recorded == DAY


def test_the_recorded_reference_of_another_protocol_is_refused(out: Path) -> None:
    policy = read_policy()
    known = references_of("arithmetic", policy.references)
    others = tuple(one.model_copy(update={"protocol": "0" * 64}) for one in known.references)
    changed = known.model_copy(update={"references": others})
    found = verdict(out, NONE, policy.model_copy(update={"references": (changed,)}))
    assert found.status is Status.INVALID
    assert "another protocol" in named(found, "protocol-graphgate-arithmetic").why
    assert not any(finding.test for finding in found.findings)


@RECORDINGS
def test_the_recording_holds_nothing_of_its_machine(corpus: Path, tmp_path: Path) -> None:
    out = unpacked(tmp_path / "out", corpus)
    texts = [path for path in out.rglob("*") if path.suffix in (".json", ".jsonl")]
    packed = list(out.rglob("*.xz"))
    assert texts
    assert packed or not (out / "cells").exists()
    for path in texts:
        assert machine_path(path.read_text(encoding="utf-8")) is None, path
    for path in packed:
        content = lzma.decompress(path.read_bytes()).decode("latin-1")
        assert machine_path(content) is None, path
