"""What ran on an H200 is judged as was decided, cell by cell, from its recorded evidence."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest

from fixtures.cells.mutants import load_mutants
from gates.evidence import judge_evidence, read_evidence
from gates.mutants import judge_mutants
from gates.policy import read_policy
from gates.verdict import Finding, Gate, Status, Verdict
from suites.selftest.golden_runs import unpack
from suites.selftest.run_corpus import RUN_CORPUS
from suites.selftest.scrubbed import machine_path

RUN = "h200-0.26.0"
PARTS = ("matrix", "mutants")
S2 = "dsv4.FULL_DECODE_ONLY.bk1.canary.canary-warmup-reused-decode"


def expected(part: str) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(
        (RUN_CORPUS / RUN / part / "expected.json").read_text(encoding="utf-8")
    )
    return found


EXPECTED = {key: told for part in PARTS for key, told in expected(part).items()}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Verdict]:
    """All verdicts: the matrix and the mutants, which have their references there."""
    folder = tmp_path_factory.mktemp("golden")
    shards = [unpack(f"{RUN}/{part}", folder / part) for part in PARTS]
    policy = read_policy()
    judged = judge_evidence(read_evidence(shards, policy), policy, (), date(2026, 11, 30))
    return {str(verdict.key): verdict for verdict in judged.verdicts}


def finding(verdict: Verdict, check: str) -> Finding:
    (found,) = (f for f in verdict.findings if (f.gate, f.check) == (Gate.PARITY, check))
    return found


def test_every_cell_is_judged_as_expected(verdicts: Mapping[str, Verdict]) -> None:
    judged = {
        key: {
            "status": verdict.status.value,
            "blocking": [f"{f.identity}:{f.check}" for f in verdict.findings if f.status.blocks],
        }
        for key, verdict in verdicts.items()
    }
    assert judged == EXPECTED


def test_planted_faults_are_killed_by_their_gate(verdicts: Mapping[str, Verdict]) -> None:
    planted = [mutant for mutant in load_mutants() if str(mutant.key) in verdicts]
    results = {result.name: result for result in judge_mutants(planted, verdicts)}
    # At the eager breaks of its cell the release itself crashes, planted or not.
    assert not results.pop("canary-warmup-reused-mixed").killed
    assert len(results) == 4
    assert all(result.killed for result in results.values()), results


def test_reused_warm_up_state_shows_at_every_batch_size(verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts[S2]
    for check, groups in (("batch-on-size", 5), ("batch-off-size", 3)):
        found = finding(verdict, check)
        assert found.status is Status.FAIL
        assert f"{groups} of {groups} groups" in found.why
    beyond = finding(verdict, "batch-beyond")
    assert beyond.status is Status.PASS, "no graph serves those"


def test_full_graphs_of_llama_are_wrong_where_prompts_fit_them(
    verdicts: Mapping[str, Verdict],
) -> None:
    for breakable in ("bk0", "bk1"):
        found = finding(verdicts[f"llama.FULL.{breakable}.canary"], "prompt-alone-on-size")
        assert (found.status, found.fault_class) == (Status.FAIL, "D")
        assert "wrong for prompts of 2, 4, 8, 16 tokens" in found.why


def test_the_table_of_clean_repeats_tells_what_is_judged() -> None:
    with (RUN_CORPUS / RUN / "clean_repeats.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert len(rows) >= 20
    assert {row["status"] for row in rows} <= {"PASS", "UNSUPPORTED"}
    told = {row["cell"]: row["status"] for row in rows if row["run"] == "matrix"}
    clean = {key: one["status"] for key, one in expected("matrix").items() if one["blocking"] == []}
    assert told == clean


def test_golden_runs_name_no_machine(tmp_path: Path) -> None:
    for part in PARTS:
        folder = unpack(f"{RUN}/{part}", tmp_path / part)
        for name in ("plan.json", "ledger.jsonl", "provenance.json", "expected.json"):
            assert machine_path((folder / name).read_text(encoding="utf-8")) is None, name
