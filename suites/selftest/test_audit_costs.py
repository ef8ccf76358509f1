"""The table of what the audit costs: runs with it beside those without, from several folders."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from fixtures.cells.cell import Cell
from fixtures.evidence.audit import CaptureAudit, write_audit
from fixtures.evidence.cellrun import EvidenceFile, Observation
from suites.bench.audit import cost_table, costs_in, pairs
from suites.selftest.build import a_cell, a_plan, a_run, an_engagement, write_shard

LLAMA, DSV4 = a_cell("llama.FULL_DECODE_ONLY.bk0.canary"), a_cell("dsv4.FULL.bk0.canary")
EAGER = a_cell("llama.NONE.bk0.canary")


def observed(seconds: float, mebibytes: float, graphs: EvidenceFile | None = None) -> Observation:
    return Observation(
        engagement=an_engagement(LLAMA),
        graphs=graphs,
        timings={"engine": 30.0, "workload": seconds},
        worker_mib={"allocated": 512.0, "reserved": mebibytes, "resident": 4096.0},
    )


def shard(folder: Path, *, audited: bool) -> Path:
    """A run with or without the audit, in a folder as a night leaves it."""
    attempt = folder / "cells" / str(LLAMA.key) / "attempt-0"
    attempt.mkdir(parents=True)
    audit = CaptureAudit(parts=("nodes",), seconds={"memory": 0.5, "live": 0.25})
    file = write_audit(audit, attempt) if audited else None
    more = 2.0 if audited else 0.0
    runs = [
        a_run(LLAMA, observation=observed(13.0 + more, 1100.0 + 50 * more, file)),
        a_run(DSV4, observation=None),
        a_run(EAGER, observation=observed(12.0, 1000.0)),
    ]
    return write_shard(folder, a_plan(LLAMA, DSV4, EAGER), runs)


def test_a_cell_with_and_without_the_audit_is_told_with_its_difference(tmp_path: Path) -> None:
    folders = [shard(tmp_path / "off", audited=False), shard(tmp_path / "on", audited=True)]
    costs = costs_in(folders)
    assert [(one.cell, one.audit is None) for one in costs] == [
        (str(LLAMA.key), False),
        (str(LLAMA.key), True),
    ]
    assert [cell for cell, _, _ in pairs(costs)] == [str(LLAMA.key)]
    console = Console(width=250, record=True, file=(tmp_path / "printed").open("w"))
    console.print(cost_table(costs))
    told = console.export_text()
    assert "0.75 s" in told
    assert "memory 0.50, live 0.25" in told
    assert "+2.00 s" in told
    assert "+100" in told


def test_variants_that_set_the_audits_switch_alone_are_the_same_cell(tmp_path: Path) -> None:
    def variant(name: str, switch: str) -> Cell:
        cell = a_cell(f"{LLAMA.key}.{name}")
        return cell.model_copy(update={"environment": {"GRAPHGATE_AUDIT": switch}})

    off, poisoned = variant("audit-off", "off"), variant("poisoned", "all")
    other = a_cell(f"{LLAMA.key}.triton-attn")
    runs = []
    for cell in (LLAMA, off, poisoned, other):
        attempt = tmp_path / "cells" / str(cell.key) / "attempt-0"
        attempt.mkdir(parents=True)
        file = write_audit(CaptureAudit(), attempt) if cell in (LLAMA, poisoned) else None
        runs.append(a_run(cell, observation=observed(13.0, 1100.0, file)))
    plan = a_plan(LLAMA, off, poisoned, other)
    costs = costs_in([write_shard(tmp_path, plan, runs)])
    assert len(costs) == 4
    ((told, plus, minus),) = pairs(costs)
    assert (told, plus.cell, minus.cell) == (str(LLAMA.key), str(LLAMA.key), str(off.key))


def test_older_evidence_has_no_memory_and_a_lone_run_no_difference(tmp_path: Path) -> None:
    folder = shard(tmp_path / "on", audited=True)
    (cost,) = costs_in([folder])
    assert list(pairs([cost])) == []
    older = cost._replace(memory={})
    console = Console(width=250, record=True, file=(tmp_path / "printed").open("w"))
    console.print(cost_table([older]))
    assert " - " in console.export_text()
