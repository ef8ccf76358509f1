"""The contract tier on real releases: their contract records and what the gate finds in them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.evidence.cellrun import CellRun
from fixtures.run.ledger import Ledger
from gates.verdict import Verdicts

HERE = Path(__file__).parent
TABLE: dict[str, Any] = yaml.safe_load((HERE / "contract_table.yaml").read_text())
FINDINGS: dict[str, Any] = yaml.safe_load((HERE / "release_findings.yaml").read_text())
IN_MAKE_TEST = ("0.26.0", "0.33.0")
CHILD_LIMIT_MIB = 2048


def releases(names: list[str]) -> list[Any]:
    """Two releases for `make test`; the others belong to `make test-releases`."""
    return [
        pytest.param(
            name,
            marks=[pytest.mark.release(name)]
            + ([] if name in IN_MAKE_TEST else [pytest.mark.releases]),
        )
        for name in names
    ]


def graphgate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "graphgate", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def gate(release: str, out: Path, *arguments: str) -> tuple[int, Verdicts]:
    done = graphgate("gate", "--tier", "contract", "--vllm", release, "--out", str(out), *arguments)
    assert (out / "verdicts.json").exists(), done.stderr
    return done.returncode, Verdicts.read_json(out / "verdicts.json")


def blocking(verdicts: Verdicts) -> dict[str, set[str]]:
    """By `gate:CLASS check`, the models in whose cells it blocks."""
    found = defaultdict(set)
    for verdict in verdicts.verdicts:
        for finding in verdict.findings:
            if finding.status.blocks:
                found[f"{finding.identity} {finding.check}"].add(verdict.key.model)
    return dict(found)


@pytest.mark.parametrize("release", releases(list(TABLE["releases"])))
def test_the_contract_record_says_what_the_table_says(release: str) -> None:
    done = graphgate("drift", "--vllm", release, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    said = {row: record["rows"][row] for row in TABLE["rows"]}
    assert said == dict(zip(TABLE["rows"], TABLE["releases"][release], strict=True))
    assert record["changes"] is None


@pytest.mark.parametrize("release", releases(list(FINDINGS["releases"])))
def test_the_gate_finds_what_is_known_and_nothing_else(release: str, tmp_path: Path) -> None:
    known = FINDINGS["releases"][release] or {}
    code, verdicts = gate(release, tmp_path / "out", "--model", "all")
    assert blocking(verdicts) == {name: set(models) for name, models in known.items()}
    assert code == (10 if known else 0)
    assert_in_bounds(Ledger(tmp_path / "out" / "ledger.jsonl").read().runs)


def assert_in_bounds(runs: tuple[CellRun, ...] | list[CellRun]) -> None:
    """Every cell ran in a process of its own, at a bounded size, and left nothing behind."""
    peaks = [attempt.peak_rss_mib or 0.0 for run in runs for attempt in run.attempts]
    assert 0 < max(peaks) < CHILD_LIMIT_MIB
    assert not [attempt for run in runs for attempt in run.attempts if attempt.leaked_pids]


class TestDefectsThatReleasesCarried:
    """The borders, each by its own finding. The checks know no release: see gates/contract."""

    @pytest.mark.releases
    def test_shared_warmup_state_is_named(self, tmp_path: Path) -> None:
        code, verdicts = gate("0.21.0", tmp_path / "out", "--model", "dsv4")
        assert code == 10
        why = next(
            finding.why
            for verdict in verdicts.verdicts
            for finding in verdict.findings
            if finding.identity == "audit:C" and finding.check == "shared-state"
        )
        assert "warm-up" in why
        assert "cudagraph_utils.py: CudaGraphManager.capture" in why

    def test_oversized_dummy_request_names_length_and_place(self, tmp_path: Path) -> None:
        _, verdicts = gate("0.26.0", tmp_path / "out", "--model", "llama", "--modes", "FULL")
        finding = next(
            finding
            for verdict in verdicts.verdicts
            for finding in verdict.findings
            if finding.check == "eager-inputs"
        )
        assert finding.fault_class == "E"
        assert finding.measured == "longest dummy sequence 241 tokens"
        assert "input_batch.py: InputBatch.make_dummy" in finding.why

    def test_drift_asks_for_the_hardware_tiers(self, tmp_path: Path) -> None:
        base = tmp_path / "base.json"
        assert graphgate("drift", "--vllm", "0.26.0", "--record", str(base)).returncode == 0
        code, verdicts = gate(
            "0.33.0", tmp_path / "out", "--model", "llama", "--modes", "FULL", "--base", str(base)
        )
        assert code == 31
        assert "dummy_longest" in {finding.check for finding in verdicts.findings}
        assert not verdicts.decision.blockers
        assert "canary tier" in verdicts.decision.incomplete[0]
        again = graphgate("judge", str(tmp_path / "out"))
        assert again.returncode == 31
