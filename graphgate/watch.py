"""The verb `watch`: any command under the supervisor, for a reproducer that one has at hand."""

from __future__ import annotations

import json as json_text
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from fixtures.cells.spec import STDERR_FILE, STDOUT_FILE
from fixtures.evidence.cellrun import CellRun
from fixtures.run.activity import CommandActivity
from fixtures.run.attempt import Surroundings
from fixtures.run.blame import SeenTitles
from fixtures.run.command import KEY, CommandRequest, run_command
from fixtures.run.interrupt import terminate_as_interrupt
from gates.hygiene import judge_hygiene
from gates.judge import OWN_STATUSES, worst
from gates.liveness import judge_liveness
from gates.policy import read_policy
from gates.verdict import Blocker, Decision, Finding, Status, Verdict, Verdicts
from graphgate.judge import VERDICTS_FILE
from graphgate.triage import as_text, facts_of
from reports.files import write_whole

_INTERRUPTED = 130


def watch(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="What to run.")],
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0.1,
            help="Seconds without new output, a new process, or data read or written.",
        ),
    ] = 300.0,
    gpu: Annotated[
        int, typer.Option("--gpu", min=0, help="GPUs to lease; 0 leases none and watches all.")
    ] = 0,
    out: Annotated[Path, typer.Option("--out", help="The folder for evidence.")] = Path("out"),
    seen: Annotated[
        Path | None,
        typer.Option(help="JSON of failure titles that other GPUs have shown (SeenTitles)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
) -> None:
    """Run a command under the supervisor; the exit code is its status's (0 where it is well).

    Its output passes through, with --json all of it to stderr. Its input is empty.
    """
    request = CommandRequest(command=tuple(command), timeout=timeout, gpus=gpu)
    titles = SeenTitles.read_json(seen) if seen else None
    streams = {
        STDOUT_FILE: sys.stderr.buffer if json else sys.stdout.buffer,
        STDERR_FILE: sys.stderr.buffer,
    }
    try:
        with terminate_as_interrupt():
            run = run_command(
                request, out, CommandActivity(streams), os.environ, Surroundings(seen=titles)
            )
    except KeyboardInterrupt:
        typer.echo(f"interrupted; what was seen is in {out}", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    verdicts = _verdicts(request, run)
    write_whole(out / VERDICTS_FILE, verdicts.to_json().encode())
    _tell(run, verdicts.verdicts[0], out, as_json=json)
    raise typer.Exit(int(verdicts.decision.exit_code))


def _verdicts(request: CommandRequest, run: CellRun) -> Verdicts:
    """A command has no graphs to look at: whether it lived, and what it left behind."""
    policy = read_policy()
    findings: tuple[Finding, ...] = judge_liveness(run, None, policy)
    if worst(findings) not in OWN_STATUSES:
        findings += judge_hygiene(run, None, policy)
    status = worst(findings)
    reasons = [finding.why for finding in findings if finding.status is status]
    blockers = (Blocker(key=KEY, status=status, reason=reasons[0]),) if status.blocks else ()
    plan = request.plan()
    return Verdicts(
        source=plan.source.identity,
        sweep=plan.sweep,
        verdicts=(Verdict(key=KEY, status=status, findings=findings),),
        decision=Decision(allow=not status.blocks, exit_code=status.exit_code, blockers=blockers),
    )


def _tell(run: CellRun, verdict: Verdict, out: Path, *, as_json: bool) -> None:
    facts = facts_of(run.crash) if run.crash else None
    folder = out / "cells" / str(KEY) / "attempt-0"
    if as_json:
        told = {
            "status": verdict.status.value,
            "evidence": str(folder),
            "failure": facts,
            "findings": [finding.plain() for finding in verdict.findings],
        }
        print(json_text.dumps(told, indent=2))
        return
    typer.echo(f"\n{'status':<10} {verdict.status.value}", err=True)
    if facts:
        typer.echo(as_text(facts), err=True)
    for finding in verdict.findings:
        if finding.status is not Status.PASS:
            figures = f" ({finding.measured}, limit {finding.limit})" if finding.measured else ""
            typer.echo(f"{finding.gate.value:<10} {finding.why}{figures}", err=True)
    typer.echo(f"{'evidence':<10} {folder}", err=True)
