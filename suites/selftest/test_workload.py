"""The canary's workload: what it covers, and that it is the same wherever it is made."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fixtures.cells.scenario import Arms, Kind, Request, Scenario, Workload, WorkloadLimits
from fixtures.cells.workload import build_workload

LIMITS = WorkloadLimits(
    vocab=32000,
    max_model_len=640,
    max_num_seqs=32,
    max_num_batched_tokens=640,
    capture_sizes=(1, 2, 4, 8, 16),
)
USUAL = build_workload(LIMITS, 1)


def of_kind(workload: Workload, kind: Kind) -> dict[str, tuple[Scenario, tuple[Request, ...]]]:
    return {
        scenario.name: (scenario, workload.requests(index, 0))
        for index, scenario in enumerate(workload.scenarios)
        if scenario.kind is kind
    }


def test_equal_arguments_make_equal_workloads_and_a_seed_another() -> None:
    assert build_workload(LIMITS, 1).digest == USUAL.digest
    assert build_workload(LIMITS, 2).digest != USUAL.digest
    wider = LIMITS.model_copy(update={"max_num_seqs": 33})
    assert build_workload(wider, 1).digest != USUAL.digest


def test_the_digest_is_the_same_in_every_python() -> None:
    small = WorkloadLimits(
        vocab=100, max_model_len=64, max_num_seqs=4, max_num_batched_tokens=64, capture_sizes=(1, 2)
    )
    assert build_workload(small, 3).digest.startswith("d403e55737b30cd2")


def test_every_prompt_length_and_batch_size_past_the_largest_graph_is_run() -> None:
    prompts = of_kind(USUAL, Kind.PROMPT_ALONE).values()
    lengths = {len(requests[0].prompt) for scenario, requests in prompts if not scenario.fills}
    assert {*range(1, 19), 40} <= lengths
    batches = of_kind(USUAL, Kind.BATCH).values()
    sizes = {len(requests) for scenario, requests in batches if not scenario.fills}
    assert {*range(1, 19), 25} <= sizes


def test_forced_tokens_differ_between_requests_and_passes() -> None:
    scenario, requests = of_kind(USUAL, Kind.BATCH)["batch-16"]
    forced = [request.forced_token for request in requests]
    assert len(set(forced)) == 16
    index = USUAL.scenarios.index(scenario)
    assert all(one != other for one, other in zip(requests, USUAL.requests(index, 1), strict=True))


def test_batches_have_unequal_contexts_and_begin_with_a_step_that_no_graph_serves() -> None:
    for scenario, requests in of_kind(USUAL, Kind.BATCH).values():
        real = [request for request in requests if not request.fill]
        if len(real) > 1:
            assert sum(len(request.prompt) for request in real) == LIMITS.max_num_batched_tokens
            assert len({len(request.prompt) for request in real}) > 1, scenario.name


@pytest.mark.parametrize("spec_tokens", [0, 1])
def test_fillers_make_a_step_as_big_as_its_graph_and_leave_the_rest_alone(spec_tokens: int) -> None:
    limits = LIMITS.model_copy(update={"spec_tokens": spec_tokens})
    workload = build_workload(limits, 1)
    by_name = {one.name: workload.requests(i, 2) for i, one in enumerate(workload.scenarios)}
    filled = [one for one in workload.scenarios if one.fills]
    assert filled
    for scenario in filled:
        requests, plain = by_name[scenario.name], by_name[scenario.fills or ""]
        assert requests[: len(plain)] == plain
        fillers = requests[len(plain) :]
        assert all(request.fill and len(request.prompt) == 1 for request in fillers)
        width = 1 + spec_tokens if scenario.kind is Kind.BATCH else 1
        assert scenario.tokens + width * len(fillers) == scenario.capture_size
        assert scenario.arms is Arms.REFERENCE
        assert len(requests) <= limits.max_num_seqs


def test_mixed_steps_hold_the_rest_of_a_long_prompt_beside_decodes() -> None:
    for scenario, requests in of_kind(USUAL, Kind.MIXED).values():
        real = [request for request in requests if not request.fill]
        total = sum(len(request.prompt) for request in real)
        assert total - LIMITS.max_num_batched_tokens + 3 == scenario.tokens
        decoding = sum(len(request.prompt) for request in real[:3])
        assert decoding < LIMITS.max_num_batched_tokens, "the long prompt must begin at once"


LARGE_GRAPHS = {
    "len128": LIMITS.model_copy(
        update={
            "max_model_len": 128,
            "max_num_seqs": 256,
            "max_num_batched_tokens": 1024,
            "capture_sizes": (1, 8, 128, 256, 496, 512),
        }
    ),
    "default-sizes": LIMITS.model_copy(
        update={
            "max_model_len": 512,
            "max_num_seqs": 256,
            "max_num_batched_tokens": 2048,
            "capture_sizes": (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)),
        }
    ),
}


@pytest.mark.parametrize("limits", LARGE_GRAPHS.values(), ids=LARGE_GRAPHS)
def test_where_graphs_could_serve_the_first_step_none_pads_it(limits: WorkloadLimits) -> None:
    """Padding moves bits, so what is compared bit for bit must not have been padded earlier."""
    workload = build_workload(limits, 1)
    for one in workload.rounds(Arms.REFERENCE):
        scenario = workload.scenarios[one.scenario]
        tokens = sum(len(request.prompt) for request in one.requests)
        if scenario.on_size and tokens <= limits.max_num_batched_tokens:
            assert limits.padded(tokens) in (None, tokens), scenario.name


def first_steps(workload: Workload) -> set[tuple[int, int]]:
    """Tokens and requests of every round's first step that is no uniform decode."""
    per_request = 1 + workload.limits.spec_tokens
    steps = {
        (sum(len(request.prompt) for request in one.requests), len(one.requests))
        for one in workload.rounds(Arms.ALL)
    }
    return {(tokens, count) for tokens, count in steps if tokens != count * per_request}


