"""The verb `affected`: which models and cells the changes of a checkout can affect, and why."""

from __future__ import annotations

import json as json_text
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from buildkite.affected.changes import Changes, changes_since, fetched_branch, listed_changes
from buildkite.affected.record import Affected
from buildkite.affected.select import select
from buildkite.affected.table import read_table
from buildkite.planning import plan_for_fleet
from buildkite.settings import DEFAULT_SETTINGS, read_settings
from fixtures.cells.cell import Plan, Source
from fixtures.cells.sweeps import load_catalog
from fixtures.errors import ConfigError, InfraError
from fixtures.source.git import GitError, worktree
from fixtures.source.resolve import resolve
from gates.drift import ContractRecord, Drift, drift_findings
from graphgate.drift import record_of
from graphgate.live import Live
from reports.files import write_whole
from reports.text import clean

SWEEP = PIPELINE = "pr"
_STDIN = "-"
_SHOWN = 40

Checkout = Annotated[
    str | None,
    typer.Option("--vllm", "--checkout", help="The checkout with the changes, by its folder."),
]
BaseRevision = Annotated[
    str | None,
    typer.Option("--base", help="The branch or commit that the changes are to be merged into."),
]
BaseVariable = Annotated[
    str | None,
    typer.Option(
        "--base-variable",
        help="The environment variable that names that branch; it is fetched from --remote.",
    ),
]
Remote = Annotated[str, typer.Option("--remote", help="The remote that has the branch.")]
Changed = Annotated[
    str | None,
    typer.Option("--changed", help="A file that lists the changed paths instead, or - for stdin."),
]
BaseRecord = Annotated[
    Path | None,
    typer.Option("--base-record", help="The merge base's contract (`drift --record`), if known."),
]


def affected(
    *,
    vllm: Checkout = None,
    base: BaseRevision = None,
    base_variable: BaseVariable = None,
    remote: Remote = "origin",
    changed: Changed = None,
    drift: Annotated[
        Path | None,
        typer.Option(
            "--drift",
            help="Compare the capture contract with the merge base's too, and write drift.json "
            "here: a change of it asks for every model.",
        ),
    ] = None,
    base_record: BaseRecord = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="Choose from this plan's cells (plan.json).")
    ] = None,
    settings: Annotated[
        Path,
        typer.Option("--settings", help="Whose pr pipeline is planned, where no --plan is."),
    ] = DEFAULT_SETTINGS,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the cells for `pipeline pr --selection`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every file's effect.")] = False,
) -> None:
    """Tell which models a change can affect, and why. Nothing of the tree is run, but for --drift.

    Exit code 0, whatever is affected.
    """
    live = Live()
    source = resolve(vllm or None, live.step)
    if base_variable is not None:
        base = _target(source, base_variable, remote, base)
    changes = changes_of(source, base, changed, (out, drift))
    found, compared = affected_by(changes, source), None
    if drift is not None:
        drift.unlink(missing_ok=True)
        found, compared = with_contracts(found, source, changes, base_record, live)
    if drift is not None and compared is not None:
        write_whole(drift, compared.to_json().encode())
    if out is not None:
        made = Plan.read_json(plan_file) if plan_file else _pipeline_plan(settings, source)
        write_whole(out, found.selection(made, compared).to_json().encode())
    if as_json:
        told = {name: found.reason(name) for name in found.models}
        typer.echo(json_text.dumps({**found.plain(), "why": found.why, "models": told}, indent=2))
    else:
        show_affected(found, Console(highlight=False))


def _target(source: Source, variable: str, remote: str, base: str | None) -> str:
    """The commit that a build's variable names the branch of."""
    branch = os.environ.get(variable)
    if base is not None or not branch:
        raise ConfigError(
            "--base names another" if base else f"this build has no {variable}",
            source="--base-variable",
            remedy="let the build set it to the target branch, or use --base alone",
        )
    return fetched_branch(Path(source.python_path), remote, branch)


