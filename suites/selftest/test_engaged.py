"""The engagement gate on a worker's own list of descriptors."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.cells.axes import GraphMode
from fixtures.cells.cell import Cell, Requirements
from fixtures.child.canary.downgrades import SIGNS
from fixtures.child.canary.engaged import engagement_of
from fixtures.evidence.cellrun import DescriptorUse, Observation
from fixtures.triage.table import default_table
from gates.engagement import judge_engagement
from gates.policy import read_policy
from gates.verdict import Finding, Status
from suites.selftest.build import a_cell, a_run, an_engagement

POLICY = read_policy()
CELL = a_cell("llama.FULL_AND_PIECEWISE.bk0.canary")
DECODE_ONLY = a_cell("llama.FULL_DECODE_ONLY.bk0.canary")
SIZES = (1, 2, 4, 8)
FULL, PIECEWISE = GraphMode.FULL, GraphMode.PIECEWISE
FULL_AND_PIECEWISE = GraphMode.FULL_AND_PIECEWISE


def use(mode: GraphMode, tokens: int, **changes: Any) -> DescriptorUse:
    fields = {"uniform": mode is FULL, "graphs": 1, "replays": 3}
    return DescriptorUse(mode=mode, tokens=tokens, **{**fields, **changes})


def uses(**changes: DescriptorUse) -> tuple[DescriptorUse, ...]:
    """A full and a piecewise descriptor of every size; `PIECEWISE_4=...` replaces one."""
    usual = {f"{mode}_{size}": use(mode, size) for mode in (FULL, PIECEWISE) for size in SIZES}
    return tuple({**usual, **changes}.values())


def judged(
    descriptors: tuple[DescriptorUse, ...], cell: Cell = CELL, **changes: Any
) -> tuple[Finding, ...]:
    counts = {
        "planned": len(descriptors),
        "captured": sum(one.graphs > 0 for one in descriptors),
        "replayed": sum(one.replays > 0 for one in descriptors),
        "graphs": sum(one.graphs for one in descriptors),
    }
    engagement = an_engagement(cell, descriptors=descriptors, **{**counts, **changes})
    return judge_engagement(
        a_run(cell, observation=Observation(engagement=engagement)), None, POLICY
    )


def only(findings: tuple[Finding, ...]) -> Finding:
    (finding,) = findings
    return finding


def test_every_descriptor_captured_and_replayed_passes() -> None:
    assert only(judged(uses())).status is Status.PASS


def test_a_descriptor_without_graph_is_named() -> None:
    missing = use(PIECEWISE, 4, graphs=0, replays=0)
    finding = only(judged(uses(PIECEWISE_4=missing)))
    assert (finding.check, finding.status) == ("captured", Status.VACUOUS)
    assert "PIECEWISE 4" in finding.why


def test_a_size_that_was_never_replayed_is_named_with_its_mode() -> None:
    finding = only(judged(uses(FULL_8=use(FULL, 8, replays=0))))
    assert (finding.check, finding.status, finding.fault_class) == ("replayed", Status.VACUOUS, "H")
    assert "FULL 8" in finding.why
    assert finding.measured == "7 descriptors"


def test_a_descriptor_that_no_batch_can_choose_need_not_be_replayed() -> None:
    shadowed = use(PIECEWISE, 1, replays=0, reachable=False)
    assert only(judged(uses(PIECEWISE_1=shadowed))).status is Status.PASS


def test_a_draft_s_graph_is_told_by_its_owner() -> None:
    draft = use(FULL, 2, replays=0, owner="draft-decode")
    assert "draft-decode FULL 2" in only(judged((*uses(), draft))).why


def test_a_step_without_graph_that_one_would_serve_is_vacuous() -> None:
    finding = only(judged(uses(), eager_steps={"3": 2, "640": 9}))
    assert (finding.check, finding.status) == ("eager-steps", Status.VACUOUS)
    assert "steps of 3 tokens" in finding.why
    assert finding.measured == "2 steps"


@pytest.mark.parametrize(
    ("descriptors", "eager", "cell"),
    [
        (uses(), {"9": 4, "640": 9}, CELL),
        (tuple(one for one in uses() if one.uniform), {"3": 5}, DECODE_ONLY),
        ((*uses(), use(FULL, 1, owner="draft")), {"3": 5}, CELL),
    ],
)
def test_a_step_that_no_graph_is_known_to_serve_is_fine(
    descriptors: tuple[DescriptorUse, ...], eager: dict[str, int], cell: Cell
) -> None:
    assert only(judged(descriptors, cell, eager_steps=eager)).status is Status.PASS


def test_a_late_capture_fails_also_with_descriptors() -> None:
    finding = only(judged(uses(), late_captures=2))
    assert (finding.status, finding.fault_class) == (Status.FAIL, "I")


@pytest.mark.parametrize("role", ["frontend", "core", "worker-0"])
def test_a_process_without_the_probe_is_vacuous(role: str) -> None:
    roles = tuple(one for one in ("frontend", "core", "worker-0") if one != role)
    finding = judged(uses(), processes=roles)[0]
    assert (finding.check, finding.status) == ("probe", Status.VACUOUS)
    assert role in finding.why


def test_every_rank_must_have_the_probe() -> None:
    wide = CELL.model_copy(update={"requirements": Requirements(gpus=2)})
    assert "worker-1" in judged(uses(), wide)[0].why
    roles = ("frontend", "core", "worker-0", "worker-1")
    assert only(judged(uses(), wide, processes=roles)).status is Status.PASS


def test_a_reference_needs_the_probe_too() -> None:
    eager = a_cell("llama.NONE.bk0.canary")
    assert judged((), eager, processes=())[0].check == "probe"
    assert only(judged((), eager)).status is Status.PASS


def test_the_contract_tier_needs_no_probe() -> None:
    cell = a_cell()
    engagement = an_engagement(cell)
    run = a_run(cell, observation=Observation(engagement=engagement))
    assert only(judge_engagement(run, None, POLICY)).status is Status.PASS


def without_pieces() -> tuple[DescriptorUse, ...]:
    """What 0.26 to 0.29 leave of FULL_AND_PIECEWISE where a model has no pieces."""
    bare = {
        f"PIECEWISE_{size}": use(PIECEWISE, size, graphs=0, replays=0, reachable=size > 2)
        for size in SIZES
    }
    return uses(**bare)


@pytest.mark.parametrize("asked", ["FULL", "FULL_AND_PIECEWISE"])
def test_the_mode_that_came_true_is_that_of_the_graphs_and_not_vllm_s_word(asked: str) -> None:
    cell = a_cell(f"dsv4.{asked}.bk0.canary", expected="FULL_DECODE_ONLY")
    finding = only(judged(without_pieces(), cell, effective=FULL_AND_PIECEWISE))
    assert (finding.status, finding.measured) == (Status.UNSUPPORTED, "FULL_DECODE_ONLY")


def test_a_family_that_captured_nothing_is_vacuous_where_it_was_expected() -> None:
    finding = only(judged(without_pieces()))
    assert (finding.check, finding.status) == ("mode", Status.VACUOUS)
    assert "expected FULL_AND_PIECEWISE, but the worker ran in mode FULL_DECODE_ONLY" in finding.why


def test_a_graph_that_the_mode_which_came_true_lacks_is_still_named() -> None:
    cell = a_cell("dsv4.FULL.bk0.canary", expected="FULL_DECODE_ONLY")
    lost = use(FULL, 4, graphs=0, replays=0)
    short = tuple(lost if (one.mode, one.tokens) == (FULL, 4) else one for one in without_pieces())
    found = {finding.check: finding for finding in judged(short, cell)}
    assert found["captured"].status is Status.VACUOUS
    assert found["captured"].measured == "3 descriptors"
    assert "FULL 4" in found["captured"].why


def test_a_draft_without_any_graph_is_named_where_the_model_has_such() -> None:
    draft = use(FULL, 2, graphs=0, replays=0, owner="draft-decode")
    assert "draft-decode FULL 2" in only(judged((*uses(), draft))).why


def test_the_child_counts_the_descriptors_of_the_mode_that_came_true() -> None:
    report = {
        "rank": 0,
        "mode": "FULL_AND_PIECEWISE",
        "runner": "V2",
        "compiled": False,
        "descriptors": [one.model_dump(mode="json") for one in without_pieces()],
        "eager_steps": {},
        "downgrades": [],
    }
    cell = a_cell("dsv4.FULL.bk0.canary", expected="FULL_DECODE_ONLY")
    seen = engagement_of(cell, [report], [4], ("frontend", "core"))
    assert seen.effective is GraphMode.FULL_DECODE_ONLY
    assert (seen.planned, seen.captured, seen.replayed, seen.late_captures) == (4, 4, 4, 0)
    assert seen.notes == ("vLLM's own word: FULL_AND_PIECEWISE",)


def a_report(rank: int, **changes: Any) -> dict[str, Any]:
    """What a worker says of itself, with one graph replayed."""
    told = {"mode": "FULL_DECODE_ONLY", "compiled": True, "eager_steps": {}, "downgrades": []}
    told["runner"] = "V2"
    return {
        "rank": rank,
        "descriptors": [use(FULL, 1).model_dump(mode="json")],
        **told,
        **changes,
    }


def test_a_lone_worker_is_proved_by_the_process_it_lives_in() -> None:
    proved = engagement_of(DECODE_ONLY, [a_report(0)], [1], ("frontend", "core"))
    assert "worker-0" in proved.processes
    unproved = engagement_of(DECODE_ONLY, [a_report(0)], [1], ("frontend",))
    assert "worker-0" not in unproved.processes


def test_a_rank_that_answers_has_not_proved_the_plugin_by_that() -> None:
    reports = [a_report(0), a_report(1)]
    roles = ("frontend", "core", "worker-0")
    assert "worker-1" not in engagement_of(DECODE_ONLY, reports, [1, 1], roles).processes


def test_ranks_that_disagree_fail_and_late_graphs_of_any_rank_count() -> None:
    other = a_report(1, descriptors=[use(FULL, 1, graphs=2).model_dump(mode="json")])
    found = engagement_of(DECODE_ONLY, [a_report(0), other], [1, 1], ("frontend", "core"))
    assert found.disagreeing == (1,)
    assert found.late_captures == 1
    told = judged((use(FULL, 1),), DECODE_ONLY, disagreeing=(1,))
    assert [one.status for one in told if one.check == "ranks"] == [Status.FAIL]


SAID = "CUDAGraphMode.FULL is not supported; setting cudagraph_mode=FULL_DECODE_ONLY"


def test_a_worker_listens_for_what_triage_reads_in_logs() -> None:
    table = default_table().patterns
    logged = {one.contains for one in table if one.kind == "VAC" and one.key != "graph-empty"}
    assert set(SIGNS) == logged, "graph-empty is a warning of torch, not of vLLM's log"


def test_what_vllm_says_of_a_downgrade_is_kept_and_quoted() -> None:
    reports = [a_report(0, downgrades=[SAID]), a_report(1)]
    found = engagement_of(DECODE_ONLY, reports, [1, 1], ("frontend", "core"))
    assert found.downgrades == (SAID,)
    assert found.disagreeing == (), "vLLM logs such lines in its first rank alone"
    asked = a_cell("dsv4.FULL.bk1.canary", expected="FULL_DECODE_ONLY")
    (told,) = judged((use(FULL, 1),), asked, downgrades=(SAID,))
    assert told.status is Status.UNSUPPORTED
    assert told.why.endswith(f"(vLLM says: {SAID})")
    (told,) = judged((use(FULL, 1),), CELL, downgrades=(SAID,))
    assert (told.status, told.check) == (Status.VACUOUS, "mode")
    assert told.why.endswith(f"; vLLM says: {SAID}")


@pytest.mark.parametrize(
    ("asked", "ran", "checks"),
    [
        ("1", "V2", ["mode"]),
        ("0", "V1", ["mode"]),
        ("1", "V1", ["runner"]),
        ("0", "V2", ["runner"]),
        ("1", None, ["mode"]),
        (None, "V1", ["mode"]),
    ],
)
def test_another_model_runner_than_was_asked_for_proves_nothing(
    asked: str | None, ran: str | None, checks: list[str]
) -> None:
    variables = {"VLLM_USE_V2_MODEL_RUNNER": asked} if asked else {}
    cell = CELL.model_copy(update={"environment": variables})
    found = judged(uses(), cell, runner=ran)
    assert [one.check for one in found] == checks
    assert (found[0].status is Status.VACUOUS) is (checks == ["runner"])


def test_the_worker_says_which_runner_it_has() -> None:
    assert engagement_of(DECODE_ONLY, [a_report(0)], [1], ("frontend", "core")).runner == "V2"
