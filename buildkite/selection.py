"""A selection: the cells of a plan that a change can affect, and why each.

Owns: the type, which `graphgate affected` writes and `graphgate pipeline pr` reads, and cutting
a plan down to it. Must not know: how a cell came to be selected.
"""

from __future__ import annotations

from pydantic import Field

from fixtures.cells.cell import CellKey, Name, Omission, Plan
from fixtures.errors import ConfigError
from fixtures.schema import SCHEMA_VERSION, Record
from gates.drift import Drift


class SelectedCell(Record):
    """A cell, and what in the change asks for it."""

    key: CellKey
    why: str


class Selection(Record):
    """`why` is the whole in a sentence; it is what a reader is told where no cell is selected."""

    schema_version: int = SCHEMA_VERSION
    why: str = Field(min_length=1)
    cells: tuple[SelectedCell, ...] = ()
    left_out: tuple[Omission, ...] = ()
    """What is planned and the change can't affect."""
    hardware_tiers_due: tuple[Name, ...] = ()
    """Models with a change that a GPU must judge."""
    drift: Drift | None = None
    """The capture contracts, where they were compared."""


def selected(plan: Plan, selection: Selection) -> Plan:
    """`plan` with the selected cells and their references, in the plan's order.

    What was left out becomes its omissions, and its models with a GPU due are the selection's.

    Raises:
        ConfigError: a selected cell is not planned; it would be lost without a word.
    """
    cells = {str(cell.key): cell for cell in plan.cells}
    wanted: set[str] = set()
    for one in selection.cells:
        if str(one.key) not in cells:
            raise ConfigError(
                f"{one.key} is not in the plan",
                source="--selection",
                key="cells",
                remedy="select from the cells of this sweep, tiers and vLLM",
            )
        wanted.add(str(one.key))
        if (reference := cells[str(one.key)].reference) is not None:
            wanted.add(str(reference))
    kept = tuple(cell for key, cell in cells.items() if key in wanted)
    models = {cell.key.model for cell in kept}
    return plan.model_copy(
        update={
            "cells": kept,
            "omissions": (*plan.omissions, *selection.left_out),
            "hardware_tiers_due": tuple(
                name for name in selection.hardware_tiers_due if name in models
            ),
        }
    )
