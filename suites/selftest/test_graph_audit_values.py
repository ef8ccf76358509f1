"""The capture audit's judge on arguments and inputs: what was frozen, what is never written."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from fixtures.evidence.audit import (
    Buffer,
    Canary,
    CaptureAudit,
    Kernel,
    MovedInput,
    Node,
    Refresh,
    Replay,
    ReplayedBuffer,
)
from gates.audit.harmless import Check, Entry, Harmless
from gates.audit.instances import told_apart
from gates.verdict import Status
from suites.selftest.audits import (
    ATTEND,
    FULL,
    INPUT,
    SMALLER,
    TEMPORARY,
    attend,
    audit,
    copy,
    only,
    plan,
    reset,
    trace,
)

# --- arguments


def grown(live: Node, **changes: object) -> CaptureAudit:
    nodes = (reset(), plan(), live, copy(TEMPORARY + 4096))
    step = trace("live", nodes, scalars={"max_query_len": 16, "max_seq_len": 20})
    start = {"max_query_len": 1, "max_seq_len": 4096}
    return audit(trace("graph", scalars=start), trace("fresh", scalars=start), step)


def test_a_frozen_argument_is_named_with_its_place_and_both_values() -> None:
    finding = only(grown(attend(16)))
    assert (finding.fault_class, finding.check) == ("D", "frozen-argument")
    assert "argument 2 at byte 0 frozen at 1, the step needs 16 (max_query_len)" in finding.why
    assert "max_query_len 1 (step: 16)" in finding.why
    assert "max_seq_len" not in finding.why, "captured for the longest sequence, which is right"


def test_a_launch_that_does_not_follow_the_larger_step_is_no_fault() -> None:
    assert only(grown(attend(1))).status is Status.PASS


def test_a_smaller_frozen_grid_and_another_kernel_are_faults_of_a_larger_step() -> None:
    wider = only(grown(attend(1, grid=(3, 1, 1))))
    assert "grid (1, 1, 1), the step needs (3, 1, 1)" in wider.why
    other = only(grown(copy()))
    assert "flash_fwd_splitkv_mla_kernel: only the graph launches it" in other.why


CAUSAL, PLAIN = (
    f"_ZN5flash6attendINS_8MainloopILi2ENS1_3IntILi64EEELb{causal}ELb0EEENS_9SchedulerILi-1EEEEEvT_"
    for causal in (1, 0)
)


def test_another_instantiation_of_a_template_is_told_by_what_differs() -> None:
    assert told_apart(PLAIN, CAUSAL) == "flag 1 of Mainloop is false (step: true)"
    wider = PLAIN.replace("Int" + "ILi64E", "Int" + "ILi128E")
    assert told_apart(PLAIN, wider) == "integer 1 of Int is 64 (step: 128)"
    assert told_apart(PLAIN, PLAIN) == told_apart(PLAIN, ATTEND) == "another one"


def test_a_step_that_needs_another_instantiation_is_class_d() -> None:
    record = grown(attend(1))
    kernels = (*record.kernels, *(Kernel(name=name) for name in (PLAIN, CAUSAL)))
    nodes = [Node(kind="kernel", kernel=len(record.kernels) + at) for at in (0, 0, 1)]
    traces = [
        one.model_copy(update={"nodes": (*one.nodes, node)})
        for one, node in zip(record.traces, nodes, strict=True)
    ]
    finding = only(record.model_copy(update={"kernels": kernels, "traces": tuple(traces)}))
    assert "flash::attend: the step needs another instantiation: flag 1 of Mainloop" in finding.why


@given(st.text(alphabet="ILSNJXET_0123456789bjai", max_size=60), st.text(max_size=20))
def test_no_name_breaks_the_reader_of_templates(mine: str, theirs: str) -> None:
    assert told_apart(mine, theirs)
    assert told_apart(f"_Z{mine}", f"_Z{mine}") == "another one"


def test_a_step_within_what_was_captured_may_launch_otherwise() -> None:
    step = trace("live", (reset(), plan(), attend(0)), scalars={"max_query_len": 1})
    assert only(audit(trace("graph"), trace("fresh"), step)).status is Status.PASS


def test_bytes_that_differ_between_two_equal_passes_are_noise() -> None:
    fresh = (reset(), plan(), attend(1, tail=3), copy())
    step = trace("live", (reset(), plan(), attend(1, tail=9), copy()), scalars={"max_query_len": 2})
    assert only(audit(trace("graph"), trace("fresh", fresh), step)).status is Status.PASS
    assert only(audit(trace("graph"), trace("fresh"), step)).fault_class == "D"


# --- inputs


def replays(**changes: object) -> Replay:
    values = {"descriptor": FULL, "requests": 3, "tokens": 3, "padded": 16, **changes}
    return Replay.model_validate(values)


def test_an_input_that_moved_is_class_a_with_both_addresses() -> None:
    moved = MovedInput(path="vllm.x.Metadata.seq_lens", captured=INPUT, live=INPUT + 4096)
    finding = only(audit(trace("graph"), replays=(replays(moved=(moved,)),)))
    assert (finding.fault_class, finding.check) == ("A", "moved-input")
    assert "Metadata.seq_lens at 0x7f0000000000, the step has it at 0x7f0000001000" in finding.why


def refreshed(**contents: tuple[int, ...]) -> CaptureAudit:
    refreshes = tuple(
        Refresh(
            descriptor=descriptor,
            buffers=tuple(
                ReplayedBuffer(name=f"input_buffers.{name}", contents=sums[at::2])
                for name, sums in contents.items()
            ),
        )
        for at, descriptor in enumerate((FULL, SMALLER))
    )
    return audit(trace("graph"), refreshes=refreshes)


def test_a_buffer_that_no_replay_refreshes_is_class_a_unless_declared_constant() -> None:
    record = refreshed(seq_lens=(1, 2, 3, 4), positions=(7, 7, 7, 7))
    finding = only(record)
    assert (finding.fault_class, finding.check) == ("A", "never-refreshed")
    assert "graphs read input_buffers.positions" in finding.why
    entry = Entry(check=Check.CONSTANT, match="*.positions", reason="Never changes in this test.")
    assert only(record, Harmless(schema_version=1, entries=(entry,))).status is Status.PASS


def test_too_few_or_equal_steps_prove_nothing_about_refreshes() -> None:
    assert only(refreshed(seq_lens=(1, 2), positions=(7, 7))).status is Status.PASS
    assert only(refreshed(seq_lens=(1, 1, 1, 1))).status is Status.PASS


def test_what_is_written_with_the_same_is_refreshed() -> None:
    record = refreshed(seq_lens=(1, 2, 3, 4), positions=(7, 7, 7, 7))
    for writes, status in (((1, 2), Status.PASS), ((3, 3), Status.FAIL)):
        counted = tuple(
            refresh.model_copy(
                update={
                    "buffers": tuple(
                        buffer.model_copy(update={"writes": writes}) for buffer in refresh.buffers
                    )
                }
            )
            for refresh in record.refreshes
        )
        assert only(record.model_copy(update={"refreshes": counted})).status is status


def test_pads_alone_prove_nothing_where_writes_are_not_counted() -> None:
    pads = zlib.crc32(b"\xff" * 640)
    record = refreshed(seq_lens=(1, 2, 3, 4), slots=(pads,) * 4)
    named = Buffer(name="input_buffers.slots", start=INPUT, size=640, role="input")
    assert only(record.model_copy(update={"buffers": (named,)})).status is Status.PASS
    other = named.model_copy(update={"size": 648})
    assert only(record.model_copy(update={"buffers": (other,)})).fault_class == "A"


def test_pad_rows_with_a_live_slot_and_a_written_first_slot_are_class_f() -> None:
    pads = only(audit(trace("graph"), replays=(replays(pad_slots=13),)))
    assert (pads.fault_class, pads.check) == ("F", "pad-slots")
    first = Canary(name="kv_caches[0]", place="first", before=1, after=2)
    last = Canary(name="kv_caches[0]", place="last", before=1, after=2)
    assert only(audit(trace("graph"), canaries=(first,))).check == "first-slot"
    assert only(audit(trace("graph"), canaries=(last,))).status is Status.PASS
