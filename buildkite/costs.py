"""What cells cost: seconds on the latest nights, from the history.

Owns: the question to the history. Must not know: shards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import median

from reports.history.store import History

Costs = Mapping[str, float]
"""Seconds by cell key; a cell that the history does not know is absent."""


def measured_costs(history: History, nights: int = 10) -> Costs:
    """Median seconds of each cell's last attempt, over the latest `nights` that ran it.

    A median, because a cell that crashed early or met a slow node is no guide to tonight.
    """
    query = """
        SELECT c.key, sum(t.seconds) FROM timing t JOIN cell c ON c.id = t.cell
        GROUP BY t.cell, t.at, t.night ORDER BY c.key, t.at DESC, t.night DESC"""
    found: dict[str, list[float]] = defaultdict(list)
    for key, seconds in history.rows(query):
        past = found[str(key)]
        if len(past) < nights:
            past.append(float(seconds))
    return {key: median(seconds) for key, seconds in found.items()}
