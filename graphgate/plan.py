"""The verb `plan`: which cells would run, and what is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fixtures.cells.cell import Plan
from graphgate.dryrun import DryRun, show_arguments
from graphgate.live import Live
from graphgate.options import (
    BreakableOption,
    Model,
    Modes,
    SettingsOption,
    ShardOption,
    SweepOption,
    TierOption,
    Vllm,
    planned,
)
from reports.files import write_whole

PLAN_FILE = "plan.json"


def plan(
    *,
    model: Model = "all",
    tier: TierOption = "auto",
    vllm: Vllm = None,
    modes: Modes = None,
    breakable: BreakableOption = None,
    sweep: SweepOption = "pr",
    shard: ShardOption = None,
    settings: SettingsOption = None,
    dry_run: DryRun = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write plan.json into.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Print or write the plan; nothing is run."""
    made = planned(
        Live().step,
        vllm=vllm,
        model=model,
        tier=tier,
        modes=modes,
        breakable=breakable,
        sweep=sweep,
        shard=shard,
        settings=settings,
        dry_run=dry_run,
    )
    if dry_run:
        show_arguments(made)
        return
    if out is not None:
        write_whole(out / PLAN_FILE, made.to_json().encode())
    if as_json:
        typer.echo(made.to_json())
    elif out is None:
        _show(made)
    else:
        typer.echo(f"{len(made.cells)} cells written to {out / PLAN_FILE}")


def _show(made: Plan) -> None:
    console = Console(highlight=False)
    table = Table(box=None, title=f"{len(made.cells)} cells on vLLM {made.source.version}")
    table.add_column("cell", no_wrap=True)
    table.add_column("expected to become", no_wrap=True)
    for cell in made.cells:
        table.add_row(str(cell.key), str(cell.expected.mode))
    console.print(table)
    for omission in made.omissions:
        who = f" for {omission.model}" if omission.model else ""
        console.print(f"not planned: {omission.tier}{who}: {omission.reason}", markup=False)
