"""Planted regressions: their list, their plan, the rule of killing, and the score on releases."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import fixtures
from fixtures.cells.axes import Tier
from fixtures.cells.cell import CellKey, Source
from fixtures.cells.machine import MachineProbe
from fixtures.cells.mutants import (
    Mutant,
    MutantPlan,
    load_mutants,
    plan_mutants,
)
from fixtures.cells.sweeps import load_catalog
from fixtures.errors import ConfigError
from gates.mutants import judge_mutant, judge_mutants
from gates.verdict import Finding, Gate, Status, Verdict

MUTANTS = load_mutants()
NO_GPU = MachineProbe(nvml_error="NVML Shared Library Not Found")
RELEASES = [
    pytest.param("0.26.0", marks=pytest.mark.release("0.26.0")),
    pytest.param("0.27.0", marks=[pytest.mark.release("0.27.0"), pytest.mark.releases]),
    pytest.param("0.30.0", marks=[pytest.mark.release("0.30.0"), pytest.mark.releases]),
    pytest.param("0.33.0", marks=pytest.mark.release("0.33.0")),
]
CELL = CellKey.parse("dsv4.FULL_DECODE_ONLY.bk0.contract")
MUTANT = Mutant(
    name="stale-lengths",
    origin="check",
    description="Lengths go to a copy.",
    cell=CELL,
    gate="parity",
    fault_class="A",
)


def planned(version: str = "0.26.0", mutants: tuple[Mutant, ...] = MUTANTS) -> MutantPlan:
    source = Source(
        kind="release", request=version, version=version, identity=version, python_path="/nowhere"
    )
    return plan_mutants(mutants, Tier.CONTRACT, source, NO_GPU, load_catalog())


def a_verdict(*findings: Finding, status: Status = Status.FAIL) -> Verdict:
    return Verdict(key=CELL, status=status, findings=findings)


def a_finding(
    gate: str = "parity", fault_class: str = "A", check: str = "replay", status: str = "FAIL"
) -> Finding:
    return Finding(
        gate=Gate(gate),
        check=check,
        fault_class=fault_class,
        status=Status(status),
        why=f"{check} is wrong",
    )


class TestList:
    def test_every_seed_and_every_class_that_python_decides_has_a_mutant(self) -> None:
        assert {mutant.origin for mutant in MUTANTS} == {"S1", "S2", "S3", "S4", "check"}
        assert {mutant.fault_class for mutant in MUTANTS} == {*"ABCDEFGHI", None}

    def test_every_mutant_expects_a_gate_that_there_is(self) -> None:
        assert {mutant.gate for mutant in MUTANTS} <= set(Gate)

    def test_what_can_be_planted_is_listed_and_the_reverse(self) -> None:
        folder = Path(fixtures.__file__).parent / "child" / "mutants"
        assert set(planted_names(folder)) == {mutant.plants or mutant.name for mutant in MUTANTS}

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"colour": "red"}, r"mutants\.0\.colour.*remove this key"),
            ({"fault_class": "Z"}, r"mutants\.0\.fault_class"),
            ({"cell": "dsv4"}, r"mutants\.0\.cell.*no cell key"),
            ({"versions": "new"}, r"mutants\.0\.versions.*no range of versions"),
            ({"name": "Not A Name"}, r"mutants\.0\.name"),
            ({"origin": "S9"}, r"mutants\.0\.origin"),
        ],
    )
    def test_a_broken_row_names_file_key_and_remedy(
        self, tmp_path: Path, change: dict[str, Any], told: str
    ) -> None:
        path = tmp_path / "mutants.yaml"
        path.write_text(yaml.safe_dump({"mutants": [{**MUTANT.plain(), **change}]}))
        with pytest.raises(ConfigError, match=told) as error:
            load_mutants(path)
        assert error.value.source == str(path)

    def test_a_name_that_stands_twice_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "mutants.yaml"
        path.write_text(yaml.safe_dump({"mutants": [MUTANT.plain(), MUTANT.plain()]}))
        with pytest.raises(ConfigError, match="stale-lengths is there twice"):
            load_mutants(path)


def planted_names(folder: Path) -> list[str]:
    """The keys of every `MUTANTS` table in the child's modules, which need torch to be imported."""
    found = []
    for path in folder.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "MUTANTS":
                assert isinstance(node.value, ast.Dict)
                found += [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
    return [str(name) for name in found]


class TestPlan:
    def test_a_mutant_differs_from_its_cell_in_nothing_else(self) -> None:
        made = planned()
        cells = {str(cell.key): cell for cell in made.plan.cells}
        for mutant in made.planted:
            plain, with_mutant = cells[str(mutant.cell)], cells[str(mutant.key)]
            assert plain.mutant is None
            assert with_mutant.mutant == mutant.name
            assert with_mutant.model_copy(update={"key": plain.key, "mutant": None}) == plain

    def test_a_cell_that_several_mutants_share_runs_once(self) -> None:
        made = planned()
        bases = [cell for cell in made.plan.cells if cell.mutant is None]
        assert len(bases) == len({mutant.cell for mutant in made.planted})

    def test_a_mutant_of_other_versions_is_left_out(self) -> None:
        newer = MUTANT.model_copy(
            update={"name": "newer", "versions": ">=0.30", "reason": "no such symbol before"}
        )
        made = planned("0.26.0", (MUTANT, newer))
        assert made.planted == (MUTANT,)
        assert made.left_out == (newer,)
        assert planned("0.33.0", (MUTANT, newer)).left_out == ()

    def test_a_vllm_that_no_mutant_fits_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"--vllm: no mutant .* in vLLM 0\.21\.0"):
            planned("0.21.0")

    def test_a_cell_that_is_never_run_is_refused(self) -> None:
        stray = MUTANT.model_copy(update={"cell": CellKey.parse(f"{CELL}.nothere")})
        with pytest.raises(ConfigError, match=r"mutants\.stale-lengths\.cell: .*has no cell"):
            planned(mutants=(stray,))


