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
from reports.annotation import render_annotation, render_comment
from reports.files import write_whole
from reports.html import render_html
from reports.html.parity import figures_of
from reports.junit import render_junit
from reports.terminal import print_report

JUNIT_FILE = "junit.xml"
HTML_FILE = Path("report", "index.html")
ANNOTATION_FILE = "annotation.md"


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
    comment: Annotated[
        Path | None,
        typer.Option(
            help="Write the annotation also as a comment on a pull request, to this file."
        ),
    ] = None,
) -> None:
    """Print the verdicts and write all reports; nothing is judged again."""
    verdicts = Verdicts.read_json(dirs[0] / VERDICTS_FILE)
    evidence = report_into(verdicts, dirs, out or dirs[0])
    if comment is not None:
        text = render_comment(verdicts, evidence.plan, evidence.runs)
        write_whole(comment, text.encode())
    print_report(verdicts, evidence.plan)


def report_into(verdicts: Verdicts, dirs: list[Path], out: Path) -> Evidence:
    """Write junit.xml, report/index.html and annotation.md into `out`.

    They are drawn from `verdicts` and the evidence in `dirs`, which is handed back.

    Raises:
        ConfigError: no folder holds a plan, or one cannot be read.
    """
    shards = [folder for folder in dirs if (folder / PLAN_FILE).exists()]
    evidence = read_evidence(shards, read_policy())
    plan, runs = evidence.plan, evidence.runs
    now = datetime.now(UTC)
    write_whole(out / JUNIT_FILE, render_junit(verdicts, runs, now))
    figures = figures_of(runs, evidence.files)
    write_whole(out / HTML_FILE, render_html(verdicts, plan, runs, now, figures))
    write_whole(out / ANNOTATION_FILE, render_annotation(verdicts, plan, runs).encode())
    return evidence