def decode_steps(workload: Workload) -> set[int]:
    """Numbers of tokens of all decode steps, where requests of a round begin together."""
    per_request = 1 + workload.limits.spec_tokens
    return {
        per_request * sum(request.max_tokens > step for request in one.requests)
        for one in workload.rounds(Arms.ALL)
        for step in range(1, max(request.max_tokens for request in one.requests))
    }


@pytest.mark.parametrize("spec_tokens", [0, 3])
@pytest.mark.parametrize("limits", LARGE_GRAPHS.values(), ids=LARGE_GRAPHS)
def test_every_graph_is_run_however_many_there_are(
    limits: WorkloadLimits, spec_tokens: int
) -> None:
    """Of prompts, and of decode steps where so many requests are allowed."""
    limits = limits.model_copy(update={"spec_tokens": spec_tokens})
    workload = build_workload(limits, 1)
    prompts = {limits.padded(tokens) for tokens, _ in first_steps(workload)}
    assert prompts >= set(limits.capture_sizes) - {1}
    width = 1 + spec_tokens
    decodes = {
        size
        for size in limits.capture_sizes
        if size % width == 0 and size // width <= limits.max_num_seqs
    }
    assert decode_steps(workload) >= decodes
    assert not any(line.startswith("prompt-") and "exceed" in line for line in workload.omitted)


def test_more_graphs_cost_a_bounded_number_of_steps() -> None:
    steps, rows = build_workload(LARGE_GRAPHS["default-sizes"], 1).cost(Arms.REFERENCE)
    assert steps <= 3400
    assert rows <= 54_000


@pytest.mark.parametrize("spec_tokens", [0, 1, 3])
def test_every_graph_size_has_a_first_step_that_is_no_decode(spec_tokens: int) -> None:
    """A first step of one prompt as long as a decode is taken for one."""
    workload = build_workload(LIMITS.model_copy(update={"spec_tokens": spec_tokens}), 1)
    served = {LIMITS.padded(tokens) for tokens, _ in first_steps(workload)}
    assert served >= set(LIMITS.capture_sizes) - {1 if not spec_tokens else 0}


def test_the_drain_shrinks_by_one_request_a_step() -> None:
    ((scenario, requests),) = of_kind(USUAL, Kind.DRAIN).values()
    counts = [request.max_tokens for request in requests]
    assert sorted(counts) == list(range(1, 17))
    assert counts != sorted(counts)
    assert scenario.rows == sum(counts)


def test_another_drain_goes_from_graph_to_graph() -> None:
    ((_, requests),) = of_kind(USUAL, Kind.DRAIN_ON_SIZE).values()
    counts = [request.max_tokens for request in requests]
    alive = [sum(count > step for count in counts) for step in range(max(counts))]
    assert set(alive) == set(LIMITS.capture_sizes)


