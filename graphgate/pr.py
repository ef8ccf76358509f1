"""The verb `pr`: the check of a pull request on one machine, from its changes to the decision."""

from __future__ import annotations

import json as json_text
from pathlib import Path

import typer
from rich.console import Console

from buildkite.affected.record import Affected
from buildkite.affected.words import affected_markdown, nothing_markdown, status_description
from fixtures.cells.cell import Plan, Source
from fixtures.errors import ConfigError
from fixtures.run.interrupt import terminate_as_interrupt
from fixtures.run.outfolder import OutFolder
from fixtures.run.runner import run_plan
from fixtures.source.environment import plan_environment
from fixtures.source.resolve import resolve
from gates.drift import Drift
from gates.evidence import DRIFT_FILE
from gates.verdict import Decision, Verdicts
from graphgate.affected import (
    SWEEP,
    BaseRecord,
    BaseRevision,
    Changed,
    Checkout,
    affected_by,
    changes_of,
    show_affected,
    with_contracts,
)
from graphgate.judge import judge_into
from graphgate.live import Live
from graphgate.options import BreakableOption, Jobs, Model, Modes, Out, TierOption, planned
from graphgate.report import ANNOTATION_FILE, report_into
from reports.annotation import (
    ANNOTATION_BYTES,
    COMMENT_BYTES,
    COMMENT_MARK,
    render_annotation,
)
from reports.files import write_whole

AFFECTED_FILE = "affected.json"
COMMENT_FILE = "comment.md"
STATUS_FILE = "status.json"
_INTERRUPTED = 130
_OUT = Path("out")


def pr(
    *,
    vllm: Checkout = None,
    base: BaseRevision = None,
    changed: Changed = None,
    base_record: BaseRecord = None,
    model: Model = "all",
    tier: TierOption = "auto",
    modes: Modes = None,
    breakable: BreakableOption = None,
    out: Out = _OUT,
    jobs: Jobs = None,
) -> None:
    """Check a pull request's tree: what it can affect, its contract's drift, then those cells.

    Exit code 0 where nothing is affected; else it is the decision's.
    """
    live = Live()
    source = resolve(vllm or None, live.step)
    changes = changes_of(source, base, changed, [out])
    found = affected_by(changes, source)
    if not found.models:
        _nothing(found, source, out)
        return
    whole = planned(
        live.step,
        vllm=vllm,
        model=model,
        tier=tier,
        modes=modes,
        breakable=breakable,
        sweep=SWEEP,
        shard=None,
    )
    try:
        with terminate_as_interrupt():
            found, drift = with_contracts(found, source, changes, base_record, live)
            show_affected(found, live.console)
            verdicts = _gate(found, drift, _narrowed(found, whole), out, jobs, live)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; the finished cells are in {out}", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    raise typer.Exit(int(verdicts.decision.exit_code))


def _nothing(found: Affected, source: Source, out: Path) -> None:
    """The result where nothing is to be run; it replaces what an earlier run left."""
    folder = OutFolder(out)
    with folder.held():
        folder.begin(Plan(source=source, sweep=SWEEP, cells=()))
    text = nothing_markdown(found)
    write_whole(out / ANNOTATION_FILE, text.encode())
    write_whole(out / COMMENT_FILE, f"{COMMENT_MARK}\n{text}".encode())
    _write_facts(found, None, out)
    show_affected(found, Console(highlight=False))
    typer.echo("\nMerge allowed: there is nothing to check")


def _narrowed(found: Affected, whole: Plan) -> Plan:
    """The cells of the affected models, of those that were asked for, that can run here."""
    made = found.narrowed(whole)
    if not made.cells:
        raise ConfigError(
            "no cell of an affected model is asked for, or can run here",
            source="--model, --tier",
            remedy=f"affected: {', '.join(found.models)}",
        )
    return made


def _gate(
    found: Affected,
    drift: Drift | None,
    made: Plan,
    out: Path,
    jobs: int | None,
    live: Live,
) -> Verdicts:
    environment = plan_environment(made, live.step)
    live.follow(run_plan(made, out, environment, jobs=jobs), len(made.cells))
    if drift is not None:
        write_whole(out / DRIFT_FILE, drift.to_json().encode())
    verdicts = judge_into([out], out)
    evidence = report_into(verdicts, [out], out)
    extra = affected_markdown(found)
    for name, mark, most in (
        (ANNOTATION_FILE, "", ANNOTATION_BYTES),
        (COMMENT_FILE, f"{COMMENT_MARK}\n", COMMENT_BYTES),
    ):
        room = most - len(mark) - len(extra.encode()) - 1
        text = render_annotation(verdicts, evidence.plan, evidence.runs, limit=room)
        write_whole(out / name, f"{mark}{text}\n{extra}".encode())
    _write_facts(found, verdicts.decision, out)
    return verdicts


def _write_facts(found: Affected, decision: Decision | None, out: Path) -> None:
    """affected.json, and status.json as GitHub's API takes a commit status."""
    write_whole(out / AFFECTED_FILE, found.to_json().encode())
    allowed = decision is None or decision.allow
    status = {
        "state": "success" if allowed else "failure",
        "context": "graphgate",
        "description": status_description(found, decision),
    }
    write_whole(out / STATUS_FILE, json_text.dumps(status, indent=2).encode())
