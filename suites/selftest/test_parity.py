"""The parity gate, on outputs of an imagined engine with and without planted faults."""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.cells.cell import CellKey
from fixtures.cells.scenario import Arms
from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun, EvidenceFile, Observation, Refusal, RefusalKind
from fixtures.evidence.outputs import OUTPUTS_FILE, Outputs
from gates.evidence import judge_folder, read_evidence
from gates.parity import judge_parity
from gates.parity.rules import ParityRules
from gates.policy import read_policy
from gates.verdict import Finding, Gate, Status
from reports.html.parity import figures_of
from suites.selftest.build import a_cell, a_plan, a_run, an_engagement, write_shard
from suites.selftest.written import LIMITS, ULP, Engine, Fault, Step, workload

RULES = ParityRules()
CELL = a_cell("llama.FULL.bk0.canary")
REFERENCE = a_cell("llama.NONE.bk0.canary", expected="NONE")
ASKED = workload()
NAMED = EvidenceFile(file=OUTPUTS_FILE, sha256="0" * 64)


@cache
def reference(*, noise: bool = False, padding: bool = True, dead: bool = False) -> Outputs:
    return Engine(noise=noise, padding=padding, dead=dead, seed=1).writes(ASKED)


def graphs(fault: Fault | None = None, *, noise: bool = False, seed: int = 2) -> Outputs:
    return Engine(graphs=True, noise=noise, fault=fault, seed=seed).writes(ASKED)


def judged(
    outputs: Outputs | None, other: Outputs | None = None, cell: Any = CELL
) -> dict[str, Finding]:
    """The findings by check; `other` is the reference's outputs."""
    run = a_run(cell, observation=Observation(outputs=NAMED))
    against = a_run(REFERENCE, observation=Observation(outputs=NAMED))

    def outputs_of(one: CellRun) -> Outputs | None:
        return outputs if one is run else other

    found = judge_parity(run, against, RULES, outputs_of)
    assert all(finding.gate is Gate.PARITY for finding in found)
    return {finding.check: finding for finding in found}


def failing(found: dict[str, Finding]) -> set[str]:
    return {check for check, finding in found.items() if finding.status is not Status.PASS}


def test_a_clean_cell_is_equal_bit_for_bit_also_where_padding_moves_bits() -> None:
    found = judged(graphs(), reference())
    assert failing(found) == set()
    assert "equal bit for bit" in found["batch-on-size"].why
    assert "equal bit for bit" in found["batch-off-size"].why
    assert {"prompt-alone-beyond", "mixed-on-size", "drain", "repeat-prompt"} <= set(found)


def test_padding_alone_would_look_like_a_difference() -> None:
    """The fillers earn their keep: without them the same clean outputs differ."""
    found = judged(graphs(), reference(padding=False))
    assert "batch-off-size" in failing(found)


@pytest.mark.parametrize("name", ["batch-8", "prompt-4", "mixed-8"])
def test_one_bit_in_one_row_of_a_step_that_no_graph_pads_fails(name: str) -> None:
    def fault(step: Step, _: np.random.Generator) -> float:
        first = (step.one.pass_index, step.one.repeat, step.request, step.token) == (1, 0, 0, 1)
        return 1e-4 if step.name == name and first else 0.0

    found = judged(graphs(fault), reference())
    (check,) = failing(found)
    assert check.endswith("-on-size")
    assert found[check].status is Status.FAIL
    assert f"{name}, pass 1, request 0, step 1, in 1 of" in found[check].why


def test_a_frozen_query_length_is_class_d() -> None:
    def fault(step: Step, _: np.random.Generator) -> float:
        return 0.5 if step.name.startswith("prompt") and 1 < step.real <= 8 else 0.0

    found = judged(graphs(fault), reference())
    assert failing(found) == {"prompt-alone-on-size", "prompt-alone-off-size"}
    assert found["prompt-alone-on-size"].fault_class == "D"
    assert "wrong for prompts of 2, 4, 8 tokens" in found["prompt-alone-on-size"].why


