"""What a graph froze (class D): its launches against those of a step that it is replayed for.

Owns the comparison of arguments. A graph is captured for the worst case, so most differences are
right: a longest sequence of 4,096 serves one of 20. A step that needs more than was captured is
the fault: only where a host integer of the step's metadata is larger than at capture is anything
said, and then which launch it would change.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

from fixtures.evidence.audit import CaptureAudit, Node, Trace
from fixtures.evidence.contract import Descriptor
from gates.audit.harmless import Check, Harmless
from gates.audit.instances import told_apart
from gates.audit.nodes import shape_of
from gates.audit.pointers import MemoryMap, settled_memory
from gates.audit.words import INPUTS, failed, graph_name, kernel_name, some
from gates.verdict import Finding

_INT = struct.Struct("<i")
_WORD = struct.Struct("<Q")
_LARGEST = 1 << 24
"""Larger integers are floats, or parts of addresses."""
_MAPPED = range(0x7C00_0000_0000, 0x8000_0000_0000)
"""Where Linux maps memory: addresses of a step's own temporaries, which nobody looked up."""

IsAddress = Callable[[bytes, int], bool]
"""Whether the eight bytes at an offset are an address."""


class Frozen(NamedTuple):
    """One launch that the step would make otherwise. `why` says what differs."""

    kernel: str
    why: str
    named: bool
    """Whether the differing argument holds exactly the integer that grew."""


class Grown(NamedTuple):
    """A step that needs more than its graph was captured for."""

    graph: Trace
    live: Trace
    scalars: dict[str, tuple[int, int]]
    """Host integers that grew: as captured, as the step has them."""
    frozen: tuple[Frozen, ...]


def grown_steps(audit: CaptureAudit, harmless: Harmless) -> Iterator[Grown]:
    """Steps with a host integer that is larger than at capture, and the launches it changes."""
    graphs = {_key(t): t for t in audit.traces if t.kind == "graph"}
    fresh = {_key(t): t for t in audit.traces if t.kind == "fresh"}
    memory = {_key(t): known for t, known in settled_memory(audit)}
    for live in audit.traces:
        graph = graphs.get(_key(live)) if live.kind == "live" else None
        if graph is None:
            continue
        scalars = {
            name: (graph.scalars[name], value)
            for name, value in live.scalars.items()
            if value > graph.scalars.get(name, value)
        }
        if scalars:
            is_address = _addresses(memory.get(_key(live)))
            found = _compare(audit, graph, live, fresh.get(_key(live)), scalars, is_address)
            kept = tuple(x for x in found if not harmless.excuses(Check.FROZEN, x.kernel))
            yield Grown(graph, live, scalars, kept)


def judge_frozen(audit: CaptureAudit, harmless: Harmless) -> Iterator[Finding]:
    """One finding on all steps whose launches their graph does not make."""
    steps = list(grown_steps(audit, harmless))
    bad = [step for step in steps if step.frozen]
    if not bad:
        return
    worst = max(bad, key=_excess)
    told = _grouped(worst.frozen)
    by_graph = {graph_name(step.graph): step for step in sorted(bad, key=_excess)}
    why = (
        f"frozen at capture: {_scalars(worst)}, in {len(by_graph)} graphs. For a step of "
        f"{graph_name(worst.graph)}, an eager pass launches otherwise: {some(told)}"
    )
    yield failed(
        "frozen-argument",
        "D",
        why,
        INPUTS,
        n=sum(trace.kind == "live" for trace in audit.traces),
        measured=f"{len(worst.frozen)} launches differ",
        limit="0 launches",
        evidence=(*(f"{graph}: {_scalars(step)}" for graph, step in by_graph.items()), *told[3:])[
            :8
        ],
    )


def _excess(step: Grown) -> int:
    return max(now - was for was, now in step.scalars.values())


def _scalars(step: Grown) -> str:
    return some([f"{name} {was} (step: {now})" for name, (was, now) in step.scalars.items()], 4)


def _grouped(found: tuple[Frozen, ...]) -> list[str]:
    """Each difference once, with its number of launches; named ones first."""
    counts = Counter(found)
    return [
        f"{one.kernel}: {one.why}" + (f" ({n} launches)" if n > 1 else "")
        for one, n in sorted(counts.items(), key=lambda pair: not pair[0].named)
    ]


def _key(trace: Trace) -> tuple[str, Descriptor, int]:
    return trace.owner, trace.descriptor, trace.segment


