"""The verb `reference add`: a recorded score that later runs are held to."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

import typer
import yaml

from fixtures.errors import ConfigError
from gates.evidence import LEDGER_FILE, read_evidence
from gates.policy import DEFAULT_POLICY, REFERENCES, Policy, read_policy
from gates.scores.recording import Source, record, sources
from gates.scores.references import Reference, References
from reports.files import write_whole

FOLDER = DEFAULT_POLICY.with_name(REFERENCES)
DEFAULT_MARGIN = 0.01
DEFAULT_WHY = "taken where nobody names one; state your own from the spread of healthy nights"
_HEAD = "# Reference scores. `graphgate reference add` writes entries under `references`.\n"

app = typer.Typer(no_args_is_help=True, help="Recorded scores that runs are held to.")


@app.callback()
def _group() -> None:
    """Recorded scores that runs are held to."""


@app.command("add")
def add(
    dirs: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="OUT folders; each may be a night's own.")
    ],
    model: Annotated[str, typer.Option(help="The model, by its name in cell keys.")],
    task: Annotated[str, typer.Option(help="The task, by lm-eval's name.")],
    on: Annotated[
        str | None,
        typer.Option("--date", help="Day of the runs (ISO 8601); by default the last ledger's."),
    ] = None,
    margin: Annotated[
        float, typer.Option(help="Fraction of 1 by which a score may truly lie lower.")
    ] = DEFAULT_MARGIN,
    why: Annotated[str, typer.Option(help="Where the margin comes from.")] = DEFAULT_WHY,
    out: Annotated[
        Path | None, typer.Option(help="The YAML file; by default the shipped one of the model.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a reference of the same protocol.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the reference as JSON.")] = False,
) -> None:
    """Make a reference from the NONE cells of runs; one without provenance is refused."""
    policy = read_policy()
    if not 0 < margin < 1:
        raise ConfigError(f"{margin} is no margin", source="--margin", remedy="write 0.01 for 1%")
    if not why.strip():
        raise ConfigError("says nothing", source="--why", remedy="say where the margin comes from")
    recorded = _day(on) if on is not None else _written(dirs)
    found = [source for folder in dirs for source in _sources(folder, model, task, policy)]
    made = record(found, policy, recorded=recorded, margin=margin, margin_why=why)
    path = out or FOLDER / f"{model}.yaml"
    _keep(made, model, path, replace=replace)
    if as_json:
        typer.echo(made.to_json())
        return
    typer.echo(
        f"{model}, {task}: {made.score:.4f} ({made.right} of {made.n} answers, {len(found)} runs), "
        f"blocks what is surely below {made.floor:.4f}\nwritten to {path}"
    )


def _sources(folder: Path, model: str, task: str, policy: Policy) -> list[Source]:
    evidence = read_evidence([folder], policy)
    return sources(evidence.runs.values(), model, task, evidence.files.samples)


def _keep(made: Reference, model: str, path: Path, *, replace: bool) -> None:
    """Add `made` to the file at `path`.

    Raises:
        ConfigError: the file is not readable, is another model's, or holds such a reference.
    """
    old = References.read_yaml(path) if path.exists() else References(schema_version=1, model=model)
    if old.model != model:
        raise ConfigError(f"holds references of {old.model!r}", source=path, key="model")
    others = tuple(one for one in old.references if _key(one) != _key(made))
    if len(others) < len(old.references) and not replace:
        raise ConfigError(
            f"holds a reference of {made.task} with this protocol and these documents",
            source=path,
            key="references",
            remedy="add --replace if the new one should count",
        )
    new = References(
        schema_version=1, model=model, references=(*others, made), published=old.published
    )
    text = yaml.safe_dump(new.plain(), sort_keys=False, allow_unicode=True, width=100)
    write_whole(path, (_HEAD + text).encode())


def _key(reference: Reference) -> tuple[str, str, str]:
    return reference.task, reference.protocol, reference.documents


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is no day", source="--date", remedy="write it like 2026-11-30"
        ) from None


def _written(dirs: list[Path]) -> date:
    """The day on which the last of the ledgers was written."""
    times = [(one / LEDGER_FILE).stat().st_mtime for one in dirs if (one / LEDGER_FILE).exists()]
    if not times:
        raise ConfigError(f"no folder holds a {LEDGER_FILE}", source="DIR", remedy="name a run's")
    return datetime.fromtimestamp(max(times), UTC).date()
