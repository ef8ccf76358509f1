"""Attempts drawn over time: which phase took how long, and where a child ended.

Owns: the geometry, in units of an SVG that is WIDTH wide. Must not know: HTML.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fixtures.evidence.cellrun import Attempt

WIDTH = 600
BAR_HEIGHT = 22
ROW_HEIGHT = 30
_NARROWEST = 2.0
"""Even a phase of a millisecond must be seen."""


class Bar(NamedTuple):
    """One phase of one attempt; `hue` numbers the phases in order of appearance."""

    phase: str
    seconds: float
    x: float
    y: float
    width: float
    hue: int


class Timeline(NamedTuple):
    """All bars; `seconds` is what the whole width stands for."""

    seconds: float
    height: int
    bars: tuple[Bar, ...]


def timeline(attempts: Iterable[Attempt]) -> Timeline | None:
    """The attempts of a cell on a common scale, or None where no time was taken down."""
    rows = [attempt.timings for attempt in attempts]
    longest = max((sum(_positive(row)) for row in rows), default=0.0)
    if longest <= 0:
        return None
    hues = {phase: n for n, phase in enumerate(dict.fromkeys(p for row in rows for p in row))}
    bars = []
    for index, row in enumerate(rows):
        x = 0.0
        for phase, seconds in row.items():
            share = max(seconds, 0.0) / longest * WIDTH
            width = max(min(share, WIDTH - x), _NARROWEST)
            bars.append(
                Bar(
                    phase,
                    seconds,
                    round(min(x, WIDTH - _NARROWEST), 1),
                    index * ROW_HEIGHT,
                    round(width, 1),
                    hues[phase] % 4,
                )
            )
            x += share
    return Timeline(longest, len(rows) * ROW_HEIGHT, tuple(bars))


def _positive(timings: dict[str, float]) -> list[float]:
    return [max(seconds, 0.0) for seconds in timings.values()]
