"""Engagement gate: did the graphs that were asked for exist, and did they run?

Owns: the comparison of the worker's effective mode and its counts of descriptors with
what the cell asked for and what the model's YAML expects. Must not know: outputs.
"""

from __future__ import annotations

from fixtures.cells.axes import GraphMode, Tier
from fixtures.cells.cell import Cell
from fixtures.evidence.cellrun import CellRun, Engagement
from gates.engaged import Problem, problems_of, realised, unproven
from gates.policy import Policy
from gates.verdict import FaultClass, Finding, Gate, Status

_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
_RUNNERS = {"0": "V1", "1": "V2"}
"""Model runners by the value of vLLM's variable."""


def judge_engagement(
    run: CellRun, _reference: CellRun | None, _policy: Policy
) -> tuple[Finding, ...]:
    """Findings on mode and counts, or one PASS.

    Nothing where the child made no observation, or ran no vLLM whose graphs could be asked for.
    """
    if not run.cell.requirements.vllm:
        return ()
    if run.observation is None or run.observation.refusal is not None:
        return ()
    engagement = run.observation.engagement
    if engagement is None:
        return (_finding("reported", Status.VACUOUS, "the child did not say which graphs ran"),)
    if engagement.requested is not run.cell.key.mode:
        return (_wrong_request(run.cell, engagement),)
    blind = _judge_probe(run.cell, engagement) + _judge_runner(run.cell, engagement)
    mode = _judge_mode(run.cell, engagement)
    counts = () if realised(engagement) is GraphMode.NONE else _judge_graphs(engagement)
    return blind + mode + counts or (_engaged(engagement),)


def _judge_probe(cell: Cell, engagement: Engagement) -> tuple[Finding, ...]:
    """Where an engine with processes of its own ran, the probe must have been in all of them."""
    if cell.key.tier is not Tier.CANARY and not engagement.processes:
        return ()
    problem = unproven(cell, engagement)
    return (_of_problem(problem),) if problem else ()


def _judge_runner(cell: Cell, engagement: Engagement) -> tuple[Finding, ...]:
    """The model runner that the cell's variable asks for must be the one that ran."""
    asked, ran = _RUNNERS.get(cell.environment.get(_RUNNER, "")), engagement.runner
    if asked is None or ran is None or asked == ran:
        return ()
    why = (
        f"{_RUNNER} asks for model runner {asked}, and the worker ran {ran}: another one is tested"
    )
    return (_finding("runner", Status.VACUOUS, why, measured=ran, limit=asked),)


def _judge_mode(cell: Cell, engagement: Engagement) -> tuple[Finding, ...]:
    requested, expected = engagement.requested, cell.expected
    came_true = realised(engagement)
    if came_true is not expected.mode:
        return (_unexpected(cell, engagement, came_true),)
    if came_true is GraphMode.NONE and engagement.graphs > 0:
        return (_finding("mode", Status.VACUOUS, f"not eager: {_described(engagement)}"),)
    if came_true is requested:
        return ()
    why = f"{requested} becomes {came_true} as expected: {expected.reason}"
    said = (engagement.refusal,) if engagement.refusal is not None else engagement.downgrades[-1:]
    why += f" (vLLM says: {said[0]})" if said else ""
    return (_finding("mode", Status.UNSUPPORTED, why, measured=str(came_true), fault_class=None),)


def _unexpected(cell: Cell, engagement: Engagement, came_true: GraphMode) -> Finding:
    """The mode that came true is not the one that the model's YAML expects."""
    requested, expected = engagement.requested, cell.expected.mode
    measured, limit = str(came_true), str(expected)
    if came_true is requested and requested is not GraphMode.NONE:
        why = (
            f"{requested} now works as requested, but the YAML of {cell.key.model} still expects "
            f"{expected} ({cell.expected.reason}): the YAML is out of date"
        )
        return _finding("expectation", Status.FAIL, why, measured=measured, limit=limit)
    why = f"expected {expected}, but {_described(engagement)}"
    return _finding("mode", Status.VACUOUS, why, measured=measured, limit=limit)


