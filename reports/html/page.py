"""The HTML report: overview, matrix and a page per cell in one file without any request.

Owns: the templates' environment and what a browser may do with the file. Must not know:
policy, the clock (it is told the time), or files: equal arguments give equal bytes.

Every text goes through `clean` and is escaped by the templates. The page's own content
security policy forbids every request and every script or style but the two in the file.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fixtures.cells.cell import Plan
from fixtures.evidence.cellrun import CellRun
from gates.verdict import Status, Verdict, Verdicts
from reports.html.cellpage import CellPage, cell_page, total_seconds
from reports.html.figures import CellFigures
from reports.html.matrix import matrices
from reports.reasons import causes_of, headline, parts_of, rule_of
from reports.terminal import NEXT_STEPS
from reports.text import clean, one_line

_NO_FIGURES: Mapping[str, CellFigures] = {}


def render_html(
    verdicts: Verdicts,
    plan: Plan,
    runs: Mapping[str, CellRun],
    timestamp: datetime,
    figures: Mapping[str, CellFigures] = _NO_FIGURES,
) -> bytes:
    """The report, UTF-8. `runs` and `figures` are by cell key; a cell may lack either."""
    counts = Counter(verdict.status for verdict in verdicts.verdicts)
    return render_page(
        "report.html.jinja",
        verdicts=verdicts,
        decision=verdicts.decision,
        plan=plan,
        causes=causes_of(verdicts),
        parts=parts_of(verdicts),
        matrices=matrices(verdicts.verdicts),
        counts=[(status, counts[status]) for status in Status if counts[status]],
        statuses=tuple(Status),
        next_step=NEXT_STEPS[verdicts.decision.exit_code],
        rows=[_row(verdict, runs.get(str(verdict.key))) for verdict in verdicts.verdicts],
        # Ten thousand pages are made one by one, while they are written.
        pages=_pages(verdicts, plan, runs, figures),
        timestamp=timestamp,
    )


class Row(NamedTuple):
    """One line of the list of all cells."""

    key: str
    status: Status
    reason: str
    seconds: float
    attempts: int


def _row(verdict: Verdict, run: CellRun | None) -> Row:
    found = headline(verdict) if verdict.status is not Status.PASS else None
    return Row(
        key=str(verdict.key),
        status=verdict.status,
        reason=one_line(found.why, 160) if found is not None else "",
        seconds=total_seconds(run.attempts if run is not None else ()),
        attempts=verdict.attempts,
    )


def _pages(
    verdicts: Verdicts,
    plan: Plan,
    runs: Mapping[str, CellRun],
    figures: Mapping[str, CellFigures],
) -> Iterator[CellPage]:
    for verdict in verdicts.verdicts:
        key = str(verdict.key)
        yield cell_page(verdict, runs.get(key), plan, figures.get(key))


def render_page(template: str, **facts: object) -> bytes:
    """A page from one of the templates, with the style, the script and the policy it may use."""
    style, script = asset("style.css"), asset("behaviour.js")
    stream = (
        _environment()
        .get_template(template)
        .generate(
            style=Markup(style),  # noqa: S704
            script=Markup(script),  # noqa: S704
            style_hash=_hash(style),
            script_hash=_hash(script),
            **facts,
        )
    )
    return "".join(stream).encode()


@cache
def asset(name: str) -> str:
    """The text of a style sheet or script that ships with the templates."""
    return files("reports.html").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The text's digest as a content security policy writes it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("reports.html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["rule_of"] = rule_of
    environment.filters["seconds"] = _seconds
    environment.filters["minute"] = _minute
    return environment


def _shown(value: object) -> object:
    """What any expression of a template becomes before it is escaped."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _seconds(value: float) -> str:
    return f"{value:,.1f} s"


def _minute(moment: str) -> str:
    """Date and minute of a time in UTC, which is how the history holds it."""
    return moment[:16].replace("T", " ")
