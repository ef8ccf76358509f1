"""The score tier's whole way on a CPU: real lm-eval, real children, real verdicts.

Makes the children's environment with lm-eval on first use (make test-scores).
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from fixtures.cells.axes import GraphMode
from fixtures.cells.cell import Plan
from fixtures.cells.machine import MachineProbe
from fixtures.cells.planner import plan
from fixtures.cells.request import PlanRequest
from fixtures.cells.score import ProbeRule, ScoreTask
from fixtures.cells.sweeps import Catalog, load_catalog
from fixtures.evidence.samples import Outcome, Samples, read_samples
from fixtures.run.cellrun import RunLimits
from fixtures.run.outfolder import OutFolder
from fixtures.run.runner import run_plan
from fixtures.source.environment import plan_environment
from fixtures.source.resolve import NO_VLLM
from gates.evidence import judge_evidence, read_evidence
from gates.known import read_known_issues
from gates.policy import read_policy
from gates.verdict import Status, Verdict, Verdicts
from suites.selftest.answering import StopServingError, answering, right, wrong

pytestmark = pytest.mark.scores

NO_GPU = MachineProbe(nvml_error="NVML Shared Library Not Found")
QUESTIONS = 40


def catalog_with(name: str, **changes: object) -> Catalog:
    """The catalogue, the score section of one model changed."""
    catalog = load_catalog()
    spec = catalog.model(name)
    assert spec.score is not None
    changed = spec.model_copy(update={"score": spec.score.model_copy(update=changes)})
    return catalog.model_copy(update={"models": {**catalog.models, name: changed}})


def arithmetic(limit: int = QUESTIONS) -> tuple[ScoreTask, ...]:
    files = {"test": "suites:arithmetic.jsonl"}
    task = ScoreTask(name="graphgate_arithmetic", questions=files, token_cap=96, limit=limit)
    return (task,)


def served(none: str, full: str) -> Plan:
    """A plan of two cells, each answered by a server of its own."""
    catalog = catalog_with(
        "served",
        checkpoint="arithmetic",
        servers={GraphMode.NONE: none, GraphMode.FULL: full},
        tasks=arithmetic(),
        probe=ProbeRule(questions=8),
        engine={"concurrent": 4, "timeout": 30},
    )
    return plan(PlanRequest.parse(model="served", tier="score"), NO_VLLM, NO_GPU, catalog)


def gated(made: Plan, out: Path) -> Verdicts:
    """Run one cell after another, the reference first, and judge."""
    limits = RunLimits(retries=0)
    for _ in run_plan(made, out, plan_environment(made), jobs=1, limits=limits):
        pass
    # The shipped references are of all questions: fewer are another protocol.
    policy = read_policy().model_copy(update={"references": ()})
    evidence = read_evidence([out], policy)
    return judge_evidence(evidence, policy, read_known_issues(), date.today())


def verdict(verdicts: Verdicts, mode: str) -> Verdict:
    return next(one for one in verdicts.verdicts if one.key.mode == mode)


def samples_of(out: Path, made: Plan, mode: str) -> Samples:
    key = next(cell.key for cell in made.cells if cell.key.mode == mode)
    run = OutFolder(out).ledger.last_run(key)
    assert run is not None
    assert run.observation is not None
    assert run.observation.samples is not None
    return read_samples(OutFolder(out).cell_folder(key) / "attempt-0", run.observation.samples)


def test_the_trained_model_passes_with_its_statistics(tmp_path: Path) -> None:
    catalog = catalog_with("arithmetic_cpu", tasks=arithmetic(), probe=ProbeRule(questions=8))
    request = PlanRequest.parse(model="arithmetic_cpu", tier="score")
    made = plan(request, NO_VLLM, NO_GPU, catalog)
    verdicts = gated(made, tmp_path)
    assert verdicts.decision.allow, verdicts.decision
    assert {one.status for one in verdicts.verdicts} == {Status.PASS}
    tests = [f.test for v in verdicts.verdicts for f in v.findings if f.test is not None]
    paired = [test for test in tests if test.kind == "paired"]
    assert len(paired) == 2
    for test in paired:
        assert test.n == QUESTIONS
        assert test.score >= 0.9
        assert test.detectable is not None
    task = samples_of(tmp_path, made, "NONE").tasks[0]
    assert {one.outcome for one in task.samples} == {Outcome.ANSWERED}
    assert len({one.doc_hash for one in task.samples}) == QUESTIONS


def test_a_graph_mode_that_answers_wrongly_is_blocked(tmp_path: Path) -> None:
    def sick(prompt: str, count: int) -> str:
        return wrong(prompt) if len(prompt) % 3 == 0 else right(prompt)

    with answering(right) as healthy, answering(sick) as faulty:
        verdicts = gated(served(healthy, faulty), tmp_path)
    full = verdict(verdicts, "FULL")
    assert full.status is Status.FAIL
    failed = next(f for f in full.findings if f.status is Status.FAIL and f.test is not None)
    assert failed.test is not None
    assert failed.test.b is not None
    assert failed.test.b > 5
    assert failed.test.c == 0
    assert failed.test.p_value < 0.05
    assert verdict(verdicts, "NONE").status is Status.PASS


def test_a_collapse_is_found_by_the_early_probe_before_any_score(tmp_path: Path) -> None:
    def loops(prompt: str, count: int) -> str:
        return f"{right(prompt).splitlines()[0]} " * 30

    with answering(right) as healthy, answering(loops) as faulty:
        made = served(healthy, faulty)
        verdicts = gated(made, tmp_path)
    assert verdict(verdicts, "FULL").status is Status.FAIL
    stopped = samples_of(tmp_path, made, "FULL")
    assert stopped.tasks == ()
    assert stopped.probe is not None
    assert "times as long" in str(stopped.probe.stopped)


def test_a_server_that_dies_half_way_is_a_crash_and_no_score(tmp_path: Path) -> None:
    def dies(prompt: str, count: int) -> str:
        if count == 20:
            raise StopServingError
        return right(prompt)

    with answering(right) as healthy, answering(dies) as faulty:
        verdicts = gated(served(healthy, faulty), tmp_path)
    full = verdict(verdicts, "FULL")
    assert full.status is Status.CRASH
    assert not any(finding.test for finding in full.findings)


def test_answers_that_never_return_are_invalid_and_not_wrong(tmp_path: Path) -> None:
    def fails_often(prompt: str, count: int) -> str | None:
        return None if count % 4 == 0 else right(prompt)

    with answering(right) as healthy, answering(fails_often) as faulty:
        made = served(healthy, faulty)
        verdicts = gated(made, tmp_path)
    assert verdict(verdicts, "FULL").status is Status.INVALID
    outcomes = [one.outcome for one in samples_of(tmp_path, made, "FULL").tasks[0].samples]
    assert outcomes.count(Outcome.NEVER_RETURNED) == 10
