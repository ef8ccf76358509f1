"""The trend page: turns, titles, flakes, times and scores over the nights.

Owns: what the page shows and the lines of its pictures. Must not know: SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from reports.history.changes import Change, changes
from reports.history.questions import (
    FlakeRow,
    NightRow,
    PhaseRow,
    ScoreRow,
    TitleRow,
    Turn,
    flakes,
    nights,
    phases,
    scores,
    titles,
    turns,
)
from reports.history.store import History
from reports.html.page import render_page

WIDTH, HEIGHT = 600, 120
_PAD = 6


class Trend(NamedTuple):
    """One line over the nights. `low` and `high` are what the picture's edges stand for."""

    label: str
    points: str
    bars: tuple[tuple[float, float, float], ...]
    """x, upper and lower end of each interval, where the values have some."""
    first: str
    last: str
    low: float
    high: float
    values: tuple[tuple[str, float], ...]


class TurnGroup(NamedTuple):
    """Cells that turned alike on the same night; `turn` is that of the first."""

    turn: Turn
    keys: tuple[str, ...]


class Trends(NamedTuple):
    """Everything that the page shows, newest first."""

    nights: Sequence[NightRow]
    turns: Sequence[TurnGroup]
    changes: Sequence[Change]
    titles: Sequence[TitleRow]
    flakes: Sequence[FlakeRow]
    times: Sequence[Trend]
    scores: Sequence[Trend]


def trends(history: History) -> Trends:
    """The answers to all questions of the page."""
    return Trends(
        nights(history),
        grouped(turns(history)),
        changes(history),
        titles(history),
        flakes(history),
        _times(phases(history)),
        _scores(scores(history)),
    )


def grouped(found: Sequence[Turn]) -> list[TurnGroup]:
    """Turns that differ in nothing but their cells, each told once, in the order given."""
    groups: dict[Turn, list[str]] = {}
    for turn in found:
        groups.setdefault(turn.model_copy(update={"key": ""}), []).append(turn.key)
    return [TurnGroup(turn, tuple(keys)) for turn, keys in groups.items()]


def render_history(shown: Trends, timestamp: datetime) -> bytes:
    """The page, UTF-8; equal arguments give equal bytes."""
    return render_page("history.html.jinja", trends=shown, timestamp=timestamp)


def _times(rows: Sequence[PhaseRow]) -> list[Trend]:
    by_phase: dict[str, list[PhaseRow]] = {}
    for row in reversed(rows):
        by_phase.setdefault(row.phase, []).append(row)
    return [
        trend(phase, [(row.at, row.seconds, row.seconds, row.seconds) for row in found])
        for phase, found in by_phase.items()
    ]


def _scores(rows: Sequence[ScoreRow]) -> list[Trend]:
    return [
        trend(f"{key}: {task}", [(row.at, row.score, row.low, row.high) for row in found])
        for (key, task), found in groupby(rows, key=lambda row: (row.key, row.task))
    ]


def trend(label: str, points: Sequence[tuple[str, float, float, float]]) -> Trend:
    """A picture of (time, value, low, high), oldest first; times are evenly spaced."""
    low = min(0.0, *(one[2] for one in points)) if points else 0.0
    high = max((one[3] for one in points), default=1.0)
    span = (high - low) or 1.0
    step = (WIDTH - 2 * _PAD) / max(len(points) - 1, 1)

    def x(index: int) -> float:
        return round(_PAD + index * step, 1)

    def y(value: float) -> float:
        return round(HEIGHT - _PAD - (value - low) / span * (HEIGHT - 2 * _PAD), 1)

    return Trend(
        label=label,
        points=" ".join(f"{x(n)},{y(one[1])}" for n, one in enumerate(points)),
        bars=tuple((x(n), y(one[3]), y(one[2])) for n, one in enumerate(points) if one[2] < one[3]),
        first=points[0][0] if points else "",
        last=points[-1][0] if points else "",
        low=low,
        high=high,
        values=tuple((one[0], one[1]) for one in points),
    )
