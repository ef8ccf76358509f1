"""The audit's judge on graphs that were recorded on an H200: known faults named, clean ones not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.evidence.audit import Block, CaptureAudit
from gates.audit import judge_audit
from gates.audit.harmless import Check, default_harmless
from gates.audit.nodes import diffs
from gates.verdict import Status
from suites.selftest.graph_corpus import (
    EXPECTED,
    GRAPH_CORPUS,
    Expected,
    graph_folders,
    judged,
    read_graphs,
)
from suites.selftest.scrubbed import machine_path


@pytest.mark.parametrize("folder", graph_folders(), ids=lambda folder: folder.name)
def test_the_judge_says_of_recorded_graphs_what_it_did(folder: Path) -> None:
    assert judged(read_graphs(folder)) == Expected.read_json(folder / EXPECTED)


def test_reused_warm_up_state_is_named_with_backend_field_and_kernel() -> None:
    audit = read_graphs(GRAPH_CORPUS / "dsv4-s2")
    found = {finding.check: finding for finding in judge_audit(audit, default_harmless())}
    assert {f.fault_class for f in found.values()} == {"B", "C"}
    state = found["warm-state"].why
    assert "DeepseekSparseSWAMetadata" in state
    assert "FlashMLASchedMeta.tile_scheduler_metadata" in state
    assert "get_mla_metadata_kernel (6 eagerly, 0 in the graph)" in found["missing-kernels"].why
    (difference,) = diffs(audit, default_harmless())[0].differences
    assert difference.check is Check.MISSING


def test_llama_s_full_graph_lost_the_causal_mask_with_a_longest_query_of_one() -> None:
    (finding,) = judge_audit(read_graphs(GRAPH_CORPUS / "llama-full"), default_harmless())
    assert (finding.fault_class, finding.check) == ("D", "frozen-argument")
    assert "max_query_len 1 (step: 11)" in finding.why
    assert "flag 1 of CollectiveMainloopFwdSm90 is false (step: true)" in finding.why


@pytest.mark.parametrize("name", ["dsv4-clean", "llama-clean", "inkling-clean", "inkling-mtp"])
def test_clean_graphs_raise_no_alarm(name: str) -> None:
    found = judge_audit(read_graphs(GRAPH_CORPUS / name), default_harmless())
    assert [finding.status for finding in found] == [Status.PASS]


def test_nothing_that_was_recorded_names_a_folder_of_the_machine() -> None:
    folders = graph_folders()
    assert len(folders) == 18
    for folder in folders:
        texts = [path.read_text(encoding="utf-8") for path in folder.glob("*.json")]
        for text in (*texts, read_graphs(folder).to_json()):
            assert machine_path(text) is None, folder


# --- faults planted in recorded graphs: the judge must not be blind where it is quiet


def test_weights_that_are_freed_behind_recorded_graphs_are_found() -> None:
    audit = read_graphs(GRAPH_CORPUS / "inkling-clean")
    last = audit.checkpoints[-1]
    largest = max((b for b in last.blocks if not b.pool and b.state == "live"), key=_size)
    found = judge_audit(_with_block(audit, largest, state="freed"), default_harmless())
    assert [finding.check for finding in found] == ["dangling-pointer"]


def test_memory_that_a_draft_s_graphs_alone_read_is_followed_from_their_capture_on() -> None:
    audit = read_graphs(GRAPH_CORPUS / "inkling-mtp")
    first, *_ = (one for one in audit.checkpoints if one.name == "all-captured")
    known = {block.start for block in first.blocks}
    last = audit.checkpoints[-1]
    drafts = [b for b in last.blocks if b.start not in known and not b.pool and b.state == "live"]
    hidden = max(drafts, key=_size)
    assert hidden.size == 640 * 1536 * 2, "the draft's own hidden states, made when it is"
    (finding,) = judge_audit(_with_block(audit, hidden, state="freed"), default_harmless())
    assert finding.check == "dangling-pointer"
    assert "of _embed_dual_rmsnorm_cat_kernel" in finding.why
    assert "first SpeculatorCudaGraphManager FULL 16 tokens" in finding.why


def test_a_slot_mapping_of_pads_alone_is_judged_where_its_writes_were_counted() -> None:
    audit = read_graphs(GRAPH_CORPUS / "dsv4-clean")
    stale = judge_audit(_counted(audit, moving=False), default_harmless())
    assert [finding.check for finding in stale] == ["never-refreshed"]
    assert "compressed_slot_mapping_buffer" in stale[0].why
    written = judge_audit(_counted(audit, moving=True), default_harmless())
    assert [finding.status for finding in written] == [Status.PASS]


def _size(block: Block) -> int:
    return block.size


def _with_block(audit: CaptureAudit, block: Block, **changes: object) -> CaptureAudit:
    *before, last = audit.checkpoints
    blocks = tuple(b.model_copy(update=changes) if b == block else b for b in last.blocks)
    checkpoints = (*before, last.model_copy(update={"blocks": blocks}))
    return audit.model_copy(update={"checkpoints": checkpoints})


def _counted(audit: CaptureAudit, *, moving: bool) -> CaptureAudit:
    """The record with counted writes to every buffer: one a replay, or none after the first."""
    refreshes = []
    for refresh in audit.refreshes:
        buffers = tuple(
            b.model_copy(
                update={"writes": tuple(i if moving else 1 for i in range(len(b.contents)))}
            )
            for b in refresh.buffers
        )
        refreshes.append(refresh.model_copy(update={"buffers": buffers}))
    return audit.model_copy(update={"refreshes": tuple(refreshes)})
