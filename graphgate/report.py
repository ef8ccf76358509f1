"""The verb `report`: all reports, drawn from verdicts and evidence."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fixtures.run.outfolder import PLAN_FILE
from gates.evidence import Evidence, read_evidence
from gates.policy import read_policy
from gates.verdict import Verdicts
from graphgate.judge import VERDICTS_FILE
from reports.files import write_whole
from reports.junit import render_junit
from reports.terminal import print_report

JUNIT_FILE = "junit.xml"


def report(
    dirs: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR", help="The folder of verdicts.json, then those of other shards."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where the reports go; by default the first DIR.")
    ] = None,
) -> None:
    """Print the verdicts and write junit.xml; nothing is judged again."""
    verdicts = Verdicts.read_json(dirs[0] / VERDICTS_FILE)
    evidence = report_into(verdicts, dirs, out or dirs[0])
    print_report(verdicts, evidence.plan)


def report_into(verdicts: Verdicts, dirs: list[Path], out: Path) -> Evidence:
    """Write `out/junit.xml` from `verdicts` and the evidence in `dirs`, and hand that back.

    Raises:
        ConfigError: no folder holds a plan, or one cannot be read.
    """
    shards = [folder for folder in dirs if (folder / PLAN_FILE).exists()]
    evidence = read_evidence(shards, read_policy())
    now = datetime.now(UTC)
    write_whole(out / JUNIT_FILE, render_junit(verdicts, evidence.runs, now))
    return evidence
