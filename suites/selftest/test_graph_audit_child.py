"""The audit's recorders: those that need no torch here, the others around releases' own code."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.child.audit import memory as memory_module
from fixtures.child.audit.choosing import Choice
from fixtures.child.audit.memory import Memory, first_frame
from fixtures.child.audit.parts import DEFAULT, Costs, Part, parts_of
from fixtures.evidence.audit import CaptureAudit
from fixtures.evidence.contract import Descriptor
from fixtures.source.environment import slim_python
from gates.audit import judge_audit
from gates.audit.harmless import default_harmless
from gates.verdict import Status
from suites.selftest.running import under_emulation

ROOT = Path(__file__).resolve().parents[2]


def records(release: str, *arguments: str) -> list[CaptureAudit]:
    """What the audit recorded of the release's capture, without and with a mutant.

    Of FULL graphs each record comes after the one that was left before the first replay.
    """
    printed = under_emulation(release, "audit_under_emulation", *arguments)
    lines = [line for line in printed.splitlines() if line.startswith('{"schema_version"')]
    return [CaptureAudit.model_validate_json(line) for line in lines]


@pytest.mark.parametrize(
    ("release", "mode", "breakable", "mutant"),
    [
        ("0.33.0", "FULL", "0", "full-warmup-state-reused"),
        pytest.param(
            *("0.26.0", "PIECEWISE", "1", "breakable-warmup-state-reused"),
            marks=pytest.mark.releases,
        ),
    ],
)
def test_reused_state_is_named_and_fresh_state_is_not(
    release: str, mode: str, breakable: str, mutant: str
) -> None:
    found = records(release, mode, breakable, mutant)
    clean, planted = (one for one in found if one.stage == "whole")
    left = [one for one in found if one.stage == "captured"]
    assert [one.states for one in left] == [one.states for one in (clean, planted)][: len(left)]
    assert len(left) == (2 if mode == "FULL" else 0)
    assert clean.notes == ()
    assert len(clean.states) == 5
    assert {field.at_capture for one in clean.states for field in one.lazy} == {"empty"}
    assert [f.status for f in judge_audit(clean, default_harmless())] == [Status.PASS]
    (finding,) = judge_audit(planted, default_harmless())
    assert (finding.fault_class, finding.check) == ("C", "warm-state")
    assert "Backend: ProbeMetadata" in finding.why
    assert "ProbeMetadata.plan" in finding.why


def test_the_switch_names_parts() -> None:
    assert parts_of(None) == parts_of("default") == DEFAULT
    assert Part.POISON not in DEFAULT
    assert parts_of("off") == frozenset()
    assert parts_of("all") == frozenset(Part)
    assert parts_of("state, nodes") == {Part.STATE, Part.NODES}
    with pytest.raises(ValueError, match="nodez"):
        parts_of("nodez")


def test_a_part_that_fails_is_noted_and_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Costs(DEFAULT)
    for _ in range(2):
        with costs.part(Part.NODES, "reading"):
            raise RuntimeError("no such graph")
    assert costs.told() == ("nodes: reading: RuntimeError: no such graph (2 times)",)
    assert costs.seconds[Part.NODES] > 0
    with costs.part(Part.LIVE, "tracing"):
        try:
            raise KeyError("no such kernel")
        finally:
            raise RuntimeError("a capture failed\nfor more, see elsewhere")
    assert costs.told()[1].endswith(
        "KeyError: 'no such kernel'; then RuntimeError: a capture failed"
    )
    monkeypatch.setenv("GRAPHGATE_AUDIT", "nodez")
    switched = Costs.from_environment()
    assert not switched.parts
    assert "nodez" in switched.told()[0]


WRITES = """
import torch
from fixtures.child.audit.buffers import writes
slots, inside = torch.zeros(8), torch.zeros(8)[:4]
before = writes(slots)
with torch.inference_mode():
    slots.fill_(-1)
    slots[:4].copy_(torch.ones(4))
    print(writes(slots) - before, writes(slots) - before, writes(inside), writes(torch.ones(2)))
"""


def test_writes_are_counted_under_inference_mode_but_not_those_to_a_part() -> None:
    done = subprocess.run(
        [str(slim_python()), "-c", WRITES],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.split() == ["2", "2", "None", "None"], done.stderr


def segment(start: int, *blocks: tuple[int, str], pool: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    """A segment of torch's snapshot: blocks of (size, state) from `start` on."""
    told, at = [], start
    for size, state in blocks:
        told.append({"address": at, "size": size, "state": state})
        at += size
    return {"address": start, "segment_pool_id": pool, "blocks": told}


