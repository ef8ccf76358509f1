"""A graph's nodes against a fresh trace of the same pass (classes C and L): what is missing?

Owns the comparison by counts and launch shapes; order and arguments don't matter to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from fixtures.evidence.audit import CaptureAudit, Node, Trace
from fixtures.evidence.contract import Descriptor
from gates.audit.harmless import Check, Harmless
from gates.audit.words import CAPTURE, by_fact, failed, graph_name, kernel_name, some
from gates.verdict import FaultClass, Finding

_MEMORY = frozenset({"memset", "memcpy"})

Shape = tuple[tuple[int, int, int], tuple[int, int, int], int]
"""Grid, block, bytes of dynamic shared memory."""


class Difference(NamedTuple):
    """One kernel that a graph and its fresh trace launch differently.

    `check` is MISSING, EXTRA or SHAPE; `fresh` and `graph` count launches (of the shapes that
    differ, for SHAPE); `shapes` are one differing pair.
    """

    check: Check
    kernel: str
    fresh: int
    graph: int
    shapes: tuple[Shape, Shape] | None = None
    excused: bool = False


class GraphDiff(NamedTuple):
    """A graph, its fresh trace, and where they differ."""

    graph: Trace
    fresh: Trace
    differences: tuple[Difference, ...]


def diffs(audit: CaptureAudit, harmless: Harmless) -> tuple[GraphDiff, ...]:
    """Every graph that has a fresh trace, held against it."""
    fresh = {_key(trace): trace for trace in audit.traces if trace.kind == "fresh"}
    return tuple(
        GraphDiff(trace, fresh[_key(trace)], tuple(_differences(audit, trace, fresh, harmless)))
        for trace in audit.traces
        if trace.kind == "graph" and _key(trace) in fresh
    )


def judge_nodes(audit: CaptureAudit, harmless: Harmless) -> Iterator[Finding]:
    """Findings on kernels that are not in the graph, or there only."""
    found = diffs(audit, harmless)
    wrong = [(d, [x for x in d.differences if not x.excused]) for d in found]
    wrong = [(diff, differences) for diff, differences in wrong if differences]
    yield from _segments(audit)
    for check, fault_class, text in (
        (
            Check.MISSING,
            "C",
            "launched by a pass with fresh attention state, not by the graph",
        ),
        (Check.EXTRA, "C", "launched by the graph, not by a pass with fresh attention state"),
        (Check.SHAPE, "D", "launched by the graph in another shape than by an eager pass"),
    ):
        yield from _finding(check, fault_class, text, wrong, len(found))


def _finding(
    check: Check,
    fault_class: FaultClass,
    text: str,
    wrong: list[tuple[GraphDiff, list[Difference]]],
    n: int,
) -> Iterator[Finding]:
    """One finding for kernels and one for memory operations: a missing reset is class L."""
    for memory in (False, True):
        hits = [
            (diff, one)
            for diff, differences in wrong
            for one in differences
            if one.check is check and (one.kernel in _MEMORY) == memory
        ]
        if not hits:
            continue
        graphs = list(dict.fromkeys(graph_name(diff.graph) for diff, _ in hits))
        kernels = some([_told(one) for _, one in hits], 6)
        why = f"{kernels}: {text}; in {len(graphs)} of {n} graphs, first {graphs[0]}"
        yield failed(
            f"{check}-{'memory-operations' if memory else 'kernels'}",
            "L" if memory else fault_class,
            why,
            CAPTURE,
            n=n,
            measured=f"{len(graphs)} graphs",
            limit="0 graphs",
            evidence=by_fact((_told(one), graph_name(diff.graph)) for diff, one in hits),
        )


def _told(one: Difference) -> str:
    if one.shapes is None:
        return f"{one.kernel} ({one.fresh} eagerly, {one.graph} in the graph)"
    (grid, block, shared), (other, theirs, bytes_) = one.shapes
    return f"{one.kernel} (grid {grid} block {block} +{shared} B, {other} {theirs} +{bytes_} B)"


def _segments(audit: CaptureAudit) -> Iterator[Finding]:
    """A pass must fall into as many graphs whenever it is captured."""
    counts: dict[tuple[str, Descriptor], Counter[str]] = {}
    for trace in audit.traces:
        counts.setdefault((trace.owner, trace.descriptor), Counter())[trace.kind] += 1
    bad = [
        (descriptor, count)
        for (_, descriptor), count in counts.items()
        if count["fresh"] and count["graph"] and count["fresh"] != count["graph"]
    ]
    if bad:
        descriptor, count = bad[0]
        why = (
            f"{len(bad)} descriptors (first: {descriptor}): {count['graph']} graphs were captured, "
            f"a pass with fresh attention state falls into {count['fresh']}"
        )
        yield failed("segments", "C", why, CAPTURE, n=len(counts))


def _key(trace: Trace) -> tuple[str, Descriptor, int]:
    return trace.owner, trace.descriptor, trace.segment


def _differences(
    audit: CaptureAudit,
    graph: Trace,
    fresh: dict[tuple[str, Descriptor, int], Trace],
    harmless: Harmless,
) -> Iterator[Difference]:
    mine, theirs = _launches(audit, graph), _launches(audit, fresh[_key(graph)])
    for name in dict.fromkeys((*theirs, *mine)):
        here, there = mine.get(name, Counter()), theirs.get(name, Counter())
        counts = sum(there.values()), sum(here.values())
        if counts[0] != counts[1]:
            check = Check.MISSING if counts[0] > counts[1] else Check.EXTRA
            yield Difference(check, name, *counts, excused=harmless.excuses(check, name))
        elif here != there:
            lost, new = there - here, here - there
            excused = harmless.excuses(Check.SHAPE, name)
            pair = next(iter(lost)), next(iter(new))
            yield Difference(
                Check.SHAPE, name, sum(lost.values()), sum(new.values()), pair, excused
            )


def _launches(audit: CaptureAudit, trace: Trace) -> dict[str, Counter[Shape]]:
    """Launches by kernel and shape. Waits and other nodes that do no work are left out."""
    found: dict[str, Counter[Shape]] = {}
    for node in trace.nodes:
        if node.kernel is not None:
            found.setdefault(kernel_name(audit, node), Counter())[shape_of(node)] += 1
    return found


def shape_of(node: Node) -> Shape:
    """Grid, block and bytes of dynamic shared memory."""
    return node.grid, node.block, node.shared
