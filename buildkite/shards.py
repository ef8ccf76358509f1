"""Shards: the cells of a plan, spread over lanes so that each shard lasts about as long.

Owns: arms, the spreading, and the schedule that all steps of a build go by. Must not know:
how a step looks, and how a cell is run.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from buildkite.costs import Costs
from buildkite.settings import Lane, Settings
from fixtures.cells.cell import Cell, CellKey, Name, Plan
from fixtures.cells.sweeps import known
from fixtures.errors import ConfigError
from fixtures.schema import SCHEMA_VERSION, Record
from gates.drift import Drift


class Shard(Record):
    """The cells that one job runs. `number` counts from 0 within the lane."""

    lane: Name
    number: int
    cells: tuple[CellKey, ...]
    seconds: float
    """What its cells cost one after the other, as far as the history knows."""

    @property
    def name(self) -> str:
        """Unique in a build, and fit for a path."""
        return f"{self.lane}-{self.number}"


class Schedule(Record):
    """What a build is about to do: one file, made once, that every step reads."""

    schema_version: int = SCHEMA_VERSION
    pipeline: str
    settings: Settings
    plan: Plan
    shards: tuple[Shard, ...]
    drift: Drift | None = None
    nothing: str | None = None
    """Why no cell is planned, where a selection says so: then there is nothing to prove."""

    def of_lane(self, lane: str) -> tuple[Shard, ...]:
        """The shards of one lane, by number."""
        return tuple(shard for shard in self.shards if shard.lane == lane)

    def shard(self, lane: str, number: int) -> Shard | None:
        """The shard of that number, or None: a lane may have fewer than its step has jobs.

        Raises:
            ConfigError: there is no such lane.
        """
        known(lane, self.settings.lanes, "lane", "LANE")
        mine = self.of_lane(lane)
        return mine[number] if number < len(mine) else None

    def part(self, keys: Iterable[CellKey]) -> Plan:
        """The plan of these cells alone, in the plan's order."""
        wanted = {str(key) for key in keys}
        cells = tuple(cell for cell in self.plan.cells if str(cell.key) in wanted)
        return self.plan.model_copy(update={"cells": cells})


def digest_of(schedule_file: bytes) -> str:
    """SHA-256 of a schedule's file, in hexadecimal: what its readers check it by."""
    return hashlib.sha256(schedule_file).hexdigest()


class _Arm(NamedTuple):
    """Cells that are compared with one reference, and the reference: they share a node."""

    cells: tuple[Cell, ...]
    seconds: float

    @property
    def gpus(self) -> int:
        return max(cell.requirements.gpus for cell in self.cells)


def shards_of(plan: Plan, settings: Settings, costs: Costs) -> tuple[Shard, ...]:
    """The shards of all lanes, lane by lane; every cell of `plan` is in exactly one.

    Raises:
        ConfigError: no lane has GPUs enough for a cell.
    """
    by_lane: dict[str, list[_Arm]] = {name: [] for name in settings.lanes}
    for cells in _arms(plan):
        name = _lane_for(cells, settings.lanes)
        lane = settings.lanes[name]
        seconds = sum(costs.get(str(cell.key), lane.fallback_seconds) for cell in cells)
        by_lane[name].append(_Arm(cells, seconds))
    return tuple(
        shard
        for name, arms in by_lane.items()
        for shard in _spread(name, settings.lanes[name], arms)
    )


def _arms(plan: Plan) -> Iterator[tuple[Cell, ...]]:
    arms: dict[str, list[Cell]] = {}
    for cell in plan.cells:
        arms.setdefault(str(cell.reference or cell.key), []).append(cell)
    yield from (tuple(cells) for cells in arms.values())


def _lane_for(cells: tuple[Cell, ...], lanes: Mapping[str, Lane]) -> str:
    tier, gpus = cells[0].key.tier, _Arm(cells, 0.0).gpus
    for name, lane in lanes.items():
        if lane.tier is tier and lane.gpus >= gpus:
            return name
    raise ConfigError(
        f"no lane of the {tier} tier has {gpus} GPUs, which {cells[0].key} needs",
        source="the pipeline's settings",
        key="lanes",
        remedy="add a lane",
    )


def _spread(name: str, lane: Lane, arms: list[_Arm]) -> Iterator[Shard]:
    """Longest processing time first: each arm goes to the shard that has least to do."""
    if not arms:
        return
    loads = [(0.0, number) for number in range(_count(lane, arms))]
    filled: list[list[_Arm]] = [[] for _ in loads]
    for arm in sorted(arms, key=lambda arm: (-arm.seconds, str(arm.cells[0].key))):
        seconds, number = heapq.heappop(loads)
        filled[number].append(arm)
        heapq.heappush(loads, (seconds + arm.seconds, number))
    for number, mine in enumerate(filled):
        keys = tuple(cell.key for arm in mine for cell in arm.cells)
        seconds = round(sum(arm.seconds for arm in mine), 1)
        yield Shard(lane=name, number=number, cells=keys, seconds=seconds)


def _count(lane: Lane, arms: list[_Arm]) -> int:
    minutes = sum(arm.seconds for arm in arms) / 60 / (lane.jobs or 1)
    return max(1, min(math.ceil(minutes / lane.target_minutes), lane.most_shards, len(arms)))
