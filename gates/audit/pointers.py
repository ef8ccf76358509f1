"""Addresses in graph nodes against the memory as it was later (class B).

Owns following each address from the end of its capture to the later checkpoints.

A graph's temporaries lie in its pool and are free again when the capture ends: the pool keeps
them for the graphs that share it, and every replay writes them before it reads them. So memory
of a pool counts only where the graph did not make it: what was live before its pass was prepared,
and what was free when all graphs were there and is a tensor's later: that one is not a graph's.
Records of version 1 can't tell that (see Block.older), so there all memory of pools is taken as
the graph's own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from fixtures.evidence.arguments import Word, words
from fixtures.evidence.audit import Block, CaptureAudit, Checkpoint, Event, Trace
from gates.audit.harmless import Check, Harmless
from gates.audit.words import CAPTURE, by_fact, failed, graph_name, kernel_name, some
from gates.verdict import Finding

_ALL_CAPTURED = "all-captured"
"""The checkpoint after the captures of a manager; the last one counts."""
_FREES = ("free_requested", "free_completed", "segment_free", "segment_unmap")


class Dangling(NamedTuple):
    """An address in a graph whose memory is no longer what it was. `why` says since when.

    `blamed`: the history reaches back to the capture, so that it names who freed the memory.
    """

    graph: str
    kernel: str
    word: Word
    block: Block
    why: str
    history: str
    blamed: bool


class Coverage(NamedTuple):
    """Addresses that were followed: parameters of their own, and words in structs."""

    direct: int
    embedded: int


class MemoryMap:
    """The blocks of a checkpoint by address. `place` is the checkpoint's among the record's."""

    def __init__(self, checkpoint: Checkpoint, place: int) -> None:
        self.name = checkpoint.name
        self.place = place
        self._blocks = sorted(checkpoint.blocks, key=lambda block: block.start)
        self._starts = [block.start for block in self._blocks]

    def at(self, address: int) -> Block | None:
        """The block that holds the address; None: nobody knew it."""
        index = bisect_right(self._starts, address) - 1
        block = self._blocks[index] if index >= 0 else None
        return block if block is not None and address < block.start + block.size else None


def judge_pointers(audit: CaptureAudit, harmless: Harmless) -> Iterator[Finding]:
    """One finding on all addresses that dangle."""
    found = [d for d in dangling(audit) if not harmless.excuses(Check.POINTER, d.kernel)]
    if not found:
        return
    direct = [one for one in found if not one.word.embedded]
    first = max(direct or found, key=lambda one: one.blamed)
    graphs = dict.fromkeys(one.graph for one in found)
    where = f"a word in struct argument {first.word.parameter}" if first.word.embedded else ""
    where = where or f"argument {first.word.parameter}"
    others = [one.kernel for one in found if one.kernel != first.kernel]
    why = (
        f"{where} of {first.kernel} points at {first.block.size} bytes that {first.why}"
        f"{first.history}; so in {len(graphs)} graphs, first {first.graph}"
    )
    why += f"; other kernels: {some(others)}" if others else ""
    yield failed(
        "dangling-pointer",
        "B",
        why,
        CAPTURE,
        n=sum(coverage(audit)),
        measured=f"{len(direct)} pointers, {len(found) - len(direct)} words in structs",
        limit="0 pointers",
        evidence=by_fact((_told(one), one.graph) for one in found),
    )


def dangling(audit: CaptureAudit) -> Iterator[Dangling]:
    """Every address that lay in memory when its capture ended and lost it later, once each.

    A draft's graphs are captured after the model's, whose checkpoints don't know their addresses.
    """
    whole = [MemoryMap(c, at) for at, c in enumerate(audit.checkpoints) if c.traces is None]
    tells_older = audit.schema_version > 1
    done = max((memory.place for memory in whole if memory.name == _ALL_CAPTURED), default=0)
    for trace, settled in settled_memory(audit):
        later = [memory for memory in whole if memory.place > settled.place]
        seen: set[int] = set()
        for kernel, word in _trace_words(audit, trace):
            block = settled.at(word.value)
            if block is None or word.value in seen:
                continue
            seen.add(word.value)
            own = bool(block.pool) and not (tells_older and block.older and block.state == "live")
            lost = _lost(trace, word.value, block, later, own)
            if lost is None and own:
                lost = _carved(word.value, block, [m for m in later if m.place >= done])
            if lost is not None:
                why, last = lost
                history, blamed = _history(trace, word.value, block, last or block)
                yield Dangling(graph_name(trace), kernel, word, block, why, history, blamed)


def coverage(audit: CaptureAudit) -> Coverage:
    """How many different addresses in graphs were found in memory, graph by graph."""
    direct = embedded = 0
    for trace, settled in settled_memory(audit):
        known = {w.value: w for _, w in _trace_words(audit, trace) if settled.at(w.value)}
        alone = sum(not word.embedded for word in known.values())
        direct, embedded = direct + alone, embedded + len(known) - alone
    return Coverage(direct, embedded)


def settled_memory(audit: CaptureAudit) -> Iterator[tuple[Trace, MemoryMap]]:
    """Graphs with the memory as it was when their capture had ended."""
    for place, checkpoint in enumerate(audit.checkpoints):
        memory = MemoryMap(checkpoint, place)
        for index in checkpoint.traces or ():
            if audit.traces[index].kind == "graph":
                yield audit.traces[index], memory


def _trace_words(audit: CaptureAudit, trace: Trace) -> Iterator[tuple[str, Word]]:
    for node in trace.nodes:
        if node.kernel is not None:
            name = kernel_name(audit, node)
            for word in words(audit.kernels[node.kernel], node):
                yield name, word


def _lost(
    trace: Trace, address: int, block: Block, later: list[MemoryMap], own: bool
) -> tuple[str, Block | None] | None:
    """Since when the memory at `address` is no longer what the graph was captured with.

    `own`: it is the graph's to reuse, so that only memory which no longer exists is lost.
    """
    if not block.pool and block.state == "freed":
        return "was free already when the capture ended", block
    for memory in later:
        now = memory.at(address)
        if now is None:
            return f"no longer exists at checkpoint {memory.name}", None
        if own or block.state == "foreign":
            continue
        if now.state == "freed":
            return f"had been freed at checkpoint {memory.name}", now
        same = (now.start, now.size) == (block.start, block.size)
        given = not same or _freed_since(trace, address, now)
        if given:
            return f"had been freed and given away at checkpoint {memory.name}", now
    return None


def _carved(address: int, block: Block, later: list[MemoryMap]) -> tuple[str, Block | None] | None:
    """Where memory of the graphs' pool was handed out after the last capture.

    Args:
        address: lies in `block` when its graph's capture ended.
        block: memory of a pool that the graph made itself.
        later: the memory from the moment on at which all graphs were captured.
    """
    free = False
    for memory in later:
        now = memory.at(address)
        if now is None or now.pool != block.pool:
            return None
        if free and now.state == "live":
            return f"were given to a tensor outside the graphs at checkpoint {memory.name}", now
        free = free or now.state == "freed"
    return None


def _freed_since(trace: Trace, address: int, block: Block) -> bool:
    return any(
        e.action in _FREES and e.time > trace.captured_at and _is_of(e, address)
        for e in block.events
    )


def _history(trace: Trace, address: int, block: Block, now: Block) -> tuple[str, bool]:
    """Who freed it and who has it now, and whether that reaches back to the capture.

    Of an address the last few events are kept: where it was handed out often since, they are its
    later owners' alone. Before version 2 events had no address: those of a block that has grown
    may be another's.
    """
    grown = (now.start, now.size) != (block.start, block.size)
    mine = [e for e in now.events if _is_of(e, address) and (e.start or not grown)]
    since = [e for e in mine if e.time > trace.captured_at and e.by]
    told = list(dict.fromkeys(f"{event.action} by {event.by}" for event in since))
    whole = any(event.time <= trace.captured_at for event in mine)
    blamed = whole and bool(since) and since[0].action in _FREES
    kept = told[:3] if blamed else told[-3:]
    head = "" if blamed else "last at this address: "
    return (f" ({head}{'; '.join(kept)})" if kept else ""), blamed


def _is_of(event: Event, address: int) -> bool:
    return not event.start or event.start <= address < event.start + max(event.size, 1)


def _told(one: Dangling) -> str:
    place = f"argument {one.word.parameter}"
    place += f" + {one.word.offset} bytes" if one.word.embedded else ""
    return f"{one.kernel}, {place}: {one.why}{one.history}"
