"""A child of the zoo that cannot plant its fault; runs in a process of its own."""

from __future__ import annotations

from fixtures.cells.cell import Cell
from fixtures.child.report import Reporter
from fixtures.evidence.cellrun import Observation, Refusal, RefusalKind


def lacks_a_tool(cell: Cell, reporter: Reporter) -> Observation:
    """Say what is missing, as a fault does that is built with a compiler."""
    return Observation(refusal=Refusal(kind=RefusalKind.INFRA, why="nvcc is not installed here"))
