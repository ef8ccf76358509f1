"""The report of a capture audit: the node diff, frozen arguments, costs; nothing unescaped."""

from __future__ import annotations

from typing import Any

from fixtures.evidence.audit import CaptureAudit, Kernel
from reports.html.figures import CellFigures
from reports.html.graphs import SHOWN, graph_facts
from suites.selftest.audits import attend, audit, copy, plan, reset, state, trace
from suites.selftest.test_html import KEY, drawn


def faulty(**changes: Any) -> CaptureAudit:
    """A graph without its planning kernel, replayed for a longer query."""
    nodes = (reset(), attend(), copy())
    step = trace("live", (reset(), attend(16), copy()), scalars={"max_query_len": 16})
    return audit(trace("graph", nodes), trace("fresh"), step, states=(state(),), **changes)


def test_the_tables_say_what_is_missing_and_what_is_frozen() -> None:
    facts = graph_facts(faulty(seconds={"fresh": 1.25, "nodes": 0.5}))
    (row,) = facts.diffs
    assert (row.kernel, row.eager, row.captured) == (
        "get_mla_metadata_kernel",
        "1 launches",
        "0 launches",
    )
    assert "max_query_len" in facts.frozen[0][2]
    assert dict(facts.facts)["cost"] == "1.75 s (fresh 1.25 s, nodes 0.50 s)"
    assert facts.graphs[0].different == 1


def test_long_tables_are_cut_and_say_so() -> None:
    many = [trace("graph", (plan(),), segment=i) for i in range(SHOWN + 7)]
    facts = graph_facts(audit(*many))
    assert (len(facts.graphs), facts.graphs_left) == (SHOWN, 7)


def test_the_page_shows_the_diff_and_escapes_names() -> None:
    record = faulty(notes=("<script>alert(1)</script>",))
    kernels = list(record.kernels)
    kernels[0] = Kernel(name="<b>plan</b>", parameters=kernels[0].parameters)
    text = drawn(figures={KEY: CellFigures(graphs=record.model_copy(update={"kernels": kernels}))})
    assert "Launches of a pass with fresh attention state" in text
    assert "&lt;b&gt;plan&lt;/b&gt;" in text
    assert "<b>plan</b>" not in text
    assert "<script>alert" not in text
