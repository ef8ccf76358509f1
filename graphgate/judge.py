"""The verb `judge`: verdicts and decision from stored evidence."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from gates.evidence import Evidence, judge_evidence, read_evidence
from gates.known import DEFAULT_KNOWN_ISSUES, read_known_issues
from gates.policy import DEFAULT_POLICY, read_policy
from gates.verdict import Verdicts
from reports.files import write_whole
from reports.history.notes import notes_of_the_past
from reports.history.store import History
from reports.terminal import print_report

VERDICTS_FILE = "verdicts.json"


def judge(
    dirs: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="The OUT folders of all shards of a run.")
    ],
    policy: Annotated[
        Path,
        typer.Option(help="The YAML file that holds the policy.", show_default="the shipped one"),
    ] = DEFAULT_POLICY,
    known_issues: Annotated[
        Path, typer.Option(help="The YAML file of known issues.", show_default="the shipped one")
    ] = DEFAULT_KNOWN_ISSUES,
    out: Annotated[
        Path | None, typer.Option(help="Where verdicts.json goes; by default the first DIR.")
    ] = None,
    history: Annotated[
        Path | None, typer.Option(help="A history file: notes say how blocked cells were before.")
    ] = None,
) -> None:
    """Judge stored evidence; the exit code is the decision's."""
    verdicts = judge_into(
        dirs, out or dirs[0], policy=policy, known_issues=known_issues, history=history
    )
    raise typer.Exit(int(verdicts.decision.exit_code))


def judge_into(
    dirs: list[Path],
    out: Path,
    *,
    policy: Path = DEFAULT_POLICY,
    known_issues: Path = DEFAULT_KNOWN_ISSUES,
    history: Path | None = None,
) -> Verdicts:
    """Judge the evidence in `dirs`, write `out/verdicts.json`, print the report.

    Raises:
        ConfigError: the policy, the known issues or the evidence cannot be read.
    """
    rules = read_policy(policy)
    known = read_known_issues(known_issues)
    evidence = read_evidence(dirs, rules)
    verdicts = judge_evidence(evidence, rules, known, date.today())
    if history is not None:
        remembered = _remembered(history, verdicts, evidence)
        verdicts = verdicts.model_copy(update={"notes": (*verdicts.notes, *remembered)})
    write_whole(out / VERDICTS_FILE, verdicts.to_json().encode())
    print_report(verdicts, evidence.plan)
    return verdicts


def _remembered(history: Path, verdicts: Verdicts, evidence: Evidence) -> tuple[str, ...]:
    """Notes of the past; the first night has none, and judging makes no history."""
    if not history.exists():
        return (f"history: {history} is not there yet",)
    with History(history) as past:
        return notes_of_the_past(past, verdicts, evidence.runs)
