"""The final report on a terminal: what was judged, what blocks, what to do next.

Owns: the table of cells and the words below it, within 80 columns. Must not know: policy,
processes, or whether it prints to a terminal (rich drops colours elsewhere).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import Omission, Plan
from gates.verdict import ExitCode, Finding, Status, Verdict, Verdicts
from reports.reasons import Cause, causes_of, parts_of, rule_of
from reports.text import one_line

WIDTH = 80
_SHOWN = 20
"""Reasons of one kind that are spelled out; verdicts.json holds them all."""

STYLES = {
    Status.PASS: "green",
    Status.UNSUPPORTED: "dim",
    Status.XFAIL: "yellow",
    Status.XPASS: "bold yellow",
    Status.INFRA: "bold magenta",
    Status.CONFIG: "bold magenta",
    Status.MISSING: "bold magenta",
}
"""Colours of statuses; the others are red."""

_HEADINGS = {
    GraphMode.FULL_DECODE_ONLY: "FULL_\nDECODE_ONLY",
    GraphMode.FULL_AND_PIECEWISE: "FULL_AND_\nPIECEWISE",
}

NEXT_STEPS = {
    ExitCode.ALLOW: "nothing to do: no cell blocks the merge",
    ExitCode.FAIL: "repair what the first FAIL above names, then run the gate again",
    ExitCode.CRASH: "open the first CRASH's folder under cells/; its log names the fault",
    ExitCode.HANG: "open the first HANG's folder under cells/; it holds the host stacks",
    ExitCode.VACUOUS: "find out why the graphs above did not run; nothing was proven",
    ExitCode.INVALID: "make the scores above readable; they are no scores yet",
    ExitCode.INFRA: "run the cells above again on another node; this one failed",
    ExitCode.CONFIG: "correct the request or engine argument that is named above",
    ExitCode.MISSING: "run what is listed above as missing, then judge again",
}
"""One line for each exit code: what the reader does next."""


def print_report(verdicts: Verdicts, plan: Plan, console: Console | None = None) -> None:
    """Print the report; its last line says what to do next."""
    target = console or Console()
    target.print(render_report(verdicts, plan), width=min(target.width, WIDTH))


def render_report(verdicts: Verdicts, plan: Plan) -> RenderableType:
    """Title, one table per tier, reasons, omissions, decision, next step."""
    title = Text(f"vLLM {one_line(plan.source.version)}, sweep {verdicts.sweep}", style="bold")
    tiers = [tier for tier in Tier if any(v.key.tier is tier for v in verdicts.verdicts)]
    return Group(
        title,
        *(part for tier in tiers for part in _table(tier, verdicts.verdicts)),
        *_sections(verdicts),
        *_omissions(plan.omissions),
        *_notes(verdicts.notes),
        *_decision(verdicts),
    )


def _table(tier: Tier, verdicts: Iterable[Verdict]) -> tuple[Text, Table]:
    """Models and breakable flags down, modes across; several variants share a place."""
    places: dict[tuple[str, Breakable, GraphMode], list[Status]] = {}
    for verdict in verdicts:
        key = verdict.key
        if key.tier is tier:
            places.setdefault((key.model, key.breakable, key.mode), []).append(verdict.status)
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("model", overflow="fold", max_width=11)
    table.add_column("break-\nable")
    for mode in GraphMode:
        table.add_column(_HEADINGS.get(mode, str(mode)), min_width=11)
    previous = None
    for model, breakable in dict.fromkeys((model, flag) for model, flag, _ in places):
        row = [_place(places.get((model, breakable, mode), [])) for mode in GraphMode]
        table.add_row("" if model == previous else model, str(breakable), *row)
        previous = model
    return Text(f"\n{tier} tier", style="bold"), table


def _place(statuses: list[Status]) -> Text:
    """The worst status; below it, where a place holds several cells, how many of them have it."""
    if not statuses:
        return Text("-", style="dim")
    status = min(statuses, key=lambda one: one.rank)
    text = styled(status)
    if len(set(statuses)) > 1:
        text.append(f"\n{statuses.count(status)} of {len(statuses)}", style="dim")
    return text


def styled(status: Status) -> Text:
    """A status in its colour."""
    return Text(str(status), style=STYLES.get(status, "bold red"))


def _sections(verdicts: Verdicts) -> Iterator[RenderableType]:
    """Reasons in words, worst first, each under what it means for the merge."""
    for part in parts_of(verdicts):
        failed = part.reasons[0].finding.status.blocks
        causes = causes_of(verdicts) if failed else [Cause(*one, []) for one in part.reasons]
        yield Text(f"\n{part.heading}", style="bold")
        for cause in causes[:_SHOWN]:
            yield _cause(*cause)
        if len(causes) > _SHOWN:
            yield Text(f"  and {len(causes) - _SHOWN} more in verdicts.json")


def _cause(finding: Finding, keys: list[str], also: list[str]) -> RenderableType:
    """A finding that many cells share is told once, in the words of the first."""
    head = Text.assemble("  ", styled(finding.status), f" {_cells(keys)}  [{rule_of(finding)}]")
    body = Text(one_line(finding.why, 600))
    places = "; ".join(one_line(place) for place in finding.evidence[:3])
    if places:
        body.append(f" [{places}]", style="dim")
    if also:
        body.append(f"\nfound there too: {', '.join(also)}", style="dim")
    return Group(head, Padding(body, (0, 0, 0, 4), expand=False))


def _cells(keys: list[str]) -> str:
    if not keys:
        return "the tree as a whole"
    return keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more"


def _omissions(omissions: Iterable[Omission]) -> Iterator[RenderableType]:
    """What was not planned, and why; equal reasons are told once."""
    grouped: dict[tuple[Tier, str], list[str]] = {}
    for omission in omissions:
        models = grouped.setdefault((omission.tier, one_line(omission.reason)), [])
        models.append(omission.model or "all models")
    if grouped:
        yield Text("\nNot run, and why", style="bold")
    for (tier, reason), models in grouped.items():
        yield Padding(
            Text(f"{tier} tier ({', '.join(models)}): {reason}"), (0, 0, 0, 2), expand=False
        )


def _notes(notes: tuple[str, ...]) -> Iterator[RenderableType]:
    if notes:
        yield Text("\nNotes on the evidence", style="bold")
    for note in notes[:_SHOWN]:
        yield Padding(Text(one_line(note, 600)), (0, 0, 0, 2), expand=False)
    if len(notes) > _SHOWN:
        yield Text(f"  and {len(notes) - _SHOWN} more in verdicts.json")


def _decision(verdicts: Verdicts) -> Iterator[RenderableType]:
    decision = verdicts.decision
    if decision.incomplete:
        yield Text("\nIncomplete", style="bold")
    for text in decision.incomplete:
        yield Padding(Text(one_line(text)), (0, 0, 0, 2), expand=False)
    counts = Counter(verdict.status for verdict in verdicts.verdicts)
    total = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    word, style = ("ALLOWED", "bold green") if decision.allow else ("BLOCKED", "bold red")
    yield Text.assemble(
        "\nMerge ", (word, style), f" (exit code {int(decision.exit_code)}): {total or 'no cells'}"
    )
    yield Text(f"Next: {NEXT_STEPS[decision.exit_code]}", style="bold")
