"""The stand-in night: a recorded plan, its observations, and the parts that some cells play.

Owns: what is laid out on disk before a build, and the settings of one machine. Must not know:
what a test expects of it.
"""

from __future__ import annotations

import lzma
import sys
from collections.abc import Mapping
from pathlib import Path

from buildkite.settings import Settings, read_settings
from buildkite.steps import bootstrap_of
from fixtures.cells.cell import Plan
from fixtures.evidence.cellrun import CellRun
from fixtures.run.environment import REPOSITORY
from gates.evidence import LEDGER_FILE
from suites.selftest.run_corpus import RUN_CORPUS
from suites.selftest.standin.children import NIGHT_VARIABLE
from suites.selftest.standin.driver import Build
from suites.selftest.standin.gate import PLAN_VARIABLE

GREEN, RED = "0.33.0", "0.26.0"
"""Recorded releases: one in which every cell passes, and one whose FULL cells fail."""


def recorded(release: str) -> dict[str, CellRun]:
    """The runs of a recorded night, by cell key."""
    packed = RUN_CORPUS / release / f"{LEDGER_FILE}.xz"
    lines = lzma.decompress(packed.read_bytes()).splitlines()
    runs = (CellRun.model_validate_json(line) for line in lines)
    return {str(run.cell.key): run for run in runs}


def one_machine() -> Settings:
    """The shipped settings for stand-in agents: the contract lane alone, in four shards."""
    shipped = read_settings().plain()
    contract = {
        **shipped["lanes"]["contract"],
        "plugins": (),
        "target_minutes": 0.1,
        "most_shards": 4,
        "jobs": 1,
    }
    nightly = {**shipped["pipelines"]["nightly"], "tiers": ["contract"], "notify": ()}
    return Settings.model_validate(
        {
            **shipped,
            "graphgate": ["graphgate"],
            "setup": (),
            "plugins": {},
            "lanes": {"contract": contract},
            "plan": {**shipped["plan"], "plugins": ()},
            "judge": {**shipped["judge"], "plugins": ()},
            "pipelines": {"nightly": nightly},
        }
    )


def lay_out(folder: Path, *, regressions: tuple[str, ...], parts: Mapping[str, str]) -> None:
    """Write the night into `folder`: its plan of twenty cells in ten arms, and what they do.

    Args:
        folder: new.
        regressions: keys of cells that observe what was recorded for the red release.
        parts: by key, what a cell plays instead of observing.
    """
    folder.mkdir(parents=True)
    plan = Plan.read_json(RUN_CORPUS / GREEN / "plan.json")
    green, red = recorded(GREEN), recorded(RED)
    cells = []
    for cell in plan.cells:
        key = str(cell.key)
        observation = (red if key in regressions else green)[key].observation
        assert observation is not None
        (folder / f"{key}.json").write_text(observation.to_json(indent=None))
        variables = {**cell.environment, NIGHT_VARIABLE: str(folder)}
        cells.append(cell.model_copy(update={"environment": variables}))
    for key, part in parts.items():
        (folder / f"{key}.part").write_text(part)
    plan = plan.model_copy(update={"cells": tuple(cells)})
    (folder / "plan.json").write_text(plan.to_json())


def build_in(
    folder: Path,
    agents: list[str],
    *,
    regressions: tuple[str, ...] = (),
    parts: Mapping[str, str] | None = None,
) -> Build:
    """A nightly build from its bootstrap step on, run to its end."""
    lay_out(folder / "night", regressions=regressions, parts=parts or {})
    settings = one_machine()
    written = folder / "settings.json"  # which is YAML
    written.write_text(settings.to_json())
    programs = _programs(folder / "bin")
    environment = {PLAN_VARIABLE: str(folder / "night" / "plan.json"), "GRAPHGATE_VLLM": ""}
    build = Build(folder / "build", programs, {"cpu": agents}, environment)
    step = next(s for s in bootstrap_of(settings)["steps"] if s["key"].endswith("plan-nightly"))
    commands = [f"{line} --settings '{written}'" for line in step["commands"]]
    build.run({"steps": [{**step, "commands": commands}]})
    return build


def _programs(folder: Path) -> Path:
    folder.mkdir()
    agent = f"exec '{sys.executable}' -I -S '{Path(__file__).with_name('agent.py')}' \"$@\""
    gate = (
        f"export PYTHONPATH='{REPOSITORY}'\n"
        f"exec '{sys.executable}' -m suites.selftest.standin.gate \"$@\""
    )
    for name, text in {"buildkite-agent": agent, "graphgate": gate}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder
