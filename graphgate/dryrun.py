"""What `--dry-run` prints: every cell's exact arguments, as YAML. Nothing is run.

Owns: the form. Must not know: how arguments come about (fixtures/cells/evaluation.py).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
import yaml

from fixtures.cells.axes import Tier
from fixtures.cells.cell import HOPPER, Cell, Plan
from fixtures.cells.evaluation import evaluation_of
from fixtures.cells.machine import Gpu, MachineProbe

DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print the exact engine and lm-eval arguments of each cell, whatever this machine "
        "has, and run nothing.",
    ),
]

_ENDLESS_GIB = 1e6
ANY_MACHINE = MachineProbe(
    gpus=tuple(
        Gpu(uuid=f"GPU-{n}", name="any", memory_gib=_ENDLESS_GIB, capability=HOPPER)
        for n in range(16)
    )
)
"""Stands in for the machine where only arguments are asked for."""


def show_arguments(plan: Plan) -> None:
    """Print one YAML document a cell, and what is not planned as comments.

    Raises:
        ConfigError: a file of questions is not there.
    """
    for cell in plan.cells:
        typer.echo("---")
        typer.echo(yaml.safe_dump(_arguments(cell), sort_keys=False, width=100).rstrip())
    for omission in plan.omissions:
        who = f" for {omission.model}" if omission.model else ""
        typer.echo(f"# not planned: {omission.tier}{who}: {' '.join(omission.reason.split())}")


def _arguments(cell: Cell) -> dict[str, Any]:
    needs = cell.requirements.plain()
    shown: dict[str, Any] = {"cell": str(cell.key), "requirements": needs}
    if cell.key.tier is not Tier.SCORE:
        return {**shown, "environment": cell.environment, "engine": cell.engine}
    found = evaluation_of(cell).plain()
    return {
        **shown,
        "environment": found["environment"],
        "engine": found["engine"],
        "lm_eval": {
            name: found[name] for name in ("include_path", "tasks", "calls", "sampling_seeds")
        },
    }