def test_blocks_are_found_by_address_with_state_pool_and_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_module, "foreign_block", lambda _address: None)
    frames = [{"filename": "/x/torch/a.py", "line": 1}, {"filename": "/x/gpu/b.py", "line": 7}]
    event = {"action": "free_completed", "addr": 4096, "size": 512, "time_us": 9, "frames": frames}
    memory = Memory(
        {
            "segments": [
                segment(4096, (512, "inactive"), (512, "active_allocated")),
                segment(1 << 20, (1024, "active_allocated"), pool=(0, 1)),
            ],
            "device_traces": [[event]],
        }
    )
    freed, pooled = memory.blocks([4100, 4607, (1 << 20) + 8, 99])
    assert (freed.start, freed.size, freed.state, freed.pool) == (4096, 512, "freed", "")
    assert freed.events[0].by == "gpu/b.py:7 "
    assert (pooled.state, pooled.pool) == ("live", "0.1")
    older = memory.live()
    assert older == {(4608, 512, ""), (1 << 20, 1024, "0.1")}
    assert memory.blocks([1 << 20], older)[0].older
    assert list(memory.freed_in_pools()) == []


def test_memory_that_only_waits_for_a_stream_belongs_to_no_tensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_module, "foreign_block", lambda _address: None)
    waiting = Memory({"segments": [segment(4096, (512, "active_awaiting_free"), pool=(0, 2))]})
    assert waiting.live() == frozenset()
    assert list(waiting.freed_in_pools()) == [], "a stream may still read it: no place for poison"
    assert waiting.blocks([4096])[0].state == "freed"
    taken = Memory({"segments": [segment(4096, (512, "active_allocated"), pool=(0, 1))]})
    other = Memory({"segments": [segment(4096, (512, "active_allocated"), pool=(0, 2))]})
    assert not taken.blocks([4096], waiting.live())[0].older
    assert not taken.blocks([4096], other.live())[0].older, "another pool had the address before"
    assert taken.blocks([4096], taken.live())[0].older


def test_the_history_of_an_address_is_not_that_of_its_free_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_module, "foreign_block", lambda _address: None)

    def event(action: str, start: int, size: int, time: int) -> dict[str, Any]:
        return {"action": action, "addr": start, "size": size, "time_us": time, "frames": ()}

    noise = [event("free_completed", 4608, 512, time) for time in range(10, 90)]
    mine = [event("alloc", 4096, 512, 1), event("free_completed", 4096, 512, 2)]
    whole = event("segment_free", 4096, 1024, 99)
    memory = Memory(
        {
            "segments": [segment(4096, (1024, "inactive"))],
            "device_traces": [[*mine, *noise, whole, event("snapshot", 0, 0, 100)]],
        }
    )
    (block,) = memory.blocks([4100])
    assert [one.time for one in block.events] == [1, 2, 99]
    assert [one.start for one in block.events] == [4096, 4096, 4096]
    (both,) = memory.blocks([4100, 4700])
    assert {1, 2, 99} < {one.time for one in both.events}
    assert len(both.events) <= 8, "the last few of each address"


@given(st.lists(st.integers(1, 64), max_size=8), st.integers(0, 600))
def test_an_address_is_found_exactly_where_a_block_is(sizes: list[int], address: int) -> None:
    memory = Memory({"segments": [segment(32, *[(size, "inactive") for size in sizes])]})
    region = memory._region(address)
    assert (region is not None) == (32 <= address < 32 + sum(sizes))
    if region is not None:
        assert region.start <= address < region.end


def test_no_frame_outside_torch_is_no_name() -> None:
    assert first_frame([{"filename": "/x/torch/a.py"}, {"filename": "<string>"}]) == ""


def test_a_padded_step_that_no_graph_can_hold_gives_way_to_one_that_fills_it() -> None:
    choice, desc = Choice(), Descriptor(mode="FULL", num_tokens=4, num_reqs=4)
    assert choice.wants(desc, 1, padded=True)
    choice.failed(desc, 1, "no such copy", padded=True)
    assert not choice.wants(desc, 1, padded=True)
    assert choice.wants(desc, 1, padded=False)
    (note,) = choice.waiting()
    assert note.startswith(f"live: tracing a padded step of {desc}")
    assert note.endswith("no such copy")
    choice.failed(desc, 1, "no such copy", padded=False)
    assert not choice.wants(desc, 1, padded=False), "no graph can hold that step at all"
    assert choice.waiting() == (), "the step that filled the graph has a note of its own"
    for longest in (2, 3):
        assert choice.wants(desc, longest, padded=True)
        choice.traced(desc, longest)
        assert not choice.wants(desc, longest, padded=False)
    assert not choice.wants(desc, 4, padded=False), "three of a descriptor are enough"
