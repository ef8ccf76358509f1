"""What replays were given (classes A and F): do live values reach the memory that graphs read?"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from fixtures.evidence.audit import CaptureAudit
from gates.audit.harmless import Check, Harmless
from gates.audit.words import PREPARE, failed, some
from gates.verdict import Finding

_ENOUGH = 4
"""Replays below which a buffer may well hold the same every time."""
_MOST_PADS = 1 << 20
"""Bytes of the largest buffer whose content is recorded."""
_TABLES = "vllm/v1/worker/gpu/block_table.py: BlockTables.compute_slot_mappings"


def judge_inputs(audit: CaptureAudit, harmless: Harmless) -> Iterator[Finding]:
    """Findings on inputs just before replays, and on the caches' canaries.

    That a buffer is never written takes all replays that were looked at: a record that ends
    earlier says nothing about it.
    """
    yield from _moved(audit, harmless)
    if audit.stage == "whole":
        yield from _never_written(audit, harmless)
    yield from _pad_slots(audit)
    yield from _canaries(audit)


def _moved(audit: CaptureAudit, harmless: Harmless) -> Iterator[Finding]:
    """Class A: the step's values are at one address, and the graph reads another."""
    bad = [
        (replay, moved)
        for replay in audit.replays
        for moved in replay.moved
        if not harmless.excuses(Check.MOVED, _short(moved.path))
    ]
    if bad:
        replay, moved = bad[0]
        paths = some([_short(one.path) for _, one in bad], 6)
        why = (
            f"{len({one.descriptor for one, _ in bad})} graphs read memory in which the step "
            f"prepared nothing: {paths}. In {replay.descriptor} the graph was captured with "
            f"{_short(moved.path)} at {moved.captured:#x}, the step has it at {moved.live:#x}"
        )
        yield failed("moved-input", "A", why, PREPARE, n=len(audit.replays))


def _never_written(audit: CaptureAudit, harmless: Harmless) -> Iterator[Finding]:
    """Class A: a buffer that a graph reads holds the same before every replay of every size."""
    contents: dict[str, list[int]] = {}
    writes: dict[str, list[int]] = {}
    for refresh in audit.refreshes:
        for buffer in refresh.buffers:
            contents.setdefault(buffer.name, []).extend(buffer.contents)
            writes.setdefault(buffer.name, []).extend(buffer.writes)
    changing = [name for name, sums in contents.items() if len(set(sums)) > 1]
    if not changing:
        return  # no step differed from another: nothing can be told from this
    sizes = {buffer.name: buffer.size for buffer in audit.buffers}
    still = [
        name
        for name, sums in contents.items()
        if len(sums) >= _ENOUGH
        and len(set(sums)) == 1
        and not _written(writes[name], sums[0], sizes.get(name, 0))
        and not harmless.excuses(Check.CONSTANT, _short(name))
    ]
    if still:
        replays = max(len(contents[name]) for name in still)
        why = (
            f"graphs read {some([_short(name) for name in still], 6)}, which held the same before "
            f"each of {replays} replays while {some([_short(name) for name in changing], 4)} "
            "changed: live values never reach it"
        )
        yield failed(
            "never-refreshed",
            "A",
            why,
            PREPARE,
            n=len(contents),
            measured=f"{len(still)} buffers",
            limit="0 buffers",
            evidence=tuple(still[:8]),
        )


def _written(counts: list[int], content: int, size: int) -> bool:
    """Whether steps write a buffer although it holds the same, or may do so for all we know.

    A compressed slot mapping is filled with -1 for every step, and holds a slot only where a token
    completes a group: with one slot in 128 tokens, most decode steps have none. Where the writes
    weren't counted, such a buffer can't be told from one that was left as it was captured.
    """
    if counts:
        return len(set(counts)) > 1
    return 0 < size <= _MOST_PADS and content == zlib.crc32(b"\xff" * size)


def _pad_slots(audit: CaptureAudit) -> Iterator[Finding]:
    """Class F: a pad row writes into a block that a request can have."""
    bad = [replay for replay in audit.replays if replay.pad_slots]
    if bad:
        first = bad[0]
        why = (
            f"{len(bad)} of {len(audit.replays)} replays give pad rows a live cache slot: "
            f"{first.descriptor} with {first.tokens} real tokens has {first.pad_slots}"
        )
        yield failed("pad-slots", "F", why, _TABLES, n=len(audit.replays))


def _canaries(audit: CaptureAudit) -> Iterator[Finding]:
    """Class F: the first slot lies in block 0, which no request is given."""
    first = [canary for canary in audit.canaries if canary.place == "first"]
    dead = [canary.name for canary in first if canary.before != canary.after]
    if dead:
        why = (
            f"the first slot of {len(dead)} of {len(first)} caches ({some(dead)}) was written "
            "while requests were served, though block 0 belongs to none"
        )
        yield failed("first-slot", "F", why, _TABLES, n=len(first))


def _short(path: str) -> str:
    """A path without the package of its class, which it begins with."""
    head, bracket, tail = path.partition("[")
    parts = head.split(".")
    at = next((i for i, part in enumerate(parts) if part[:1].isupper()), 0)
    return ".".join(parts[at:]) + bracket + tail if at else path
