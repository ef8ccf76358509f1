"""The verbs `history import` and `history show`: the memory of past nights."""

from __future__ import annotations

import json as json_text
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fixtures.cells.cell import CellKey
from fixtures.errors import ConfigError
from gates.evidence import LEDGER_FILE, judge_evidence, read_evidence
from gates.known import read_known_issues
from gates.policy import read_policy
from gates.verdict import Verdicts
from graphgate.judge import VERDICTS_FILE
from reports.files import write_whole
from reports.history.changes import Change
from reports.history.page import Trends, render_history, trends
from reports.history.questions import PastNight, Turn, past
from reports.history.store import History

app = typer.Typer(no_args_is_help=True, help="The memory of past nights.")

Database = Annotated[Path, typer.Option("--db", help="The history file.")]
Json = Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")]


@app.command("import")
def import_night(
    dirs: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="The OUT folders of all shards of a night.")
    ],
    db: Database,
    at: Annotated[
        str | None,
        typer.Option(help="When the night was (ISO 8601); by default when its ledger was written."),
    ] = None,
    json: Json = False,
) -> None:
    """Add a night to the history; one that is there already is left as it is."""
    evidence = read_evidence(dirs, read_policy())
    if (dirs[0] / VERDICTS_FILE).exists():
        verdicts = Verdicts.read_json(dirs[0] / VERDICTS_FILE)
    else:
        verdicts = judge_evidence(evidence, read_policy(), read_known_issues(), date.today())
    moment = _moment(at) if at is not None else _written(dirs)
    with History(db) as history:
        added = history.add_night(verdicts, evidence.plan, evidence.runs, moment)
    facts = {"at": moment.isoformat(), "cells": len(verdicts.verdicts), "added": added}
    if json:
        typer.echo(json_text.dumps({**facts, "notes": list(evidence.notes)}, indent=2))
        return
    for note in evidence.notes:
        typer.echo(f"note: {note}", err=True)
    word = "added" if added else "is there already"
    typer.echo(f"the night of {facts['at']} ({facts['cells']} cells) {word}")


@app.command("show")
def show(
    db: Database,
    cell: Annotated[str | None, typer.Option(help="One cell's past, by its key.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the trend page to this file.")] = None,
    json: Json = False,
) -> None:
    """Show where cells turned, failures by title and flaky nodes; or one cell's past."""
    if not db.exists():
        raise ConfigError("is not there", source=db, remedy="import a night first")
    with History(db) as history:
        if cell is not None:
            _show_cell(past(history, _key(cell)), as_json=json)
            return
        shown = trends(history)
    if html is not None:
        write_whole(html, render_history(shown, datetime.now(UTC)))
    if json:
        typer.echo(json_text.dumps(_plain(shown), indent=2))
    else:
        _show_trends(shown)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is no time", source="--at", remedy="write 2026-11-30T06:00:00+00:00"
        ) from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _written(dirs: list[Path]) -> datetime:
    """When the last of the ledgers was written."""
    ledgers = [path for folder in dirs if (path := folder / LEDGER_FILE).exists()]
    if not ledgers:
        raise ConfigError("no ledger tells when the night was", source="--at", remedy="say so")
    latest = max(path.stat().st_mtime for path in ledgers)
    return datetime.fromtimestamp(int(latest), UTC)


def _key(text: str) -> CellKey:
    try:
        return CellKey.parse(text)
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is no cell key", source="--cell", remedy="one is dsv4.FULL.bk0.contract"
        ) from error


def _plain(shown: Trends) -> dict[str, object]:
    return {
        "nights": [row.plain() for row in shown.nights],
        "turns": [
            {**group.turn.plain(), "key": key, "to_red": group.turn.to_red}
            for group in shown.turns
            for key in group.keys
        ],
        "changes": [change.plain() for change in shown.changes],
        "titles": [row.plain() for row in shown.titles],
        "flakes": [{**row.plain(), "rate": row.rate} for row in shown.flakes],
        "times": [{"phase": one.label, "seconds": one.values} for one in shown.times],
        "scores": [{"cell": one.label, "scores": one.values} for one in shown.scores],
    }


def _show_cell(rows: list[PastNight], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json_text.dumps([row.plain() for row in rows], indent=2))
        return
    table = _table("night", "vLLM", "status", "reason", "seconds")
    for row in rows:
        seconds = f"{sum(row.seconds.values()):.1f}"
        table.add_row(
            *(Text(text) for text in (_day(row.at), row.vllm, row.status, row.rule, seconds))
        )
    Console(highlight=False).print(table)


def _show_trends(shown: Trends) -> None:
    console = Console(highlight=False)
    turned = _table("cells", "first night", "became", "was", "vLLM from", "to")
    for turn, keys in shown.turns:
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        became = (_day(turn.at), turn.status, turn.previous_status)
        row = (f"{keys[0]}{more}", *became, *_range(turn))
        turned.add_row(*(Text(word) for word in row))
    changed = _table("what", "first night", "before", "after", "vLLM from", "to")
    for change in shown.changes:
        medians = (f"{change.median_before:.3g}", f"{change.median_after:.3g}")
        row = (change.what, _day(change.at), *medians, *_range(change))
        changed.add_row(*(Text(word) for word in row))
    seen = _table("title", "kind", "first seen", "last seen", "nights")
    for title in shown.titles:
        when = (_day(title.first), _day(title.last), str(title.nights))
        seen.add_row(*(Text(fact) for fact in (title.title, title.kind, *when)))
    for heading, table in (
        ("Where cells turned", turned),
        ("Where times and scores changed", changed),
        ("Failures by title", seen),
    ):
        console.print(Text(heading, style="bold"))
        console.print(table if table.row_count else Text("  none"))
    for flake in shown.flakes:
        share = f"{flake.infra_attempts} of {flake.attempts} attempts"
        console.print(Text(f"{flake.month}: the node failed {share} ({flake.rate:.2%})"))


def _range(found: Turn | Change) -> tuple[str, str]:
    """Between which versions it happened; commits where both have the same version."""
    if found.before == found.after:
        return found.source_before, found.source_after
    return found.before, found.after


def _day(moment: str) -> str:
    """Date and minute of a time in UTC, which is how the history holds it."""
    return moment[:16].replace("T", " ")


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
