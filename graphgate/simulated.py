"""A score tier's night without a model: simulated answers, for the demo.

Owns the figures that are simulated. What is shown says that no model ran.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import Cell, CellKey, Plan, Resolution
from fixtures.run.outfolder import PLAN_FILE, OutFolder
from gates.scores.power import Design
from graphgate.zoo import SOURCE
from suites.selftest.answers import Bools, a_task, some_samples, stored, two_arms

GSM8K = Design(n=1319, score=0.954, discordance=0.02)
AIME25 = Design(n=30, score=0.942, discordance=0.05, repeats=4)
_SICK = {"gsm8k": 0.954 - 0.169, "aime25": 0.942}
"""The drops that the repair of FlashMLA's planning in FULL graphs was published with."""
_HEALTHY: dict[str, float] = {"gsm8k": 0.0, "aime25": 0.0}
_SEED = 49_364
_DROPS = {
    GraphMode.NONE: _HEALTHY,
    GraphMode.PIECEWISE: _HEALTHY,
    GraphMode.FULL: _SICK,
    GraphMode.FULL_DECODE_ONLY: {"gsm8k": 0.02, "aime25": 0.0},
}


def write_night(out: Path) -> None:
    """An OUT folder of cells whose answers were drawn, not asked for."""
    folder = OutFolder(out)
    arms = {task: _arms(design, task) for task, design in (("gsm8k", GSM8K), ("aime25", AIME25))}
    runs = []
    for mode in _DROPS:
        tasks = [a_task(by_mode[mode], task) for task, by_mode in arms.items()]
        samples = some_samples(*tasks, checkpoint="simulated: no model ran")
        run = stored(_cell(mode), samples, out)
        about = run.provenance.model_copy(update={"source": SOURCE.identity, "torch": None})
        runs.append(run.model_copy(update={"provenance": about}))
    plan = Plan(source=SOURCE, sweep="demo", cells=tuple(run.cell for run in runs))
    (out / PLAN_FILE).write_text(plan.to_json(), encoding="utf-8")
    for run in runs:
        folder.ledger.append(run)


def _arms(design: Design, task: str) -> dict[GraphMode, Bools]:
    """Every mode's answers to the questions of one task, against the same NONE arm."""
    arms = {}
    for mode, drops in _DROPS.items():
        before, after = two_arms(design, drops[task], np.random.default_rng(_SEED))
        arms[mode] = before if mode is GraphMode.NONE else after
    return arms


def _cell(mode: GraphMode) -> Cell:
    key = CellKey(model="simulated", mode=mode, breakable=Breakable.OFF, tier=Tier.SCORE)
    reference = key.model_copy(update={"mode": GraphMode.NONE})
    return Cell(
        key=key,
        model={},
        expected=Resolution(mode=mode, reason="what was asked for"),
        reference=None if mode is GraphMode.NONE else reference,
    )