def _described(engagement: Engagement) -> str:
    """What the worker did, as the end of a sentence."""
    if engagement.refusal is not None:
        return f"vLLM refused {engagement.requested}: {engagement.refusal}"
    told = f"the worker ran in mode {realised(engagement)} with {engagement.graphs} graphs"
    if engagement.graphs == 0:
        told = f"the worker, in mode {engagement.effective}, captured no graph"
    return told + "".join(f"; vLLM says: {line}" for line in engagement.downgrades[-1:])


def _judge_graphs(engagement: Engagement) -> tuple[Finding, ...]:
    """Every planned descriptor must have been captured, each of those replayed, none captured late.

    A cell that is short of captures or replays ran the rest eagerly, which proves nothing.
    """
    late = _judge_late(engagement)
    if not engagement.descriptors:
        return _judge_counts(engagement) + late
    return (*(_of_problem(problem) for problem in problems_of(engagement)), *late)


def _judge_counts(engagement: Engagement) -> tuple[Finding, ...]:
    """The same from counts alone."""
    planned, captured, replayed = engagement.planned, engagement.captured, engagement.replayed
    found = []
    if captured < planned:
        why = f"only {captured} of {planned} planned descriptors were captured"
        found.append(_count("captured", Status.VACUOUS, captured, planned, why))
    if captured > planned:
        why = f"{captured} descriptors were captured, {captured - planned} more than planned"
        found.append(_count("late-capture", Status.FAIL, captured, planned, why, fault_class="I"))
    if replayed < captured:
        why = f"only {replayed} of {captured} captured descriptors were replayed"
        found.append(_count("replayed", Status.VACUOUS, replayed, captured, why))
    return tuple(found)


def _judge_late(engagement: Engagement) -> tuple[Finding, ...]:
    late = engagement.late_captures
    if not late:
        return ()
    why = (
        f"{late} graphs were captured while requests were served: what "
        "was captured at start-up is looked up under another key"
    )
    return (_count("late-capture", Status.FAIL, late, 0, why, fault_class="I"),)


def _of_problem(problem: Problem) -> Finding:
    figures = {"measured": problem.measured, "limit": problem.limit, "n": problem.n}
    return _finding(problem.check, problem.status, problem.why).model_copy(update=figures)


def _engaged(engagement: Engagement) -> Finding:
    if engagement.requested is GraphMode.NONE:
        return _finding("mode", Status.PASS, "no graph was captured, as asked", fault_class=None)
    why = (
        f"{realised(engagement)} as requested; {engagement.planned} descriptors planned, "
        f"captured and replayed in {engagement.graphs} graphs"
    )
    return _finding("mode", Status.PASS, why, fault_class=None, n=engagement.planned)


def _wrong_request(cell: Cell, engagement: Engagement) -> Finding:
    why = f"the cell asks for {cell.key.mode}, the child says it was asked for "
    return _finding("request", Status.VACUOUS, why + str(engagement.requested), fault_class="M")


def _count(
    check: str,
    status: Status,
    measured: int,
    limit: int,
    why: str,
    *,
    fault_class: FaultClass = "H",
) -> Finding:
    return _finding(
        check,
        status,
        why,
        fault_class=fault_class,
        measured=f"{measured} descriptors",
        limit=f"{limit} descriptors",
        n=limit,
    )


def _finding(
    check: str,
    status: Status,
    why: str,
    *,
    fault_class: FaultClass | None = "H",
    measured: str | None = None,
    limit: str | None = None,
    n: int | None = None,
) -> Finding:
    return Finding(
        gate=Gate.ENGAGEMENT,
        check=check,
        fault_class=fault_class,
        status=status,
        measured=measured,
        limit=limit,
        n=n,
        why=why,
    )