def test_prompts_that_are_wrong_at_every_length_have_no_letter() -> None:
    def fault(step: Step, _: np.random.Generator) -> float:
        return 0.5 if step.name.startswith("prompt") else 0.0

    found = judged(graphs(fault), reference())
    assert found["prompt-alone-on-size"].status is Status.FAIL
    assert found["prompt-alone-on-size"].fault_class is None


def test_pad_rows_that_spoil_one_request_fail_only_off_size() -> None:
    def fault(step: Step, _: np.random.Generator) -> float:
        padded = step.computed > step.real and step.token > 0
        return 0.7 if step.name.startswith("batch") and padded and step.request == 0 else 0.0

    assert failing(judged(graphs(fault), reference())) == {"batch-off-size"}


def test_off_size_differences_no_larger_than_what_padding_does_pass() -> None:
    quiet = Engine(graphs=True, padding=False).writes(ASKED)
    found = judged(quiet, reference())
    assert found["batch-off-size"].status is Status.PASS
    assert found["batch-on-size"].status is Status.FAIL, "there bits must not move"


def test_text_names_the_first_token_that_differs() -> None:
    def fault(step: Step, _: np.random.Generator) -> float:
        return 0.3 if step.name == "text" and step.token >= 5 else 0.0

    found = judged(graphs(fault), reference())
    assert failing(found) == {"free-text"}
    assert "at token 5" in found["free-text"].why


def test_a_draining_batch_that_goes_wrong_when_it_is_small_fails() -> None:
    def fault(step: Step, _: np.random.Generator) -> float:
        return 0.4 if step.name == "drain" and step.real == 2 else 0.0

    assert failing(judged(graphs(fault), reference())) == {"drain"}


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_no_finding(seed: int) -> None:
    found = judged(graphs(noise=True, seed=10 + seed), reference(noise=True))
    assert failing(found) == set()
    assert "within the spread" in found["batch-on-size"].why


def test_a_small_shift_of_every_step_shows_through_noise() -> None:
    """What state that warm-up leaves to capture did on the H200: 0.06 to 0.3 nats."""

    def fault(step: Step, _: np.random.Generator) -> float:
        return 0.07 if step.token > 0 and step.real <= 8 else 0.0

    found = judged(graphs(fault, noise=True), reference(noise=True))
    assert {"batch-on-size", "batch-off-size", "drain"} <= failing(found)
    assert "p =" in (found["batch-on-size"].measured or "")


def test_one_wrong_request_of_one_size_shows_where_noise_jumps_less() -> None:
    def fault(step: Step, _: np.random.Generator) -> float:
        return 2.2 if step.name == "batch-8" and (step.request, step.token) == (2, 2) else 0.0

    found = judged(graphs(fault, noise=True), reference(noise=True))
    assert failing(found) == {"batch-on-size"}
    assert "graph of 8 tokens" in found["batch-on-size"].why


def test_a_small_step_of_one_request_that_a_process_always_takes_is_no_finding() -> None:
    """What where memory lies did on the H200: p says that the cells are two, and no more."""

    def fault(step: Step, _: np.random.Generator) -> float:
        return ULP if step.name == "batch-8" and (step.request, step.token) == (2, 2) else 0.0

    found = judged(graphs(fault, noise=True), reference(noise=True))
    assert failing(found) == set()


def test_noise_that_only_falls_otherwise_more_often_is_no_finding() -> None:
    """Graphs may change how often a sum takes which order: the values are the same ones."""
    busy = Engine(graphs=True, noise=True, flips=0.6, seed=5).writes(ASKED)
    assert failing(judged(busy, reference(noise=True))) == set()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_logprob_that_is_no_number_fails_with_its_place(value: float) -> None:
    outputs = graphs()
    spoiled = outputs.logprob.copy()
    spoiled[100] = value
    found = judged(outputs._replace(logprob=spoiled), reference())
    assert found["finite"].status is Status.FAIL
    assert set(found) == {"finite"}
    against = reference()
    broken = against.logprob.copy()
    broken[0] = value
    vacuous = judged(graphs(), against._replace(logprob=broken))
    assert vacuous["reference"].status is Status.VACUOUS


