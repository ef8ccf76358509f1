"""The report as Markdown: for a Buildkite annotation, and as a comment on a pull request.

Owns: order and size: decision and blockers first, the rest folded, whatever does not fit
left out and counted. Must not know: policy, the clock or files; equal verdicts give equal text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from fixtures.cells.axes import GraphMode
from fixtures.cells.cell import Plan
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.crash import CrashReport
from gates.verdict import Status, Verdicts
from reports.html.matrix import Matrix, Place, matrices
from reports.markdown import block, code, plain
from reports.reasons import Cause, Part, Reason, causes_of, parts_of, rule_of
from reports.reproduce import cell_alone
from reports.terminal import NEXT_STEPS

ANNOTATION_BYTES = 1 << 20
"""Buildkite refuses an annotation that is larger."""

COMMENT_BYTES = 65_536
"""GitHub refuses a comment of more characters; bytes are never fewer."""

COMMENT_MARK = "<!-- graphgate -->"
"""First line of a comment, by which the next run finds the one that it replaces."""

_FIRST = 10
"""Groups of blockers that stand open above everything else."""
_KEYS = 6
_EXCERPT = 2_000
_ROOM = 200
"""Bytes kept free for the line that says what was left out."""


def render_annotation(
    verdicts: Verdicts,
    plan: Plan,
    runs: Mapping[str, CellRun],
    *,
    limit: int = ANNOTATION_BYTES,
) -> str:
    """The Markdown, of fewer than `limit` bytes in UTF-8. `runs` by cell key give crashes."""
    pieces = (*_head(verdicts, plan), *_folded(verdicts, plan, runs))
    return "\n\n".join(_fitting(pieces, limit)) + "\n"


def render_comment(verdicts: Verdicts, plan: Plan, runs: Mapping[str, CellRun]) -> str:
    """The same as a comment on a pull request, its mark first."""
    room = COMMENT_BYTES - len(COMMENT_MARK) - 1
    return f"{COMMENT_MARK}\n{render_annotation(verdicts, plan, runs, limit=room)}"


def _fitting(pieces: Iterable[str], limit: int) -> Iterator[str]:
    """The pieces that fit; a later small one may still fit where a large one did not."""
    used, left_out = 0, 0
    for piece in pieces:
        size = len(piece.encode()) + 2
        if used + size > limit - _ROOM:
            left_out += 1
            continue
        used += size
        yield piece
    if left_out:
        yield f"{left_out} more parts don't fit here; they are in report/index.html."


def _head(verdicts: Verdicts, plan: Plan) -> Iterator[str]:
    decision = verdicts.decision
    word = "allowed" if decision.allow else "BLOCKED"
    yield f"### GraphGate: merge {word} (vLLM {plain(plan.source.version, 80)})"
    counts = Counter(verdict.status for verdict in verdicts.verdicts)
    told = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    sweep = plain(verdicts.sweep, 80)
    yield f"{told or 'no cells'}; sweep {sweep}; exit code {int(decision.exit_code)}"
    for text in decision.incomplete:
        yield f"**Incomplete:** {plain(text, 600)}"
    causes = causes_of(verdicts)
    yield from (_blocker(cause) for cause in causes[:_FIRST])
    if len(causes) > _FIRST:
        yield f"and {len(causes) - _FIRST} more causes, below"
    yield f"**Next:** {NEXT_STEPS[decision.exit_code]}"


def _blocks(part: Part) -> bool:
    return part.reasons[0].finding.status.blocks


def _blocker(cause: Cause) -> str:
    """What blocks some cells, told once, with the rules that failed beside it."""
    finding = cause.finding
    also = f"; found there too: {', '.join(map(code, cause.also[:_KEYS]))}" if cause.also else ""
    return (
        f"- **{finding.status}** {code(rule_of(finding))}: {plain(finding.why, 600)}\n"
        f"  {_cells(cause.keys)}{also}"
    )


def _cells(keys: list[str]) -> str:
    if not keys:
        return "the tree as a whole"
    more = f" and {len(keys) - _KEYS} more" if len(keys) > _KEYS else ""
    return ", ".join(code(key) for key in keys[:_KEYS]) + more


def _folded(verdicts: Verdicts, plan: Plan, runs: Mapping[str, CellRun]) -> Iterator[str]:
    for matrix in matrices(verdicts.verdicts):
        yield _fold(f"Matrix of the {matrix.tier} tier", _table(matrix))
    for verdict in verdicts.verdicts:
        run = runs.get(str(verdict.key))
        report = run.crash if run is not None else None
        if report is not None and verdict.status.blocks:
            yield _fold(f"{verdict.status} {verdict.key}", _crash(report))
    for part in parts_of(verdicts):
        lines = "\n".join(_line(reason) for reason in part.reasons)
        yield _fold(f"{part.heading}: all reasons" if _blocks(part) else part.heading, lines)
    again = tuple(dict.fromkeys(_commands(verdicts, plan, runs)))
    if again:
        yield _fold("Commands that run these cells alone", block("\n".join(again)))
    if plan.omissions:
        told = (f"{o.tier} tier ({o.model or 'all models'}): {o.reason}" for o in plan.omissions)
        yield _fold("Not run, and why", "\n".join(f"- {plain(text, 600)}" for text in told))
    if verdicts.notes:
        notes = "\n".join(f"- {plain(note, 600)}" for note in verdicts.notes)
        yield _fold("Notes on the evidence", notes)


def _commands(verdicts: Verdicts, plan: Plan, runs: Mapping[str, CellRun]) -> Iterator[str]:
    """What runs each blocked cell alone, where something does."""
    for verdict in verdicts.verdicts:
        run = runs.get(str(verdict.key))
        planted = run is not None and run.cell.mutant is not None
        command = cell_alone(verdict.key, plan.source, plan.sweep, planted=planted)
        if verdict.status.blocks and command is not None:
            yield command


def _fold(heading: str, body: str) -> str:
    """A part that a reader opens; blank lines let Markdown go on inside of the HTML."""
    return f"<details><summary>{heading}</summary>\n\n{body}\n\n</details>"


def _line(reason: Reason) -> str:
    finding = reason.finding
    rule = code(rule_of(finding))
    return f"- **{finding.status}** {rule} {_cells(reason.keys)}: {plain(finding.why, 600)}"


def _table(matrix: Matrix) -> str:
    modes = " | ".join(plain(mode) for mode in matrix.modes)
    lines = [f"| model | breakable | {modes} |", "|---|---|" + "---|" * len(GraphMode)]
    for row in matrix.rows:
        places = " | ".join(_place(place) for place in row.places)
        lines.append(f"| {plain(row.model)} | {row.breakable} | {places} |")
    return "\n".join(lines)


def _place(place: Place) -> str:
    if place.status is None:
        return "–"  # noqa: RUF001
    alike = sum(mark.status is place.status for mark in place.marks)
    word = f"**{place.status}**" if place.status.blocks else str(place.status)
    return word if alike == len(place.marks) else f"{word} {alike} of {len(place.marks)}"


def _crash(report: CrashReport) -> str:
    """Title, place and the end of the excerpt, which is where a log says why."""
    where = ""
    if report.frame is not None:
        frame = report.frame
        line = f":{frame.line}" if frame.line is not None else ""
        where = f" in {code(frame.function)}" + (
            f" ({code(frame.file + line)})" if frame.file else ""
        )
    excerpt = report.excerpt[-_EXCERPT:]
    return f"{plain(report.title, 400)}{where}" + (f"\n\n{block(excerpt)}" if excerpt else "")