def changes_of(
    source: Source, base: str | None, changed: str | None, ours: Iterable[Path | None] = ()
) -> Changes:
    """What changed in `source`: since the merge base with `base`, or as `changed` lists it.

    What lies at or in the paths `ours` is our own output, and no change.

    Raises:
        ConfigError: neither or both were given, or they name nothing that can be compared.
    """
    if (base is None) == (changed is None):
        raise ConfigError(
            "exactly one of them says what changed",
            source="--base, --changed",
            remedy="--base main, or `git diff --name-only main... |` with --changed -",
        )
    if changed is not None:
        return listed_changes(_read(changed))
    return changes_since(Path(source.python_path), base or "", [path for path in ours if path])


def _read(changed: str) -> str:
    try:
        data = sys.stdin.buffer.read() if changed == _STDIN else Path(changed).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=changed) from error
    return data.decode("utf-8", errors="backslashreplace")


def affected_by(changes: Changes, source: Source) -> Affected:
    """What these changes can affect among the models of the sweep for pull requests."""
    catalog = load_catalog()
    names = catalog.sweep(SWEEP).models
    table = read_table(tuple(catalog.models))
    return select(changes, source, table, {name: catalog.model(name) for name in names})


def with_contracts(
    found: Affected, source: Source, changes: Changes, record: Path | None, live: Live
) -> tuple[Affected, Drift | None]:
    """What is affected once the contracts are known, and both of them.

    Where nothing is affected, or no merge base is known, none is recorded. Where one can't be
    recorded, whatever the tree does to its capture may be the reason: every model is due, and
    the cells' own verdicts tell.
    """
    if not found.models or (changes.base is None and record is None):
        return found, None
    try:
        drift = compare_contracts(source, changes, record, live)
    except (ConfigError, InfraError) as error:
        return found.with_drift([f"it could not be recorded: {error}"]), None
    return found.with_drift(finding.why for finding in drift_findings(drift)), drift


def compare_contracts(source: Source, changes: Changes, record: Path | None, live: Live) -> Drift:
    """The capture contracts of the merge base and of the tree with the changes.

    Raises:
        ConfigError: there is no merge base and no record, or a tree has an unknown shape.
        InfraError: a cell of a record died.
    """
    known = ContractRecord.read_json(record) if record else None
    return Drift(base=known or _base_record(source, changes, live), new=record_of(source, live))


def _base_record(source: Source, changes: Changes, live: Live) -> ContractRecord:
    if changes.base is None:
        raise ConfigError(
            "a list of files names no commit to compare the contract with",
            source="--changed",
            remedy="use --base, or give the contract with --base-record",
        )
    try:
        with worktree(Path(source.python_path), changes.base) as tree:
            return record_of(resolve(str(tree), live.step), live)
    except GitError as error:
        raise InfraError(f"the merge base can't be checked out: {error}") from error


def _pipeline_plan(settings: Path, source: Source) -> Plan:
    """The plan that `graphgate pipeline pr` makes with the same settings."""
    return plan_for_fleet(read_settings(settings), PIPELINE, source, load_catalog())


def show_affected(found: Affected, console: Console) -> None:
    """The models with their reasons, then the files."""
    console.print(f"{clean(found.why)}\n", markup=False)
    for name in found.models:
        console.print(f"  {name}: {clean(found.reason(name))}", markup=False, soft_wrap=True)
    for row in found.drift:
        console.print(f"  drift: {clean(row)}", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for column in ("changed file", "affects", "why"):
        table.add_column(column, overflow="fold")
    told = [file for file in found.files if file.models] + list(found.harmless)
    for file in told[:_SHOWN]:
        table.add_row(*(_cell(text) for text in (file.path, _hit(file.models, found), file.told)))
    if told:
        console.print()
        console.print(table)
    if len(told) > _SHOWN:
        console.print(f"and {len(told) - _SHOWN} more files (--json lists them all)")


def _hit(models: tuple[str, ...], found: Affected) -> str:
    if models == found.every_model:
        return "everything"
    return ", ".join(models) or "-"


def _cell(text: str) -> str:
    return clean(text).replace("[", "\\[")