def test_dead_weights_are_vacuous_however_equal_the_outputs() -> None:
    dead = Engine(graphs=True, dead=True).writes(ASKED)
    found = judged(dead, reference(dead=True))
    assert found["context"].status is Status.VACUOUS
    assert found["distinct-tokens"].status is Status.VACUOUS


def test_a_reference_is_held_fit_to_be_one() -> None:
    assert failing(judged(reference(), cell=REFERENCE)) == set()
    dead = judged(reference(dead=True), cell=REFERENCE)
    assert failing(dead) == {"context", "distinct-tokens"}


def test_rows_that_are_missing_are_vacuous() -> None:
    outputs = graphs()
    short = Outputs(outputs.head, *(column[:-1] for column in outputs[1:]))
    found = judged(short, reference())
    assert found["complete"].status is Status.VACUOUS
    again = judged(graphs(), Outputs(outputs.head, *(column[:-1] for column in reference()[1:])))
    assert again["reference"].status is Status.VACUOUS


def test_a_reference_without_outputs_or_of_another_workload_is_vacuous() -> None:
    assert judged(graphs(), None)["reference"].status is Status.VACUOUS
    other = Engine().writes(workload(seed=8))
    assert "another workload" in judged(graphs(), other)["reference"].why


def test_no_outputs_are_vacuous_and_unreadable_ones_invalid() -> None:
    assert judged(None)["recorded"].status is Status.VACUOUS

    def unreadable(_: CellRun) -> Outputs | None:
        raise ConfigError("is missing", source=OUTPUTS_FILE)

    run = a_run(CELL, observation=Observation(outputs=NAMED))
    (found,) = judge_parity(run, None, RULES, unreadable)
    assert (found.status, found.check) == (Status.INVALID, "readable")
    assert "is missing" in found.why


def test_other_tiers_and_refusals_are_none_of_its_business() -> None:
    refused = Refusal(kind=RefusalKind.UNSUPPORTED, why="no graphs")
    runs = (
        a_run(a_cell("llama.FULL.bk0.contract")),
        a_run(CELL, observation=Observation(refusal=refused)),
        a_run(CELL, observation=None),
    )
    for run in runs:
        assert judge_parity(run, None, RULES, lambda _: None) == ()


def scored(outputs: Outputs | None, other: Outputs | None) -> tuple[Finding, ...]:
    """The findings on a cell of the score tier."""
    cell = a_cell("arithmetic.FULL_DECODE_ONLY.bk0.score")
    against = a_cell("arithmetic.NONE.bk0.score", expected="NONE")
    runs = [a_run(one, observation=Observation(outputs=NAMED)) for one in (cell, against)]
    told = dict(zip((id(run) for run in runs), (outputs, other), strict=True))
    eager = judge_parity(runs[1], None, RULES, lambda run: told[id(run)])
    assert eager == (), "the reference is held to nothing: its weights are trained"
    return judge_parity(runs[0], runs[1], RULES, lambda run: told[id(run)])


def test_at_the_score_tier_differences_are_told_and_block_nothing() -> None:
    wrong = graphs(lambda step, _: 0.7 if step.name == "batch-4" and step.token == 2 else 0.0)
    (found,) = scored(wrong, reference())
    assert (found.check, found.status) == ("difference", Status.PASS)
    assert float((found.measured or "").split()[0]) >= 0.7
    assert "(batch-4, pass " in found.why
    assert "scores decide" in found.why


def test_at_the_score_tier_no_number_still_fails() -> None:
    outputs = graphs()
    spoiled = outputs.logprob.copy()
    spoiled[7] = float("nan")
    (found,) = scored(outputs._replace(logprob=spoiled), reference())
    assert (found.check, found.status) == ("finite", Status.FAIL)


