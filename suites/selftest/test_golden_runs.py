"""What ran on an H200 is judged as was decided, cell by cell, from its recorded evidence."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from textwrap import dedent

import pytest

from fixtures.cells.mutants import load_mutants
from gates.evidence import judge_evidence, read_evidence
from gates.mutants import MutantResult, judge_mutants
from gates.policy import read_policy
from gates.verdict import Finding, Gate, Status, Verdict
from suites.selftest.golden_runs import unpack
from suites.selftest.run_corpus import RUN_CORPUS
from suites.selftest.scrubbed import machine_path

README = Path(__file__).parents[2] / "README.md"
RUN = "h200-0.26.0"
MATRIX = ("matrix", "mutants")
"""The whole matrix and planted faults, recorded without graph audits."""
NIGHT = ("cold", "warm", "breakable", "before", "quiet")
"""Planted faults and variants with their audits: two runs, and single cells of three others."""
AGAIN = ("again", "later")
"""The whole matrix once more, with audits, and what ran after it."""
S2 = "dsv4.FULL_DECODE_ONLY.bk1.canary.canary-warmup-reused-decode"
S2_BK0 = "dsv4.FULL_AND_PIECEWISE.bk0.canary.canary-warmup-reused-mixed-off"
V1 = "llama.FULL.bk0.canary.v1runner"
DECODE = "llama.FULL_DECODE_ONLY.bk0.canary"


def expected(part: str) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(
        (RUN_CORPUS / RUN / part / "expected.json").read_text(encoding="utf-8")
    )
    return found


def judged(parts: tuple[str, ...], folder: Path) -> Mapping[str, Verdict]:
    """The verdicts on parts that hold each other's references."""
    shards = [unpack(f"{RUN}/{part}", folder / part) for part in parts]
    policy = read_policy()
    found = judge_evidence(read_evidence(shards, policy), policy, (), date(2026, 11, 30))
    return {str(verdict.key): verdict for verdict in found.verdicts}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Verdict]:
    return judged(MATRIX, tmp_path_factory.mktemp("matrix"))


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Verdict]:
    return judged(NIGHT, tmp_path_factory.mktemp("night"))


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Verdict]:
    return judged(AGAIN, tmp_path_factory.mktemp("again"))


def mutant_results(verdicts: Mapping[str, Verdict]) -> dict[str, MutantResult]:
    planted = [mutant for mutant in load_mutants() if str(mutant.key) in verdicts]
    return {result.name: result for result in judge_mutants(planted, verdicts)}


def finding(verdict: Verdict, check: str) -> Finding:
    (found,) = (f for f in verdict.findings if (f.gate, f.check) == (Gate.PARITY, check))
    return found


@pytest.mark.parametrize(
    ("parts", "fixture"), [(MATRIX, "verdicts"), (NIGHT, "night"), (AGAIN, "again")]
)
def test_every_cell_is_judged_as_expected(
    parts: tuple[str, ...], fixture: str, request: pytest.FixtureRequest
) -> None:
    verdicts: Mapping[str, Verdict] = request.getfixturevalue(fixture)
    told = {
        key: {
            "status": verdict.status.value,
            "blocking": [f"{f.identity}:{f.check}" for f in verdict.findings if f.status.blocks],
        }
        for key, verdict in verdicts.items()
    }
    assert told == {key: one for part in parts for key, one in expected(part).items()}


def test_planted_faults_are_killed_by_their_gate(night: Mapping[str, Verdict]) -> None:
    results = mutant_results(night)
    assert len(results) == 17
    assert all(result.killed for result in results.values()), results
    assert results["canary-eager-metadata"].gate is Gate.LIVENESS
    assert "FlashAttnFwdSm90" in results["canary-eager-metadata"].why


def test_a_read_beyond_a_row_may_crash_or_not_and_is_named_either_way(
    again: Mapping[str, Verdict],
) -> None:
    (result,) = mutant_results(again).values()
    assert (result.name, result.gate) == ("canary-eager-metadata", Gate.AUDIT)
    planted = [one for key, one in again.items() if "eager-metadata" in key]
    assert sorted(one.status for one in planted) == [Status.CRASH, *[Status.FAIL] * 3]


def test_two_runs_of_the_matrix_agree_on_every_cell(
    verdicts: Mapping[str, Verdict], again: Mapping[str, Verdict]
) -> None:
    cells = [key for key in again if key in verdicts]
    assert len(cells) == 30
    assert [key for key in cells if again[key].status is not verdicts[key].status] == []


def test_a_fault_in_a_cell_that_crashes_anyway_needs_a_gate_that_judged_both(
    verdicts: Mapping[str, Verdict], night: Mapping[str, Verdict]
) -> None:
    results = mutant_results(verdicts)
    without_audits = results.pop("canary-warmup-reused-mixed")
    assert not without_audits.killed
    assert "ended before audit could judge it: CRASH" in without_audits.why
    assert len(results) == 4
    assert all(result.killed for result in results.values()), results
    with_audits = mutant_results(night)["canary-warmup-reused-mixed"]
    assert (with_audits.killed, with_audits.gate) == (True, Gate.AUDIT)


