"""The matrix of the first screen: models and breakable flags down, graph modes across.

Owns: which cells share a place and what stands for them. Must not know: HTML.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fixtures.cells.axes import Breakable, GraphMode, Tier
from gates.verdict import Status, Verdict
from reports.reasons import headline, rule_of

_RULE_WIDTH = 40


class Mark(NamedTuple):
    """One cell in its place; `rule` names the finding behind a status that isn't PASS."""

    key: str
    variant: str
    status: Status
    rule: str


class Place(NamedTuple):
    """All variants at one model, mode and flag. `status` is the worst; None: not planned."""

    mode: GraphMode
    status: Status | None
    marks: tuple[Mark, ...]


class Row(NamedTuple):
    """One model with one flag, over all modes."""

    model: str
    breakable: Breakable
    places: tuple[Place, ...]


class Matrix(NamedTuple):
    """All cells of one tier."""

    tier: Tier
    modes: tuple[GraphMode, ...]
    rows: tuple[Row, ...]


def matrices(verdicts: Iterable[Verdict]) -> tuple[Matrix, ...]:
    """One matrix per tier that has a cell, cheapest tier first."""
    places: dict[Tier, dict[tuple[str, Breakable], dict[GraphMode, list[Mark]]]] = {}
    for verdict in verdicts:
        key = verdict.key
        row = places.setdefault(key.tier, {}).setdefault((key.model, key.breakable), {})
        row.setdefault(key.mode, []).append(_mark(verdict))
    return tuple(_matrix(tier, places[tier]) for tier in Tier if tier in places)


def _matrix(tier: Tier, rows: dict[tuple[str, Breakable], dict[GraphMode, list[Mark]]]) -> Matrix:
    modes = tuple(GraphMode)
    return Matrix(
        tier,
        modes,
        tuple(
            Row(model, flag, tuple(_place(mode, by_mode.get(mode, [])) for mode in modes))
            for (model, flag), by_mode in rows.items()
        ),
    )


def _place(mode: GraphMode, marks: list[Mark]) -> Place:
    worst = min((mark.status for mark in marks), key=lambda status: status.rank, default=None)
    return Place(mode, worst, tuple(sorted(marks, key=lambda mark: mark.status.rank)))


def _mark(verdict: Verdict) -> Mark:
    found = headline(verdict)
    told = found is not None and verdict.status is not Status.PASS
    rule = rule_of(found)[:_RULE_WIDTH] if found is not None and told else ""
    return Mark(str(verdict.key), verdict.key.variant or "default", verdict.status, rule)
