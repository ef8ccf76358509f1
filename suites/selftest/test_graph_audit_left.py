"""What is left of an audit where the engine died: it is judged, and for what it reaches alone."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from fixtures.evidence.audit import (
    AUDIT_FILE,
    Block,
    CaptureAudit,
    Checkpoint,
    MovedInput,
    Refresh,
    Replay,
    ReplayedBuffer,
    write_audit,
)
from fixtures.evidence.cellrun import Artifact, CellRun
from fixtures.evidence.exits import Exited
from gates.audit import judge_audit
from gates.files import EvidenceFiles
from gates.judge import judge_cell
from gates.policy import read_policy
from gates.verdict import Status, Verdict
from suites.selftest.audits import (
    FULL,
    INPUT,
    NOTHING,
    POOL,
    TEMPORARY,
    audit,
    memory,
    only,
    state,
    trace,
)
from suites.selftest.build import a_cell, a_run, an_attempt

CELL = a_cell("llama.FULL_DECODE_ONLY.bk0.canary")
FREED = memory(input=Block(start=INPUT, size=4096, state="freed"))


def captured(**changes: Any) -> CaptureAudit:
    """The record of an engine that died at its first replay."""
    return audit(trace("graph"), trace("fresh"), **changes).model_copy(update={"stage": "captured"})


def died(folder: Path, record: CaptureAudit) -> CellRun:
    """A crashed run whose only attempt left the record."""
    attempt = folder / "cells" / str(CELL.key) / "attempt-0"
    attempt.mkdir(parents=True)
    file = write_audit(record, attempt)
    kept = Artifact(path=file.file, bytes=(attempt / file.file).stat().st_size, sha256=file.sha256)
    return a_run(CELL, attempts=(an_attempt(Exited(code=1), artifacts=(kept,)),), observation=None)


def verdict(folder: Path, run: CellRun) -> Verdict:
    return judge_cell(run, None, read_policy(), (), date(2026, 11, 30), EvidenceFiles([folder]))


def test_a_crash_is_explained_by_what_was_captured(tmp_path: Path) -> None:
    found = verdict(tmp_path, died(tmp_path, captured(later=FREED)))
    assert found.status is Status.CRASH
    assert [(one.fault_class, one.check) for one in found.findings if one.gate == "audit"] == [
        ("B", "dangling-pointer")
    ]


def test_a_clean_record_of_a_crash_says_where_it_ends(tmp_path: Path) -> None:
    found = verdict(tmp_path, died(tmp_path, captured()))
    assert found.status is Status.CRASH
    (passed,) = [one for one in found.findings if one.gate == "audit"]
    assert passed.status is Status.PASS
    assert "no replay was looked at; the record ends before the first replay" in passed.why


def test_a_record_without_graphs_passes_no_crash(tmp_path: Path) -> None:
    record = captured(states=(state(),)).model_copy(update={"traces": (), "checkpoints": ()})
    assert {one.gate for one in verdict(tmp_path, died(tmp_path, record)).findings} == {"liveness"}
    filled = record.model_copy(update={"states": (state("warmup"),)})
    found = verdict(tmp_path / "other", died(tmp_path / "other", filled)).findings
    assert [one.check for one in found if one.gate == "audit"] == ["warm-state"]


def test_a_crash_without_a_record_is_a_crash_alone(tmp_path: Path) -> None:
    run = died(tmp_path, captured())
    bare = run.model_copy(update={"attempts": (an_attempt(Exited(code=1)),)})
    assert {one.gate for one in verdict(tmp_path, bare).findings} == {"liveness"}


def test_a_record_that_was_changed_since_is_invalid_and_hides_no_crash(tmp_path: Path) -> None:
    run = died(tmp_path, captured(later=FREED))
    (tmp_path / "cells" / str(CELL.key) / "attempt-0" / AUDIT_FILE).write_bytes(b"other")
    found = verdict(tmp_path, run)
    assert found.status is Status.CRASH
    assert [one.status for one in found.findings if one.gate == "audit"] == [Status.INVALID]


def test_a_record_that_ends_early_says_nothing_about_buffers_that_nobody_wrote() -> None:
    contents = {"input_buffers.seq_lens": (7, 7, 7, 7), "input_buffers.input_ids": (1, 2, 3, 4)}
    buffers = tuple(ReplayedBuffer(name=name, contents=seen) for name, seen in contents.items())
    moved = MovedInput(path="input_buffers.positions", captured=INPUT, live=INPUT + 4096)
    record = audit(
        trace("graph"),
        trace("fresh"),
        refreshes=(Refresh(descriptor=FULL, buffers=buffers),),
        replays=(Replay(descriptor=FULL, requests=3, tokens=3, padded=4, moved=(moved,)),),
    )
    assert [one.check for one in judge_audit(record, NOTHING)] == [
        "moved-input",
        "never-refreshed",
    ]
    early = record.model_copy(update={"stage": "serving"})
    assert [one.check for one in judge_audit(early, NOTHING)] == ["moved-input"]


def test_a_later_record_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    write_audit(captured(), tmp_path)
    write_audit(captured().model_copy(update={"stage": "whole"}), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [AUDIT_FILE]


# --- memory of the graphs' pool that is given to a tensor after the last capture


def pooled(state: str, pool: str = POOL) -> tuple[Block, ...]:
    return memory(
        temporary=Block.model_validate(
            {"start": TEMPORARY, "size": 512, "state": state, "pool": pool}
        )
    )


def looked(*looks: tuple[str, tuple[Block, ...]]) -> CaptureAudit:
    """A clean record with these checkpoints after the captures."""
    record = audit(trace("graph"), trace("fresh"))
    later = tuple(Checkpoint(name=name, blocks=blocks) for name, blocks in looks)
    return record.model_copy(update={"checkpoints": (record.checkpoints[0], *later)})


def test_memory_of_the_pool_that_a_tensor_gets_after_the_captures_is_class_b() -> None:
    finding = only(looked(("all-captured", pooled("freed")), ("started", pooled("live"))))
    assert (finding.fault_class, finding.check) == ("B", "dangling-pointer")
    assert "were given to a tensor outside the graphs at checkpoint started" in finding.why


@pytest.mark.parametrize(
    "looks",
    [
        # the graph's own output, kept for its owner
        (("all-captured", pooled("live")), ("started", pooled("live"))),
        # another manager's captures come after the first one's
        (("all-captured", pooled("freed")), ("all-captured", pooled("live"))),
        # the graphs' memory, as it should be
        (("all-captured", pooled("freed")), ("workload", pooled("freed"))),
        # the address is another pool's by now, which its own rules are for
        (("all-captured", pooled("freed")), ("workload", pooled("live", "0.9"))),
    ],
)
def test_memory_of_the_pool_that_is_a_graphs_raises_no_alarm(
    looks: tuple[tuple[str, tuple[Block, ...]], ...],
) -> None:
    assert [one.status for one in judge_audit(looked(*looks), NOTHING)] == [Status.PASS]
