"""What other nights say about tonight's blockers, as notes for the reader of a decision.

Owns: those words. Must not know: policy; a note changes no status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fixtures.evidence.cellrun import CellRun
from gates.verdict import Verdict, Verdicts
from reports.history.questions import Sighting, last_judged, sighting
from reports.history.store import History
from reports.text import one_line

MOST = 50
"""Blocked cells that are looked up; more than that have a cause of their own."""


def notes_of_the_past(
    history: History, verdicts: Verdicts, runs: Mapping[str, CellRun]
) -> tuple[str, ...]:
    """Notes on each blocked cell: how it was last, and whether its crash was seen before."""
    blocked = [verdict for verdict in verdicts.verdicts if verdict.status.blocks][:MOST]
    return tuple(
        note for verdict in blocked for note in _notes(history, verdict, runs.get(str(verdict.key)))
    )


def _notes(history: History, verdict: Verdict, run: CellRun | None) -> Iterator[str]:
    last = last_judged(history, str(verdict.key))
    if last is None:
        yield f"history: {verdict.key} was never judged before"
    else:
        rule = f" ({last.rule})" if last.rule else ""
        yield (
            f"history: {verdict.key} was {last.status}{rule} on {last.at}, with vLLM {last.vllm}"
        )
    if run is not None and run.crash is not None:
        title = one_line(run.crash.title, 500)
        yield f"history: {title!r} {_seen(sighting(history, title))}"


def _seen(seen: Sighting | None) -> str:
    if seen is None:
        return "was never seen before"
    return f"was seen on {seen.nights} night(s), first {seen.first}, last {seen.last}"