def _compare(
    audit: CaptureAudit,
    graph: Trace,
    live: Trace,
    fresh: Trace | None,
    scalars: dict[str, tuple[int, int]],
    is_address: IsAddress,
) -> Iterator[Frozen]:
    """What the step would launch otherwise, kernel by kernel."""
    noise = _noise(audit, graph, fresh)
    for at, node, other in _aligned(audit, graph, live):
        if node is None or other is None:
            side, what = ("step", other) if node is None else ("graph", node)
            if what is not None and what.kernel is not None:
                yield Frozen(kernel_name(audit, what), f"only the {side} launches it", False)
            continue
        name = kernel_name(audit, node)
        if node.kernel != other.kernel:
            yield Frozen(
                name, f"the step needs another instantiation: {_apart(audit, node, other)}", False
            )
            continue
        skipped = noise.get(at, frozenset())
        yield from _arguments(audit, name, node, other, skipped, scalars, is_address)
        if node.grid != other.grid and any(
            a < b for a, b in zip(node.grid, other.grid, strict=True)
        ):
            yield Frozen(name, f"grid {node.grid}, the step needs {other.grid}", False)


def _aligned(
    audit: CaptureAudit, graph: Trace, live: Trace
) -> Iterator[tuple[int, Node | None, Node | None]]:
    """Nodes of both in order, matched by kernel; the number is the graph node's.

    Two instantiations of one template are matched where they stand in each other's place.
    """
    mine = [node for node in graph.nodes if node.kernel is not None]
    theirs = [node for node in live.nodes if node.kernel is not None]
    names = [[(node.kernel, node.block) for node in side] for side in (mine, theirs)]
    matcher = SequenceMatcher(None, names[0], names[1], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        alike = tag == "replace" and [kernel_name(audit, x) for x in mine[a:b]] == [
            kernel_name(audit, x) for x in theirs[c:d]
        ]
        if tag == "equal" or alike:
            yield from ((a + i, mine[a + i], theirs[c + i]) for i in range(b - a))
        else:
            yield from ((i, mine[i], None) for i in range(a, b))
            yield from ((-1, None, theirs[i]) for i in range(c, d))


def _noise(audit: CaptureAudit, graph: Trace, fresh: Trace | None) -> dict[int, frozenset[int]]:
    """Offsets of arguments that differ although nothing did: addresses, unwritten padding."""
    if fresh is None:
        return {}
    return {
        at: frozenset(_differing(node, other))
        for at, node, other in _aligned(audit, graph, fresh)
        if node is not None and other is not None and node.kernel == other.kernel
    }


def _apart(audit: CaptureAudit, node: Node, other: Node) -> str:
    if node.kernel is None or other.kernel is None:
        return "another one"
    return told_apart(audit.kernels[node.kernel].name, audit.kernels[other.kernel].name)


def _differing(node: Node, other: Node) -> Iterator[int]:
    """Offsets of the 4-byte words in which the arguments differ."""
    a, b = bytes.fromhex(node.arguments), bytes.fromhex(other.arguments)
    for at in range(0, min(len(a), len(b)) - 3, 4):
        if a[at : at + 4] != b[at : at + 4]:
            yield at


def _addresses(memory: MemoryMap | None) -> IsAddress:
    """Tells addresses from pairs of integers, by the memory at the end of the capture."""

    def is_address(data: bytes, at: int) -> bool:
        if at + 8 > len(data):
            return False
        (value,) = _WORD.unpack_from(data, at)
        return value in _MAPPED or (memory is not None and memory.at(value) is not None)

    return is_address


def _arguments(
    audit: CaptureAudit,
    name: str,
    node: Node,
    other: Node,
    noise: frozenset[int],
    scalars: dict[str, tuple[int, int]],
    is_address: IsAddress,
) -> Iterator[Frozen]:
    """Integers among the arguments that are larger in the step."""
    if node.kernel is None or shape_of(node)[1] != shape_of(other)[1]:
        return
    a, b = bytes.fromhex(node.arguments), bytes.fromhex(other.arguments)
    for at in sorted(set(_differing(node, other)) - noise):
        word = at - at % 8
        if is_address(a, word) or is_address(b, word):
            continue
        was, now = _INT.unpack_from(a, at)[0], _INT.unpack_from(b, at)[0]
        if not 0 <= was < now < _LARGEST:
            continue
        names = [key for key, pair in scalars.items() if pair == (was, now)]
        index, inside = _parameter(audit, node.kernel, at)
        told = f"argument {index} at byte {inside} frozen at {was}, the step needs {now}"
        yield Frozen(name, f"{told} ({names[0]})" if names else told, bool(names))


def _parameter(audit: CaptureAudit, kernel: int, at: int) -> tuple[int, int]:
    """The parameter that holds the byte, and the byte's place in it."""
    for index, (offset, size) in enumerate(audit.kernels[kernel].parameters):
        if offset <= at < offset + size:
            return index, at - offset
    return -1, at
