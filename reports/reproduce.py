"""The commands that run one cell again.

Owns: their words. Must not know: a shell; whatever a request holds is quoted as one word.
"""

from __future__ import annotations

import shlex

from fixtures.cells.axes import Tier
from fixtures.cells.cell import CellKey, Source

ZOO_REQUEST = "zoo"
"""What a plan of planted faults asks for in place of a vLLM."""


def cell_alone(key: CellKey, source: Source, sweep: str, *, planted: bool = False) -> str | None:
    """Runs the cell and the reference that it is held against, and nothing else.

    None: no command does. Planted faults (`planted`) run together.
    """
    if source.request == ZOO_REQUEST:
        return "graphgate mutants --zoo" if planted else None
    if key.tier is not Tier.CONTRACT:
        return cell_with_kin(key, source, sweep)
    words = ("pytest", "suites/contract", "-k", f"{key}-", "--vllm", source.request)
    return shlex.join((*words, "--sweep", sweep))


def cell_with_kin(key: CellKey, source: Source, sweep: str) -> str:
    """Runs the gate over all variants of the cell's model, mode and flag."""
    return shlex.join(
        (
            *("graphgate", "gate", "--model", key.model, "--tier", key.tier),
            *("--modes", key.mode, "--breakable", key.breakable),
            *("--vllm", source.request, "--sweep", sweep),
        )
    )