@pytest.mark.parametrize(("key", "fixture"), [(S2, "verdicts"), (S2, "night"), (S2_BK0, "night")])
def test_reused_warm_up_state_shows_at_every_batch_size(
    key: str, fixture: str, request: pytest.FixtureRequest
) -> None:
    verdict = request.getfixturevalue(fixture)[key]
    for check, groups in (("batch-on-size", 5), ("batch-off-size", 3)):
        found = finding(verdict, check)
        assert found.status is Status.FAIL
        assert f"{groups} of {groups} groups" in found.why
    beyond = finding(verdict, "batch-beyond")
    assert beyond.status is Status.PASS, "no graph serves those"


def test_batches_with_the_v1_runner_are_wrong_unless_heads_are_of_128(
    night: Mapping[str, Verdict],
) -> None:
    wrong = night[V1]
    assert "12 of 15 batches" in finding(wrong, "batch-on-size").why, "batches of one are right"
    assert finding(wrong, "prompt-alone-on-size").status is Status.PASS
    assert "no numbers" in finding(night[f"{V1}-32-splits"], "finite").why
    assert night[f"{V1}-heads-128"].status is Status.PASS


def test_the_probe_changes_no_byte_of_the_outputs(tmp_path: Path) -> None:
    shards = [unpack(f"{RUN}/{part}", tmp_path / part) for part in ("cold", "warm")]
    runs = read_evidence(shards, read_policy()).runs
    seen = [runs[key].observation for key in (DECODE, f"{DECODE}.probe-off")]
    digests = {one.outputs.sha256 for one in seen if one is not None and one.outputs is not None}
    assert len(seen) == 2
    assert len(digests) == 1


@pytest.mark.parametrize("fixture", ["verdicts", "again"])
def test_full_graphs_of_llama_are_wrong_where_prompts_fit_them(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    for breakable in ("bk0", "bk1"):
        verdict = request.getfixturevalue(fixture)[f"llama.FULL.{breakable}.canary"]
        found = finding(verdict, "prompt-alone-on-size")
        assert (found.status, found.fault_class) == (Status.FAIL, "D")
        assert "wrong for prompts of 2, 4, 8, 16 tokens" in found.why


def test_the_table_of_clean_repeats_tells_what_is_judged() -> None:
    with (RUN_CORPUS / RUN / "clean_repeats.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    own = [row for row in rows if row["reference"] in ("none", "own run")]
    assert len(own) >= 20
    assert {row["status"] for row in own} <= {"PASS", "UNSUPPORTED"}
    for part in ("matrix", "cold", "warm", "again", "later"):
        told = {row["cell"]: row["status"] for row in rows if row["run"] == part}
        clean = {key: one["status"] for key, one in expected(part).items() if not one["blocking"]}
        recorded = expected(part).keys()
        assert {key: status for key, status in told.items() if key in recorded} == clean


def test_a_single_jump_beyond_what_two_cells_happen_to_have_is_no_finding(
    night: Mapping[str, Verdict],
) -> None:
    """Held against another run's reference, where no graph serves: 0.96 nats against 0.81."""
    far = finding(night["dsv4.FULL_DECODE_ONLY.bk0.canary"], "batch-beyond")
    assert far.status is Status.PASS
    assert "0.962 nats at most" in (far.measured or "")


def test_the_readme_shows_what_is_printed_of_the_matrix(tmp_path: Path) -> None:
    folder = unpack(f"{RUN}/again", tmp_path / "again")
    command = [sys.executable, "-m", "graphgate", "judge", str(folder)]
    printed = subprocess.run(
        command, env={**os.environ, "COLUMNS": "80"}, capture_output=True, text=True, check=False
    )
    assert printed.returncode == 11
    told = "\n".join(line.rstrip() for line in printed.stdout.splitlines())
    example = README.read_text(encoding="utf-8").partition("<!-- example:begin -->")[2]
    shown = example.partition("<!-- example:end -->")[0].splitlines()
    block = dedent("\n".join(line for line in shown if line.startswith("    ") or not line))
    before, after = block.strip().split("  [...]")
    assert before.strip() in told
    assert after.strip() in told


def test_golden_runs_name_no_machine(tmp_path: Path) -> None:
    for part in (*MATRIX, *NIGHT, *AGAIN):
        folder = unpack(f"{RUN}/{part}", tmp_path / part)
        for name in ("plan.json", "ledger.jsonl", "provenance.json", "expected.json"):
            assert machine_path((folder / name).read_text(encoding="utf-8")) is None, name