def test_drafts_are_compared_by_what_is_emitted() -> None:
    limits = LIMITS.model_copy(update={"spec_tokens": 1})
    asked = workload(limits)
    assert any(one.fills for one in asked.scenarios)
    assert len(list(asked.rounds(Arms.ALL))) > 0
    against = Engine(padding=False).writes(asked)
    assert failing(judged(Engine(graphs=True, padding=False).writes(asked), against)) == set()


def test_a_cell_of_mode_none_can_be_compared_with_another() -> None:
    """For measuring false alarms: two runs of one arm, the second as if it were a graph cell."""
    key = CellKey.parse("llama.NONE.bk0.canary")
    twin = REFERENCE.model_copy(update={"reference": key})
    found = judged(reference(noise=True), Engine(noise=True, seed=9).writes(ASKED), cell=twin)
    assert failing(found) == set()


def test_settings_that_make_no_sense_are_refused() -> None:
    for changes in ({"alpha": 0}, {"padding_margin": 0.5}, {"sensitivity": 0}, {"unknown": 1}):
        with pytest.raises(ValueError, match=next(iter(changes))):
            ParityRules.model_validate(changes)


def test_an_ulp_is_what_padding_moves() -> None:
    found = judged(graphs(), reference())
    assert f"{ULP:.3g} nats" in (found["drain"].measured or "")


def shard(folder: Path, fault: Fault | None = None) -> Path:
    """An OUT folder with a reference and a cell under test, and their outputs."""
    runs = []
    for cell, engine in ((REFERENCE, Engine()), (CELL, Engine(graphs=True, fault=fault))):
        attempt = folder / "cells" / str(cell.key) / "attempt-0"
        attempt.mkdir(parents=True)
        record = Observation(engagement=an_engagement(cell), outputs=engine.leaves(ASKED, attempt))
        runs.append(a_run(cell, observation=record))
    return write_shard(folder, a_plan(REFERENCE, CELL), runs)


def parity_of(folder: Path) -> dict[str, tuple[Status, str]]:
    """Check to status and words, of the cell with graphs."""
    verdicts = judge_folder([folder], read_policy(), (), date(2026, 11, 30)).verdicts
    (verdict,) = (one for one in verdicts if one.key == CELL.key)
    found = (one for one in verdict.findings if one.gate is Gate.PARITY)
    return {one.check: (one.status, one.why) for one in found}


def test_evidence_is_judged_from_its_folder(tmp_path: Path) -> None:
    clean = parity_of(shard(tmp_path / "clean"))
    assert {status for status, _ in clean.values()} == {Status.PASS}
    wrong = parity_of(shard(tmp_path / "wrong", lambda step, _: 0.5 * (step.name == "batch-4")))
    assert wrong["batch-on-size"][0] is Status.FAIL


def test_a_file_that_was_changed_or_lost_is_told(tmp_path: Path) -> None:
    folder = shard(tmp_path)
    (own,) = folder.glob(f"cells/{CELL.key}/attempt-0/{OUTPUTS_FILE}")
    (other,) = folder.glob(f"cells/{REFERENCE.key}/attempt-0/{OUTPUTS_FILE}")
    own.write_bytes(own.read_bytes()[:-1] + b"x")
    status, why = parity_of(folder)["readable"]
    assert status is Status.INVALID
    assert "not the file that the child recorded" in why
    own.write_bytes(other.read_bytes())
    assert parity_of(folder)["readable"][0] is Status.INVALID, "another cell's file is no evidence"
    own.unlink()
    assert "is missing" in parity_of(folder)["readable"][1]


def test_figures_by_step_come_from_evidence(tmp_path: Path) -> None:
    evidence = read_evidence([shard(tmp_path, lambda s, _: 0.25 * (s.token == 2))], read_policy())
    figures = figures_of(evidence.runs, evidence.files)
    assert set(figures) == {str(CELL.key)}
    parity = figures[str(CELL.key)].parity
    assert parity is not None
    assert parity.differences[0] <= ULP * 1.01 < 0.25 <= parity.differences[2] * 1.01
    assert max(parity.band) == 0.0