class TestKilling:
    def test_the_gate_and_class_that_were_expected_kill(self) -> None:
        result = judge_mutant(MUTANT, a_verdict(a_finding()), a_verdict(status=Status.PASS))
        assert result.killed
        assert result.gate is Gate.PARITY
        assert result.why == "replay is wrong"

    @pytest.mark.parametrize(
        "finding",
        [
            a_finding(fault_class="C"),
            a_finding(gate="audit"),
            a_finding(status="UNSUPPORTED"),
            a_finding(status="XFAIL"),
        ],
    )
    def test_another_class_gate_or_a_status_that_lets_pass_does_not(self, finding: Finding) -> None:
        result = judge_mutant(MUTANT, a_verdict(finding), a_verdict(status=Status.PASS))
        assert not result.killed
        assert result.gate is None
        assert "parity:A is silent" in result.why

    def test_death_kills_only_a_mutant_that_may_crash(self) -> None:
        died = a_verdict(a_finding("liveness", "I", "exit", "CRASH"), status=Status.CRASH)
        clean = a_verdict(status=Status.PASS)
        assert not judge_mutant(MUTANT, died, clean).killed
        reckless = MUTANT.model_copy(update={"may_crash": True})
        assert judge_mutant(reckless, died, clean).gate is Gate.LIVENESS
        assert judge_mutant(reckless, a_verdict(a_finding()), clean).gate is Gate.PARITY
        assert not judge_mutant(reckless, died, died).killed

    def test_what_was_seen_instead_is_said(self) -> None:
        seen = a_verdict(a_finding("audit", "E", "eager-inputs"))
        result = judge_mutant(MUTANT, seen, a_verdict(status=Status.PASS))
        assert "seen: audit:E:eager-inputs" in result.why

    def test_a_finding_that_the_cell_has_anyway_kills_nothing(self) -> None:
        assert not judge_mutant(MUTANT, a_verdict(a_finding()), a_verdict(a_finding())).killed

    def test_another_check_of_that_gate_and_class_is_new(self) -> None:
        both = a_verdict(a_finding(), a_finding(check="draft-prefill-alone"))
        result = judge_mutant(MUTANT, both, a_verdict(a_finding()))
        assert result.killed
        assert result.why == "draft-prefill-alone is wrong"

    @pytest.mark.parametrize("status", [Status.CONFIG, Status.INFRA, Status.MISSING, None])
    @pytest.mark.parametrize("with_mutant", [True, False])
    def test_a_cell_that_did_not_run_proves_nothing(
        self, status: Status | None, with_mutant: bool
    ) -> None:
        absent = a_verdict(a_finding(), status=status) if status else None
        other = a_verdict(a_finding())
        pair = (absent, other) if with_mutant else (other, absent)
        result = judge_mutant(MUTANT, *pair)
        assert not result.killed
        assert f"the cell {'with' if with_mutant else 'without'} the mutant was not run" in (
            result.why
        )

    @pytest.mark.parametrize("status", [Status.CRASH, Status.HANG])
    def test_a_gate_that_a_dead_clean_cell_kept_from_judging_kills_nothing(
        self, status: Status
    ) -> None:
        died = a_finding("liveness", "I", "exit", status.value)
        unjudged = judge_mutant(MUTANT, a_verdict(a_finding()), a_verdict(died, status=status))
        assert not unjudged.killed
        assert "ended before parity could judge it" in unjudged.why
        passed = a_finding(status="PASS")
        both = a_verdict(died, passed, status=status)
        assert judge_mutant(MUTANT, a_verdict(a_finding()), both).killed

    def test_verdicts_are_found_by_key(self) -> None:
        verdicts = {
            str(MUTANT.key): a_verdict(a_finding()),
            str(MUTANT.cell): a_verdict(status=Status.PASS),
        }
        (result,) = judge_mutants([MUTANT], verdicts)
        assert result.killed


class TestCommand:
    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (("--tier", "canary,contract"), "is not one tier"),
            (("--tier", "auto"), "is not one tier"),
            (("--tier", "contrat"), "did you mean contract?"),
            (("--vllm", "/nowhere"), "--vllm"),
        ],
    )
    def test_a_wrong_request_is_refused(self, arguments: tuple[str, ...], told: str) -> None:
        done = mutants_verb(*arguments)
        assert done.returncode == 30
        assert told in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("release", RELEASES)
    def test_every_mutant_is_killed_by_its_gate_and_class(
        self, release: str, tmp_path: Path
    ) -> None:
        done = mutants_verb("--vllm", release, "--json", "--out", str(tmp_path / "out"))
        results = json.loads(done.stdout)
        assert [result["name"] for result in results if not result["killed"]] == []
        assert done.returncode == 0
        assert {
            (result["name"], result["expected_class"], result["gate"]) for result in results
        } == {
            (mutant.name, mutant.fault_class, mutant.gate)
            for mutant in MUTANTS
            if mutant.cell.tier is Tier.CONTRACT
        }
        assert all(set(result) == FIELDS and result["why"] for result in results)


FIELDS = {"name", "expected_class", "killed", "gate", "why"}


def mutants_verb(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "graphgate", "mutants", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
