"""The audit's judge on mistakes that were planted in a real engine on an H200.

Of each: what the judge says, that it says nothing of it where the one fact is otherwise, and what
it says of the record as it was before the first replay, or before the first bad one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fixtures.evidence.audit import CaptureAudit, Checkpoint
from gates.audit import judge_audit
from gates.audit.harmless import default_harmless
from gates.verdict import Finding, Status
from suites.selftest.graph_corpus import GRAPH_CORPUS, read_graphs

FREED, FREED_LATER, CARVED = "llama-freed", "llama-freed-later", "llama-carved"
MOVED, UNREFRESHED, FROZEN = "llama-moved", "llama-unrefreshed", "llama-frozen"
PADS, PADS_OF_PIECES, REUSED = "llama-pads", "inkling-pads", "llama-eager-metadata"


def found(audit: CaptureAudit) -> dict[str, Finding]:
    """Findings by check."""
    return {finding.check: finding for finding in judge_audit(audit, default_harmless())}


@pytest.mark.parametrize(
    ("name", "check", "fault_class", "told"),
    [
        (FREED, "dangling-pointer", "B", "free_requested by gpu/cudagraph_utils.py"),
        (FREED_LATER, "dangling-pointer", "B", "free_requested by mutants/moving.py"),
        (CARVED, "dangling-pointer", "B", "given to a tensor outside the graphs"),
        ("trained-freed-crash", "dangling-pointer", "B", "512 bytes that had been freed"),
        (MOVED, "moved-input", "A", "input_buffers.seq_lens"),
        ("trained-stale", "moved-input", "A", "FlashAttentionMetadata.seq_lens"),
        (UNREFRESHED, "never-refreshed", "A", "graphs read input_buffers.seq_lens, which held"),
        (PADS, "pad-slots", "F", "4 requests, 1 each with 3 real tokens"),
        (PADS_OF_PIECES, "pad-slots", "F", "PIECEWISE 4 tokens"),
        (FROZEN, "frozen-argument", "D", "flag 1 of CollectiveMainloopFwdSm90 is false"),
        (REUSED, "warm-state", "C", "Backend: FlashAttentionMetadata"),
    ],
)
def test_a_planted_mistake_is_named_with_its_class(
    name: str, check: str, fault_class: str, told: str
) -> None:
    finding = found(read_graphs(GRAPH_CORPUS / name))[check]
    assert finding.fault_class == fault_class
    assert told in finding.why


# --- without the fact there is no finding


def unmoved(audit: CaptureAudit) -> CaptureAudit:
    """No step held an input elsewhere."""
    replays = tuple(replay.model_copy(update={"moved": ()}) for replay in audit.replays)
    return audit.model_copy(update={"replays": replays})


def kept(audit: CaptureAudit) -> CaptureAudit:
    """All memory is as it was when the captures ended, and steps find their inputs there."""
    settled = {block.start: block for c in audit.checkpoints if c.traces for block in c.blocks}
    checkpoints = (
        c if c.traces else c.model_copy(update={"blocks": tuple(settled.values())})
        for c in audit.checkpoints
    )
    return unmoved(audit.model_copy(update={"checkpoints": tuple(checkpoints)}))


def refreshed(audit: CaptureAudit) -> CaptureAudit:
    """Every buffer holds something else before each replay."""
    refreshes = []
    for refresh in audit.refreshes:
        buffers = tuple(
            buffer.model_copy(update={"contents": tuple(range(len(buffer.contents)))})
            for buffer in refresh.buffers
        )
        refreshes.append(refresh.model_copy(update={"buffers": buffers}))
    return audit.model_copy(update={"refreshes": tuple(refreshes)})


def unpadded(audit: CaptureAudit) -> CaptureAudit:
    """No pad row has a live slot."""
    replays = tuple(replay.model_copy(update={"pad_slots": 0}) for replay in audit.replays)
    return audit.model_copy(update={"replays": replays})


def of_one_token(audit: CaptureAudit) -> CaptureAudit:
    """No step with a longer query than the capture's was served."""
    traces = tuple(
        trace
        for trace in audit.traces
        if trace.kind != "live" or trace.scalars["max_query_len"] == 1
    )
    return audit.model_copy(update={"traces": traces})


def of_its_own(audit: CaptureAudit) -> CaptureAudit:
    """Each capture made its attention state itself."""
    states = tuple(state.model_copy(update={"shared": (), "lazy": ()}) for state in audit.states)
    return audit.model_copy(update={"states": states})


