"""Where scores and times changed: the night from which a series lies higher or lower.

Owns: the rule and the series that it is asked of. Must not know: how an answer is shown, or
policy; a change is told to a reader and blocks nothing.

The rule is a rank test at the best split of a series into an earlier and a later part
(Mann-Whitney, two-sided, exact where no values are equal), with Bonferroni's correction for
every split of every series. It asks for no model of the noise, an outlier of one night can't
trip it, and of independent nights without any change it speaks at most once in a hundred times.
It finds one change a series, the clearest, some nights after it came: five of thirty nights
are enough where the parts don't overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import Literal, NamedTuple

import numpy as np
import scipy  # its parts load when first used: scipy.stats alone takes a second

from fixtures.schema import Record
from gates.verdict import Status
from reports.history.questions import NightRow, nights, scores
from reports.history.store import History

ALPHA = 0.01
"""Chance that a page tells of any change where there is none."""
WINDOW = 30
"""Latest nights that are looked at."""
SLOWER = 1.1
"""Times are told from this ratio on; less is no one's business."""
_ENDED_EARLY = frozenset(
    {Status.CRASH, Status.HANG, Status.INFRA, Status.MISSING, Status.CONFIG, Status.UNSUPPORTED}
)


class Change(Record):
    """A series that lies elsewhere from the night `at` on: what did it lies behind `before`, up to
    `after`. Medians are fractions of 1 for scores, and for times a multiple of the usual time.
    `p_value` is corrected for all splits and series.
    """

    what: str
    at: str
    previous_at: str
    median_before: float
    median_after: float
    p_value: float
    before: str
    after: str
    source_before: str
    source_after: str


class Split(NamedTuple):
    """The later part starts at `start`; `p_value` is corrected for all splits."""

    start: int
    p_value: float


class _Series(NamedTuple):
    what: str
    points: list[tuple[str, float]]
    """Times of nights and values, oldest first."""
    ratio: float = 1.0


def changes(history: History, window: int = WINDOW) -> list[Change]:
    """The changes of all series within the latest nights, newest first."""
    told = {night.at: night for night in nights(history, window)}
    series = [*_times(history, window), *_scores(history, window)]
    found = [change for one in series if (change := _change(one, len(series), told)) is not None]
    return sorted(found, key=lambda change: (change.at, change.what), reverse=True)


def best_split(values: Sequence[float]) -> Split | None:
    """Where a series changes most clearly, or None where all of it is equal or too short."""
    count = len(values)
    if count < 2 or min(values) == max(values):
        return None
    ranks = scipy.stats.rankdata(values)
    sizes = np.arange(1, count)
    # Variance of a rank sum without replacement, which ties make smaller.
    spread = np.sqrt(sizes * (count - sizes) * np.var(ranks, ddof=1) / count)
    distance = np.abs(np.cumsum(ranks)[:-1] - sizes * (count + 1) / 2) / spread
    start = int(np.argmax(distance)) + 1
    method: Literal["exact", "asymptotic"]
    method = "exact" if len(set(values)) == count else "asymptotic"
    early, late = np.asarray(values[:start]), np.asarray(values[start:])
    p_value = float(scipy.stats.mannwhitneyu(early, late, method=method).pvalue)
    return Split(start, min(1.0, p_value * (count - 1)))


def _change(series: _Series, family: int, told: dict[str, NightRow]) -> Change | None:
    values = [value for _, value in series.points]
    split = best_split(values)
    if split is None or split.p_value * family > ALPHA:
        return None
    before, after = median(values[: split.start]), median(values[split.start :])
    if max(before, after) < series.ratio * min(before, after):
        return None
    first, last = told[series.points[split.start][0]], told[series.points[split.start - 1][0]]
    return Change(
        what=series.what,
        at=first.at,
        previous_at=last.at,
        median_before=before,
        median_after=after,
        p_value=split.p_value * family,
        before=last.vllm,
        after=first.vllm,
        source_before=last.source,
        source_after=first.source,
    )


def _scores(history: History, window: int) -> Iterator[_Series]:
    """A series for each cell, task and number of questions: others are another measurement."""
    rows = sorted(scores(history, window), key=lambda row: (row.key, row.task, row.questions))
    for (key, task, _), found in groupby(rows, key=lambda row: (row.key, row.task, row.questions)):
        yield _Series(f"{key}: {task}", [(row.at, row.score) for row in found])


def _times(history: History, window: int) -> Iterator[_Series]:
    """A series for each phase: the median over cells of a time against that cell's usual one.

    So it doesn't move with which cells a night ran. Cells that ended early aren't counted.
    """
    early = ", ".join(repr(status.value) for status in sorted(_ENDED_EARLY))
    query = f"""
        WITH latest AS (SELECT id, at FROM night ORDER BY at DESC, id DESC LIMIT ?)
        SELECT p.name, t.cell, t.at, t.seconds
        FROM latest JOIN result r ON r.night = latest.id AND r.status NOT IN ({early})
        JOIN timing t ON t.cell = r.cell AND t.at = r.at AND t.night = r.night
        JOIN phase p ON p.id = t.phase WHERE t.seconds > 0"""  # noqa: S608
    phases: dict[str, dict[int, list[tuple[str, float]]]] = {}
    for phase, cell, at, seconds in history.rows(query, window):
        by_cell = phases.setdefault(str(phase), {})
        by_cell.setdefault(int(cell), []).append((str(at), float(seconds)))
    for phase, by_cell in sorted(phases.items()):
        ratios: dict[str, list[float]] = {}
        for points in by_cell.values():
            usual = median(seconds for _, seconds in points)
            for at, seconds in points:
                ratios.setdefault(at, []).append(seconds / usual)
        yield _Series(
            f"time of phase {phase}", [(at, median(ratios[at])) for at in sorted(ratios)], SLOWER
        )
