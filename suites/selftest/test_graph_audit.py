"""The capture audit's judge on records of graphs: planted faults by class, clean ones not."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.errors import ConfigError
from fixtures.evidence.arguments import bytes_of, words
from fixtures.evidence.audit import (
    AUDIT_FILE,
    Block,
    CaptureAudit,
    Event,
    Kernel,
    Node,
    StateAudit,
    parse_audit,
    read_audit,
    write_audit,
)
from fixtures.evidence.cellrun import EvidenceFile
from gates.audit import judge_audit, judge_graphs
from gates.audit.harmless import Check, Entry, Harmless, default_harmless, read_harmless
from gates.audit.nodes import diffs
from gates.audit.pointers import coverage
from gates.verdict import Gate, Status
from suites.selftest.audits import (
    ATTEND,
    FULL,
    INPUT,
    NOTHING,
    POOL,
    SMALLER,
    TEMPORARY,
    WEIGHT,
    attend,
    audit,
    copy,
    memory,
    node,
    only,
    packed,
    plan,
    reset,
    state,
    trace,
)
from suites.selftest.build import a_cell, a_run


def clean() -> CaptureAudit:
    return audit(trace("graph"), trace("fresh"), states=(state(),))


def test_a_clean_record_passes_and_says_how_far_it_reaches() -> None:
    finding = only(clean())
    assert (finding.gate, finding.status) == (Gate.AUDIT, Status.PASS)
    assert "1 graphs with 4 launches" in finding.why
    assert coverage(clean()) == (3, 1), "INPUT, INPUT + 64 and TEMPORARY; WEIGHT is in a struct"


# --- state and nodes: what warm-up did is missing from the graph


def test_a_filled_field_is_named_with_its_backend() -> None:
    record = audit(trace("graph"), trace("fresh"), states=(state("warmup", shared=True),))
    finding = only(record)
    assert (finding.fault_class, finding.check) == ("C", "warm-state")
    assert "FlashMLASchedMeta.tile_scheduler_metadata" in finding.why
    assert "FlashMLASparseMetadata" in finding.why


def test_a_field_that_is_filled_by_another_way_is_found_too() -> None:
    assert only(audit(trace("graph"), states=(state("filled"),))).fault_class == "C"


def test_metadata_that_both_passes_share_is_found_without_lazy_fields() -> None:
    shared = state("absent", shared=True)
    assert only(audit(trace("graph"), states=(shared,))).check == "warm-state"


def test_a_planning_kernel_that_is_not_in_the_graph_is_named() -> None:
    finding = only(audit(trace("graph", (reset(), attend(), copy())), trace("fresh")))
    assert (finding.fault_class, finding.check) == ("C", "missing-kernels")
    assert "get_mla_metadata_kernel (1 eagerly, 0 in the graph)" in finding.why


def test_a_missing_reset_of_kernel_state_is_class_l() -> None:
    finding = only(audit(trace("graph", (plan(), attend(), copy())), trace("fresh")))
    assert (finding.fault_class, finding.check) == ("L", "missing-memory-operations")


def test_kernels_of_the_graph_alone_and_other_counts_are_told() -> None:
    twice = (reset(), plan(), plan(), attend(), copy())
    finding = only(audit(trace("graph", twice), trace("fresh")))
    assert finding.check == "extra-kernels"
    assert "(1 eagerly, 2 in the graph)" in finding.why


def test_another_launch_shape_is_told_with_both_shapes() -> None:
    wide = (reset(), plan(), attend(grid=(4, 1, 1)), copy())
    finding = only(audit(trace("graph"), trace("fresh", wide)))
    assert finding.check == "shape-kernels"
    assert "grid (4, 1, 1)" in finding.why
    assert "(1, 1, 1)" in finding.why


def test_segments_are_held_against_each_other_one_by_one() -> None:
    parts = ((plan(),), (attend(), copy()))
    graphs = [trace("graph", nodes, segment=i) for i, nodes in enumerate(parts)]
    fresh = [trace("fresh", nodes, segment=i) for i, nodes in enumerate(parts)]
    assert only(audit(*graphs, *fresh)).status is Status.PASS
    moved = [trace("fresh", nodes, segment=i) for i, nodes in enumerate(reversed(parts))]
    assert {f.check for f in judge_audit(audit(*graphs, *moved), NOTHING)} == {
        "missing-kernels",
        "extra-kernels",
    }
    fewer = audit(*graphs, fresh[0])
    assert {f.check for f in judge_audit(fewer, NOTHING)} == {"segments"}


def test_what_is_listed_as_harmless_is_excused_but_stays_in_the_diff() -> None:
    entry = Entry(
        check=Check.MISSING, match="get_mla_*", reason="Planned on the host in this test."
    )
    excuse = Harmless(schema_version=1, entries=(entry,))
    record = audit(trace("graph", (reset(), attend(), copy())), trace("fresh"))
    assert only(record, excuse).status is Status.PASS
    (difference,) = diffs(record, excuse)[0].differences
    assert difference.excused


# --- pointers


def freed_input(**changes: object) -> Block:
    return Block.model_validate({"start": INPUT, "size": 4096, "state": "freed", **changes})


def test_a_pointer_into_freed_memory_is_class_b_with_who_freed_it() -> None:
    event = Event(action="free_completed", time=2000, by="gpu/model_runner.py:10 reset")
    record = audit(trace("graph"), later=memory(input=freed_input(events=(event,))))
    finding = only(record)
    assert (finding.fault_class, finding.check) == ("B", "dangling-pointer")
    assert "argument 0 of get_mla_metadata_kernel" in finding.why
    assert "free_completed by gpu/model_runner.py:10 reset" in finding.why


def test_memory_that_was_given_away_shows_by_its_history_or_its_shape() -> None:
    event = Event(action="free_completed", time=2000)
    same = Block(start=INPUT, size=4096, state="live", events=(event,))
    assert "given away" in only(audit(trace("graph"), later=memory(input=same))).why
    before = same.model_copy(update={"events": (event.model_copy(update={"time": 500}),)})
    assert only(audit(trace("graph"), later=memory(input=before))).status is Status.PASS
    carved = Block(start=INPUT, size=512, state="live")
    assert "given away" in only(audit(trace("graph"), later=memory(input=carved))).why


def test_memory_that_nobody_knows_any_more_is_class_b() -> None:
    for lost in ("input", "weight", "temporary"):
        finding = only(audit(trace("graph"), later=memory(**{lost: None})))
        assert "no longer exists at checkpoint workload" in finding.why
    weight = only(audit(trace("graph"), later=memory(weight=None)))
    assert "a word in struct argument 1 of flash_fwd_splitkv_mla_kernel" in weight.why
    assert weight.measured == "0 pointers, 1 words in structs"


def test_a_pointer_that_was_dead_when_its_capture_ended_is_class_b() -> None:
    gone = memory(input=freed_input())
    finding = only(audit(trace("graph"), captured=gone, later=gone))
    assert "was free already when the capture ended" in finding.why


def test_a_graphs_temporaries_are_its_own_but_older_memory_of_the_pool_is_not() -> None:
    def pool(state: str, older: bool) -> Block:
        return Block.model_validate(
            {"start": TEMPORARY, "size": 512, "state": state, "pool": POOL, "older": older}
        )

    freed = memory(temporary=pool("freed", older=False))
    mine = audit(trace("graph"), captured=memory(temporary=pool("live", older=False)), later=freed)
    assert only(mine).status is Status.PASS
    theirs = audit(trace("graph"), captured=memory(temporary=pool("live", older=True)), later=freed)
    assert only(theirs).fault_class == "B"

    first = theirs.model_copy(update={"schema_version": 1})
    assert only(first).status is Status.PASS, "version 1 can't tell older memory of a pool"


def test_the_history_that_is_told_is_of_the_address_alone() -> None:
    mine = Event(action="free_completed", time=2000, start=INPUT, size=512, by="gpu/mine.py:1 f")
    other = Event(action="free_completed", time=3000, start=INPUT + 512, size=9, by="gpu/x.py:2 g")
    merged = Block(start=INPUT - 512, size=8192, state="freed", events=(mine, other))
    finding = only(audit(trace("graph"), later=memory(input=merged)))
    assert "gpu/mine.py:1 f" in finding.why
    assert "gpu/x.py" not in finding.why
    old = [event.model_copy(update={"start": 0}) for event in (mine, other)]
    unsure = merged.model_copy(update={"events": tuple(old)})
    assert "free_completed" not in only(audit(trace("graph"), later=memory(input=unsure))).why


def test_later_owners_of_an_address_are_not_blamed_for_freeing_a_graphs_memory() -> None:
    def event(action: str, time: int, by: str) -> Event:
        return Event(action=action, time=time, start=INPUT, size=512, by=by)

    freed = event("free_completed", 2000, "gpu/owner.py:1 f")
    later = (event("alloc", 3000, "x.py:2 g"), event("free_completed", 3001, "x.py:3 g"))
    whole = (event("alloc", 1, "gpu/owner.py:0 f"), freed, *later)
    for events, told in ((whole, "(free_completed by gpu/"), (later, "(last at this address: ")):
        block = Block(start=INPUT, size=512, state="freed", events=events)
        assert told in only(audit(trace("graph"), later=memory(input=block))).why


def test_a_fact_is_told_once_with_the_graphs_that_it_holds_in() -> None:
    graphs = [trace("graph", descriptor=descriptor) for descriptor in (FULL, SMALLER)]
    finding = only(audit(*graphs, later=memory(weight=None)))
    (evidence,) = finding.evidence
    assert evidence.endswith("in FULL 16 tokens, 16 requests; FULL 8 tokens, 8 requests")
    assert finding.why.count(ATTEND) == 1


# --- runs, files, data


def test_a_run_without_an_audit_is_not_judged_and_an_empty_one_proves_nothing() -> None:
    run = a_run(a_cell())
    assert judge_graphs(run, lambda _run: None) == ()
    (finding,) = judge_graphs(run, lambda _run: CaptureAudit(notes=("nodes: no driver",)))
    assert (finding.status, finding.fault_class) == (Status.VACUOUS, "H")
    assert "no driver" in finding.why


def test_states_alone_are_no_look_at_the_graphs() -> None:
    states = (StateAudit(descriptor=FULL, owner="target", layers=1, objects=1),)
    blind = CaptureAudit(parts=("nodes", "state"), states=states, notes=("no cuda-bindings",))
    (finding,) = judge_graphs(a_run(a_cell()), lambda _run: blind)
    assert (finding.status, finding.fault_class) == (Status.VACUOUS, "H")
    asked = blind.model_copy(update={"parts": ("state",)})
    assert [one.status for one in judge_graphs(a_run(a_cell()), lambda _run: asked)] == [
        Status.PASS
    ]


def test_a_cell_without_graphs_has_nothing_to_pass() -> None:
    assert judge_audit(CaptureAudit(parts=("nodes",)), NOTHING) == ()


def test_an_audit_that_cannot_be_read_is_invalid() -> None:
    def unreadable(_run: object) -> CaptureAudit:
        raise ConfigError("is cut short", source=AUDIT_FILE)

    (finding,) = judge_graphs(a_run(a_cell()), unreadable)
    assert finding.status is Status.INVALID


def test_a_record_comes_back_equal_and_only_unchanged(tmp_path: Path) -> None:
    file = write_audit(clean(), tmp_path)
    assert read_audit(tmp_path, file) == clean()
    other = EvidenceFile(file=AUDIT_FILE, sha256="0" * 64)
    with pytest.raises(ConfigError, match="not the file that the child recorded"):
        read_audit(tmp_path, other)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_audit(tmp_path / "nowhere", file)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kernels": ()}, "a kernel that there is not"),
        ({"checkpoints": [{"name": "captured", "traces": [9]}]}, "a trace that there is not"),
    ],
)
def test_a_record_whose_indices_lead_nowhere_is_refused(
    change: dict[str, object], problem: str
) -> None:
    text = clean().model_copy(update={}).plain() | change
    packed_text = lzma.compress(CaptureAudit.model_validate(text).to_json().encode())
    with pytest.raises(ValueError, match=problem):
        parse_audit(packed_text)


def test_a_cut_record_is_refused() -> None:
    whole = lzma.compress(clean().to_json().encode())
    with pytest.raises(EOFError):
        parse_audit(whole[:-20])


def test_the_shipped_list_is_short_and_every_entry_has_a_reason(tmp_path: Path) -> None:
    assert len(default_harmless().entries) <= 20
    path = tmp_path / "harmless.yaml"
    entry = "{check: state, match: 'Plan.*', reason: short}"
    path.write_text(f"schema_version: 1\nentries: [{entry}]\n")
    with pytest.raises(ConfigError, match="reason"):
        read_harmless(path)
    entry = entry.replace("short", "a reason that is long enough to be one")
    path.write_text(f"schema_version: 1\nentries: [{entry}, {entry}]\n")
    with pytest.raises(ConfigError, match="stands twice"):
        read_harmless(path)


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=6),
    st.binary(max_size=256),
)
def test_words_lie_inside_their_parameter_and_the_bytes_read(
    parameters: list[tuple[int, int]], data: bytes
) -> None:
    kernel = Kernel(name="k", parameters=tuple(parameters))
    for word in words(kernel, Node(kind="kernel", kernel=0, arguments=data.hex())):
        start, size = kernel.parameters[word.parameter]
        assert 0 <= word.offset <= size - 8
        at = start + word.offset
        assert word.value == int.from_bytes(data[at : at + 8], "little")
        assert word.embedded == (size > 8)


def test_the_bytes_of_a_parameter_are_cut_where_they_were_read() -> None:
    kernel = Kernel(name=ATTEND, parameters=((0, 8), (8, 4)))
    whole = Node(kind="kernel", kernel=0, arguments=packed("Qi", WEIGHT, 5))
    assert bytes_of(kernel, whole, 1) == (5).to_bytes(4, "little")
    assert node(ATTEND, "").arguments == ""
