"""The facts of the capture audit, brought down to tables that a person can read.

Owns: which of an audit's facts are shown, and how many. Must not know: HTML, and which facts are
faults; `audit.json.xz` in the cell's folder holds every node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from fixtures.evidence.audit import CaptureAudit, Node, Trace
from gates.audit.frozen import grown_steps
from gates.audit.harmless import default_harmless
from gates.audit.nodes import diffs
from gates.audit.pointers import coverage
from gates.audit.words import graph_name, kernel_name
from reports.text import one_line

SHOWN = 40
"""Rows of one table that are spelled out."""
_WIDTH = 160


class GraphRow(NamedTuple):
    """One captured graph: its nodes, and how they compare with a pass with fresh state."""

    graph: str
    nodes: int
    kernels: int
    different: int
    compared: str


class DiffRow(NamedTuple):
    """One kernel that an eager pass and these graphs launch differently."""

    graph: str
    kernel: str
    eager: str
    captured: str
    excused: bool


class KernelRow(NamedTuple):
    """A kernel and its launches over all graphs."""

    kernel: str
    launches: int
    graphs: int


class GraphFacts(NamedTuple):
    """What is shown of one audit."""

    facts: tuple[tuple[str, str], ...]
    graphs: tuple[GraphRow, ...]
    graphs_left: int
    diffs: tuple[DiffRow, ...]
    diffs_left: int
    frozen: tuple[tuple[str, str, str], ...]
    kernels: tuple[KernelRow, ...]
    kernels_left: int
    notes: tuple[str, ...]


def graph_facts(audit: CaptureAudit) -> GraphFacts:
    """The tables of one audited cell."""
    captured = [trace for trace in audit.traces if trace.kind == "graph"]
    rows = tuple(_graph_rows(audit, captured))
    differences = tuple(_diff_rows(audit))
    kernels = tuple(_kernel_rows(audit, captured))
    frozen = _frozen_rows(audit)
    return GraphFacts(
        facts=tuple(_facts(audit, captured)),
        graphs=rows[:SHOWN],
        graphs_left=max(0, len(rows) - SHOWN),
        diffs=differences[:SHOWN],
        diffs_left=max(0, len(differences) - SHOWN),
        frozen=frozen[:SHOWN],
        kernels=kernels[:SHOWN],
        kernels_left=max(0, len(kernels) - SHOWN),
        notes=tuple(one_line(note, 400) for note in audit.notes[:SHOWN]),
    )


def _facts(audit: CaptureAudit, captured: list[Trace]) -> Iterator[tuple[str, str]]:
    yield "parts", ", ".join(audit.parts) or "none"
    yield "graphs", str(len(captured))
    yield "nodes", str(sum(len(trace.nodes) for trace in captured))
    yield "replays looked at", str(len(audit.replays))
    backends = dict.fromkeys(name for state in audit.states for name in state.backends)
    if backends:
        names = ", ".join(name.rpartition(".")[2] for name in backends)
        yield "attention metadata", one_line(names, 400)
    seen = coverage(audit)
    yield "addresses followed", f"{seen.direct} arguments, {seen.embedded} words in structs"
    if audit.seconds:
        parts = sorted(audit.seconds.items(), key=lambda pair: -pair[1])
        told = ", ".join(f"{one_line(name, 40)} {seconds:.2f} s" for name, seconds in parts)
        yield "cost", f"{sum(audit.seconds.values()):.2f} s ({told})"
    for name, size in audit.mebibytes.items():
        yield f"memory {one_line(name, 40)} by torch, at most", f"{size:.0f} MiB"


def _graph_rows(audit: CaptureAudit, captured: list[Trace]) -> Iterator[GraphRow]:
    compared = {id(diff.graph): len(diff.differences) for diff in diffs(audit, default_harmless())}
    for trace in captured:
        different = compared.get(id(trace))
        yield GraphRow(
            graph=one_line(graph_name(trace), _WIDTH),
            nodes=len(trace.nodes),
            kernels=sum(node.kernel is not None for node in trace.nodes),
            different=different or 0,
            compared="not compared" if different is None else "compared",
        )


def _diff_rows(audit: CaptureAudit) -> Iterator[DiffRow]:
    """The same difference of several graphs is one row."""
    graphs: dict[tuple[str, str, str, bool], list[str]] = {}
    for diff in diffs(audit, default_harmless()):
        for one in diff.differences:
            eager, captured = f"{one.fresh} launches", f"{one.graph} launches"
            if one.shapes is not None:
                (grid, block, shared), (other, theirs, bytes_) = one.shapes
                eager = f"grid {grid}, block {block}, {shared} bytes"
                captured = f"grid {other}, block {theirs}, {bytes_} bytes"
            row = one_line(one.kernel, _WIDTH), eager, captured, one.excused
            graphs.setdefault(row, []).append(graph_name(diff.graph))
    for row, names in graphs.items():
        yield DiffRow(_several(names), *row)


def _frozen_rows(audit: CaptureAudit) -> tuple[tuple[str, str, str], ...]:
    """Graphs, kernel and difference, each difference once."""
    graphs: dict[tuple[str, str], list[str]] = {}
    for step in grown_steps(audit, default_harmless()):
        for one in step.frozen:
            row = one_line(one.kernel, _WIDTH), one_line(one.why, 400)
            graphs.setdefault(row, []).append(graph_name(step.graph))
    return tuple((_several(names), *row) for row, names in graphs.items())


def _several(graphs: list[str]) -> str:
    first, *others = dict.fromkeys(graphs)
    return one_line(first, _WIDTH) + (f" and {len(others)} more" if others else "")


def _kernel_rows(audit: CaptureAudit, captured: list[Trace]) -> Iterator[KernelRow]:
    launches: Counter[str] = Counter()
    graphs: Counter[str] = Counter()
    for trace in captured:
        names = [_name(audit, node) for node in trace.nodes if node.kernel is not None]
        launches.update(names)
        graphs.update(set(names))
    for name, count in launches.most_common():
        yield KernelRow(name, count, graphs[name])


def _name(audit: CaptureAudit, node: Node) -> str:
    return one_line(kernel_name(audit, node), _WIDTH)
