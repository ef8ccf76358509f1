"""The verb `drift`: a tree's contract record, and what changed against another's."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fixtures.cells.cell import Source
from fixtures.cells.drift import drift_plan
from fixtures.errors import ConfigError, InfraError
from fixtures.evidence.cellrun import CellRun
from fixtures.run.runner import run_plan
from fixtures.source.environment import child_environment
from fixtures.source.resolve import resolve
from gates.drift import TITLES, ContractRecord, Drift, contract_record, drift_findings
from gates.verdict import Finding
from graphgate.live import Live
from graphgate.options import Vllm
from reports.files import write_whole

Base = Annotated[
    str | None,
    typer.Option(
        "--base",
        help="What to compare with: a record's file, a release, or a checkout's folder.",
    ),
]


def drift(
    vllm: Vllm = None,
    base: Base = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Write the record to this file.")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Record a vLLM's capture contract; say what changed against a base. Drift never fails."""
    live = Live()
    new = record_of(resolve(vllm or None, live.step), live)
    findings = drift_findings(Drift(base=base_record(base, live), new=new)) if base else ()
    if record is not None:
        write_whole(record, new.to_json().encode())
    if as_json:
        changes = [finding.plain() for finding in findings]
        typer.echo(json.dumps({**new.plain(), "changes": changes if base else None}, indent=2))
    else:
        _show(new, findings, compared=base is not None)


def base_record(base: str, live: Live) -> ContractRecord:
    """The record that `--base` names: the file's, or that of a release or checkout.

    Raises:
        ConfigError: the file is no record, or there is no such vLLM.
    """
    path = Path(base)
    if path.is_file():
        return ContractRecord.read_json(path)
    return record_of(resolve(base, live.step), live)


def record_of(source: Source, live: Live) -> ContractRecord:
    """Runs the drift cells of `source` in a folder of their own and reads the record.

    Raises:
        ConfigError: the tree has a shape that no adapter knows; it names the symbol.
        InfraError: a cell died or could not be run.
    """
    plan = drift_plan(source)
    with tempfile.TemporaryDirectory(prefix="graphgate-drift-") as folder:
        environment = child_environment(source, live.step)
        events = run_plan(plan, Path(folder) / "out", environment)
        runs = live.follow(events, len(plan.cells))
    for run in runs:
        _require_answer(run)
    return contract_record(source.version, source.identity, runs)


def _require_answer(run: CellRun) -> None:
    if run.observation is None:
        why = run.crash.title if run.crash else "no completion record"
        raise InfraError(f"{run.cell.key} gave no answer: {why}")
    if run.observation.refusal is not None:
        refusal = run.observation.refusal
        raise ConfigError(
            refusal.why,
            source=run.provenance.source,
            key=refusal.symbol,
            remedy="this vLLM has a shape that GraphGate does not know yet",
        )


def _show(record: ContractRecord, findings: tuple[Finding, ...], *, compared: bool) -> None:
    console = Console(highlight=False)
    table = Table(title=f"Capture contract of vLLM {record.vllm}", show_lines=False)
    table.add_column("row")
    table.add_column("value", overflow="fold")
    for row, title in TITLES.items():
        table.add_row(title, record.rows[row])
    console.print(table)
    for finding in findings:
        console.print(f"drift: {finding.why}", markup=False)
    if compared:
        last = f"{len(findings)} rows changed" if findings else "no row changed"
        console.print(f"{last}; drift alone is no fault, but the hardware tiers should run")