@pytest.mark.parametrize(
    ("name", "healed"),
    [
        (FREED, kept),
        (FREED_LATER, kept),
        (CARVED, kept),
        ("trained-freed-crash", kept),
        (MOVED, unmoved),
        ("trained-stale", unmoved),
        (UNREFRESHED, refreshed),
        (PADS, unpadded),
        (PADS_OF_PIECES, unpadded),
        (FROZEN, of_one_token),
        (REUSED, of_its_own),
    ],
)
def test_without_the_fact_nothing_is_found(
    name: str, healed: Callable[[CaptureAudit], CaptureAudit]
) -> None:
    (finding,) = found(healed(read_graphs(GRAPH_CORPUS / name))).values()
    assert finding.status is Status.PASS


# --- what was known before a token could be wrong


def before_replays(audit: CaptureAudit) -> CaptureAudit:
    """The record that is left before the first replay of all."""
    names = [checkpoint.name for checkpoint in audit.checkpoints]
    changes: dict[str, object] = {
        "stage": "captured",
        "checkpoints": audit.checkpoints[: names.index("first-replay") + 1],
        "traces": tuple(trace for trace in audit.traces if trace.kind != "live"),
    }
    changes |= dict.fromkeys(("replays", "refreshes", "canaries"), ())
    return audit.model_copy(update=changes)


def before_bad_replay(audit: CaptureAudit) -> CaptureAudit:
    """The record that is left before the first replay with an unusual input, that one included."""
    bad = next(i for i, r in enumerate(audit.replays) if r.moved or r.pad_slots)
    changes = {"stage": "serving", "replays": audit.replays[: bad + 1]}
    return before_replays(audit).model_copy(update=changes)


@pytest.mark.parametrize("name", [FREED, FREED_LATER, CARVED])
def test_lost_memory_is_found_before_any_graph_is_replayed(name: str) -> None:
    (finding,) = found(before_replays(read_graphs(GRAPH_CORPUS / name))).values()
    assert finding.fault_class == "B"


def test_reused_state_is_found_before_any_graph_is_replayed() -> None:
    (finding,) = found(before_replays(read_graphs(GRAPH_CORPUS / REUSED))).values()
    assert finding.fault_class == "C"


@pytest.mark.parametrize(
    ("name", "fault_class"), [(MOVED, "A"), (PADS, "F"), (PADS_OF_PIECES, "F")]
)
def test_a_bad_input_is_found_before_the_replay_that_is_given_it(
    name: str, fault_class: str
) -> None:
    audit = read_graphs(GRAPH_CORPUS / name)
    assert [one.status for one in found(before_replays(audit)).values()] == [Status.PASS]
    (finding,) = found(before_bad_replay(audit)).values()
    assert finding.fault_class == fault_class


def test_a_moved_buffer_is_moved_before_the_first_replay_of_requests() -> None:
    assert read_graphs(GRAPH_CORPUS / MOVED).replays[0].moved


def test_a_frozen_step_is_traced_before_its_first_replay() -> None:
    """A longer query than the capture's was traced the first time that it came."""
    audit = read_graphs(GRAPH_CORPUS / FROZEN)
    longest = [replay.scalars["max_query_len"] for replay in audit.replays]
    traced = [t.scalars["max_query_len"] for t in audit.traces if t.kind == "live"]
    assert traced[: len(set(longest))] == list(dict.fromkeys(longest))
    assert longest[0] > 1


def test_that_a_buffer_is_never_written_takes_all_replays() -> None:
    audit = read_graphs(GRAPH_CORPUS / UNREFRESHED)
    ended = audit.model_copy(update={"stage": "serving"})
    assert [finding.status for finding in found(ended).values()] == [Status.PASS]


def test_a_crash_with_sound_graphs_raises_no_alarm() -> None:
    """DeepSeek's breakable pieces: the engine crashes, and not for anything in its graphs."""
    (finding,) = found(read_graphs(GRAPH_CORPUS / "dsv4-pieces-crash")).values()
    assert finding.status is Status.PASS
    assert "the record ends before the first replay" in finding.why


def checkpoint_names(checkpoints: tuple[Checkpoint, ...]) -> list[str]:
    """Names of the looks at all graphs, in order."""
    return [checkpoint.name for checkpoint in checkpoints if checkpoint.traces is None]


def test_an_engine_that_died_left_what_it_knew() -> None:
    crashed = read_graphs(GRAPH_CORPUS / "trained-freed-crash")
    assert crashed.stage == "captured"
    assert checkpoint_names(crashed.checkpoints) == ["all-captured", "first-replay"]
    killed = read_graphs(GRAPH_CORPUS / "trained-stale")
    assert killed.stage == "serving"
    assert len(killed.replays) == 1