def test_a_prompt_is_repeated_in_sequence_and_within_a_batch() -> None:
    repeated = of_kind(USUAL, Kind.REPEAT_PROMPT)
    assert repeated["again-1"][1] == repeated["again-2"][1]
    for name, size in (("twins-2", 2), ("twins-4", 4)):
        _, requests = repeated[name]
        assert len(requests) == size
        assert len(set(requests)) == 1


def test_text_is_free_long_and_alone() -> None:
    ((_, requests),) = of_kind(USUAL, Kind.FREE_TEXT).values()
    (request,) = requests
    assert request.forced_token is None
    assert request.max_tokens > 100
    assert len(request.prompt) in LIMITS.capture_sizes


def test_the_control_changes_one_early_token() -> None:
    control = of_kind(USUAL, Kind.SENSITIVITY)
    ((one,), (other,)) = (requests for _, requests in control.values())
    differing = [
        i for i, pair in enumerate(zip(one.prompt, other.prompt, strict=True)) if len(set(pair)) > 1
    ]
    assert differing == [1]
    assert len(one.prompt) >= 24
    assert one.forced_token == other.forced_token


@pytest.mark.parametrize("limits", LARGE_GRAPHS.values(), ids=LARGE_GRAPHS)
def test_the_control_stays_short_where_graphs_are_large(limits: WorkloadLimits) -> None:
    """Of a long prompt, one token moves next to nothing, and padding moves bits."""
    for scenario, (request,) in of_kind(build_workload(limits, 1), Kind.SENSITIVITY).values():
        assert 2 <= len(request.prompt) <= 24, scenario.name
        assert len(request.prompt) in limits.capture_sizes


def test_every_pass_has_inputs_of_its_own_and_repeats_lie_apart() -> None:
    rounds = list(USUAL.rounds(Arms.REFERENCE))
    assert {one.pass_index for one in rounds} == {0, 1, 2}
    first = [i for i, one in enumerate(rounds) if one.scenario == 0 and one.pass_index == 0]
    assert min(later - earlier for earlier, later in pairwise(first)) > 5


def test_only_the_reference_runs_fillers() -> None:
    names = {USUAL.scenarios[one.scenario].name for one in USUAL.rounds(Arms.ALL)}
    assert not any(name.endswith("-filled") for name in names)


def test_the_usual_workload_stays_within_its_budget() -> None:
    steps, rows = USUAL.cost(Arms.REFERENCE)
    assert steps <= 2700
    assert rows <= 12_000
    assert USUAL.omitted == ()


def test_what_has_no_room_is_told() -> None:
    tight = WorkloadLimits(
        vocab=128,
        max_model_len=128,
        max_num_seqs=256,
        max_num_batched_tokens=1024,
        capture_sizes=(1, 2, 4, 8, 16, 256, 512),
    )
    omitted = build_workload(tight, 1).omitted
    assert any(line.startswith("batch-3-filled: the prompts cannot fill") for line in omitted)
    assert any(line.startswith("mixed-") for line in omitted)


@pytest.mark.parametrize(
    "changes",
    [
        {"capture_sizes": (2, 1)},
        {"capture_sizes": ()},
        {"capture_sizes": (0, 1)},
        {"max_num_batched_tokens": 16},
        {"vocab": 1},
    ],
)
def test_limits_that_make_no_sense_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        WorkloadLimits.model_validate({**LIMITS.plain(), **changes})


@given(
    sizes=st.sets(st.integers(1, 48), min_size=1, max_size=8),
    seqs=st.integers(1, 40),
    length=st.integers(64, 300),
    extra=st.integers(1, 300),
    spec=st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_every_request_fits_its_engine(
    sizes: set[int], seqs: int, length: int, extra: int, spec: int
) -> None:
    limits = WorkloadLimits(
        vocab=64,
        max_model_len=length,
        max_num_seqs=seqs,
        max_num_batched_tokens=max(sizes) + extra,
        capture_sizes=tuple(sorted(sizes)),
        spec_tokens=spec,
    )
    workload = build_workload(limits, 5)
    for index, scenario in enumerate(workload.scenarios):
        requests = workload.requests(index, 0)
        assert len(requests) <= seqs
        assert scenario.rows == sum(one.max_tokens for one in requests if not one.fill)
        for request in requests:
            assert len(request.prompt) >= 1
            assert len(request.prompt) + request.max_tokens <= length
            assert all(0 <= token < limits.vocab for token in request.prompt)
