"""A night over 100 nodes, simulated: `python -m suites.bench.scale`.

Owns: synthetic models, costs, node failures and the clock. What decides is real: the planner
plans, buildkite.shards spreads, the settings' rules say what is tried again, and the evidence
goes through parcels to the judge. Must not know: how long is too long; nothing here is a test.
"""

from __future__ import annotations

import heapq
import io
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from buildkite.collect import collect
from buildkite.delivery import PARCELS, SUFFIX
from buildkite.parcel import pack
from buildkite.settings import Lane, Settings, read_settings
from buildkite.shards import Schedule, Shard, shards_of
from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import Cell, Plan, Source
from fixtures.cells.planner import plan
from fixtures.cells.request import PlanRequest
from fixtures.cells.sweeps import Block, Catalog, Sweep, load_catalog
from fixtures.evidence.cellrun import CellRun
from gates.verdict import ExitCode, Status, Verdicts
from graphgate.judge import judge_into
from graphgate.report import report_into
from suites.selftest.build import a_crash, a_run, an_attempt

MODELS, VARIANTS = 10, ("default", "len128", "spec3", "lora")
NODES = {"cpu": 8, "h200-1": 60, "h200-8": 32}
"""Nodes by queue; 100 in all."""
FAILING = 0.03
"""Share of the nodes that fail at some time of the night, half of them without a word."""
SECONDS = {Tier.CONTRACT: (6.0, 0.6), Tier.CANARY: (150.0, 0.5), Tier.SCORE: (1800.0, 0.4)}
"""Median and sigma of a cell's seconds (log-normal), by tier."""
NIGHT = 6 * 3600.0
"""Seconds within which a failing node fails."""
SETUP, LOST_AFTER = 180.0, 240.0
"""Seconds of a job before its first cell, and until a silent agent counts as lost."""
_LOST = -1


class Delivered(NamedTuple):
    """What one job sent: runs by shard and try."""

    shard: Shard
    attempt: int
    runs: tuple[CellRun, ...]


@dataclass
class Night:
    """What came of a simulated night; times in seconds from its begin."""

    ends: dict[str, float] = field(default_factory=dict)
    retries: Counter[int] = field(default_factory=Counter)
    failed_nodes: int = 0
    delivered: list[Delivered] = field(default_factory=list)

    @property
    def wall(self) -> float:
        """When the last shard ended."""
        return max(self.ends.values())


class Job(NamedTuple):
    """A job that waits for a node; ordered by when it may begin."""

    ready: float
    number: int
    attempt: int
    shard: Shard
    todo: tuple[Cell, ...]


def synthetic_catalog() -> Catalog:
    """Ten copies of one model that runs on every tier, each with four variants."""
    shipped = load_catalog()
    llama = shipped.model("llama")
    weights = {"checkpoint": "/weights", "revision": "main"}
    section = shipped.model("dsv4").score
    score = section.model_copy(update=weights) if section is not None else None
    variants = {name: llama.variants[name] for name in VARIANTS}
    names = [f"model{number}" for number in range(MODELS)]
    update = {"variants": variants, "score": score}
    models = {name: llama.model_copy(update={"name": name, **update}) for name in names}
    block = Block(
        tiers=tuple(Tier), modes=tuple(GraphMode), breakable=tuple(Breakable), variants=VARIANTS
    )
    sweep = Sweep(name="scale", description="all", models=tuple(names), blocks=(block,))
    return shipped.model_copy(update={"models": models, "sweeps": {"scale": sweep}})


def synthetic_settings() -> Settings:
    """The shipped settings, with as many shards as there are nodes."""
    shipped = read_settings()
    most = {"contract": 8, "canary": 60, "score-8": 32}
    lanes = {
        name: lane.model_copy(update={"most_shards": most.get(name, lane.most_shards)})
        for name, lane in shipped.lanes.items()
    }
    lanes["score-8"] = lanes["score-8"].model_copy(update={"concurrency": 32})
    return shipped.model_copy(update={"lanes": lanes})


def the_plan(settings: Settings) -> Plan:
    """Every model, mode, flag, variant and tier, by the real planner."""
    source = Source(
        kind="installed",
        request="installed",
        version="0.33.0",
        identity="installed:0.33.0:scale",
        python_path="/nowhere",
        compiled=True,
    )
    request = PlanRequest(sweep="scale", tiers=tuple(Tier))
    return plan(request, source, settings.fleet.as_machine(), synthetic_catalog())


def simulate(schedule: Schedule, seconds: dict[str, float], dice: random.Random) -> Night:
    """One night: contract lanes first, then all others, each on the nodes of its queue."""
    night = Night()
    fails = _failures(dice)
    night.failed_nodes = len(fails)
    lanes = schedule.settings.lanes
    begin = 0.0
    for contract in (True, False):
        for name, lane in lanes.items():
            if (lane.tier is Tier.CONTRACT) is contract and schedule.of_lane(name):
                _Lane(schedule, name, seconds, fails, night).run(begin)
        begin = max(night.ends.values())
    return night


def _failures(dice: random.Random) -> dict[str, tuple[float, int]]:
    """By node that fails: when, and with which exit status its jobs end."""
    nodes = [f"{queue}/{n}" for queue, count in NODES.items() for n in range(count)]
    failing = [node for node in nodes if dice.random() < FAILING]
    kinds = (_LOST, int(ExitCode.INFRA))
    return {node: (dice.uniform(0, NIGHT), kinds[n % 2]) for n, node in enumerate(failing)}


class _Lane:
    """The jobs of one lane on its nodes: who is free first takes who may begin first."""

    def __init__(
        self,
        schedule: Schedule,
        name: str,
        seconds: dict[str, float],
        fails: dict[str, tuple[float, int]],
        night: Night,
    ) -> None:
        self._schedule = schedule
        self._name = name
        self._lane: Lane = schedule.settings.lanes[name]
        self._seconds = seconds
        self._fails = fails
        self._night = night

    def run(self, begin: float) -> None:
        """Run every job, retries included, to its end."""
        count = min(NODES[self._lane.queue], self._lane.concurrency or 10**6)
        free = [(begin, f"{self._lane.queue}/{n}") for n in range(count)]
        jobs = [
            Job(begin, n, 0, shard, self._schedule.part(shard.cells).cells)
            for n, shard in enumerate(self._schedule.of_lane(self._name))
        ]
        heapq.heapify(jobs)
        while jobs:
            job = heapq.heappop(jobs)
            at, node = heapq.heappop(free)
            began = max(at, job.ready)
            if self._fails.get(node, (began + 1, 0))[0] <= began:
                heapq.heappush(jobs, job)  # the node is gone before it took the job
                continue
            again, end = self._run_job(job, node, began)
            self._night.ends[f"{job.shard.name}/{job.attempt}"] = end
            if again is None:
                heapq.heappush(free, (end, node))
            elif again.todo:
                heapq.heappush(jobs, again)

    def _run_job(self, job: Job, node: str, began: float) -> tuple[Job | None, float]:
        """The retry (with nothing to do where none is allowed), None if none is needed; the end."""
        fail_at, status = self._fails.get(node, (float("inf"), 0))
        now, done = began + SETUP, []
        for cell in job.todo:
            now += self._seconds[str(cell.key)]
            if now > fail_at:
                break
            done.append(cell)
        left = job.todo[len(done) :]
        runs = [self._ran(cell) for cell in done]
        if left and status == ExitCode.INFRA:
            runs += [self._failed(cell) for cell in left]
        self._night.delivered.append(Delivered(job.shard, job.attempt, tuple(runs)))
        if not left:
            return None, now
        end = fail_at + (LOST_AFTER if status == _LOST else 60.0)
        allowed = job.attempt < self._limit(status)
        self._night.retries[status] += allowed
        todo = left if allowed else ()
        return Job(end, job.number, job.attempt + 1, job.shard, todo), end

    def _limit(self, status: int) -> int:
        """How often the settings let a job be tried again that ends so."""
        rules = self._schedule.settings.retry if self._lane.retry is None else self._lane.retry
        return next((rule.limit for rule in rules if rule.exit_status == status), 0)

    def _ran(self, cell: Cell) -> CellRun:
        return a_run(cell, source=self._schedule.plan.source.identity)

    def _failed(self, cell: Cell) -> CellRun:
        crash = a_crash("INFRA", "GPU has fallen off the bus")
        attempts = tuple(an_attempt(index=n, crash=crash) for n in range(3))
        source = self._schedule.plan.source.identity
        return a_run(cell, attempts=attempts, observation=None, crash=crash, source=source)


def judge_night(schedule: Schedule, night: Night, folder: Path) -> tuple[Verdicts, float]:
    """The real judge's verdicts on the night's parcels, and its seconds, reports included."""
    downloads = folder / "downloads"
    for sent in night.delivered:
        where = f"{schedule.settings.name}/{PARCELS}/{sent.shard.name}/try{sent.attempt}-job"
        for run in sent.runs:
            pack(folder / "no-files", downloads / where / f"{run.cell.key}{SUFFIX}", run)
    started = time.perf_counter()
    found = collect(schedule, downloads, folder / "shards")
    dirs = list(found.folders)
    verdicts = judge_into(dirs, folder / "judge")
    report_into(verdicts, dirs, folder / "judge")
    return verdicts, time.perf_counter() - started


def _true_seconds(made: Plan, dice: random.Random) -> dict[str, float]:
    drawn = {}
    for cell in made.cells:
        middle, sigma = SECONDS[cell.key.tier]
        drawn[str(cell.key)] = middle * dice.lognormvariate(0.0, sigma)
    return drawn


def _rows(nights: list[Night]) -> Iterator[tuple[str, str]]:
    walls = [night.wall / 3600 for night in nights]
    retries: Counter[int] = sum((night.retries for night in nights), Counter())
    yield "nodes that failed, per night", f"{statistics.mean(n.failed_nodes for n in nights):.1f}"
    yield "hours from plan to judge, median", f"{statistics.median(walls):.2f}"
    yield "hours from plan to judge, worst", f"{max(walls):.2f}"
    yield "retries after exit 20, per night", f"{retries[20] / len(nights):.2f}"
    yield "retries after a lost agent, per night", f"{retries[_LOST] / len(nights):.2f}"


def _judged_row(schedule: Schedule, night: Night) -> tuple[str, str]:
    scratch = tempfile.TemporaryDirectory(prefix="graphgate-scale-")
    with scratch as folder, redirect_stdout(io.StringIO()):
        verdicts, took = judge_night(schedule, night, Path(folder))
    counts = Counter(verdict.status for verdict in verdicts.verdicts)
    told = f"{counts[Status.MISSING]} MISSING, {counts[Status.INFRA]} INFRA in {took:.1f} s"
    return f"judged, {sum(night.retries.values())} retries", told


def main(
    nights: Annotated[int, typer.Option(help="How many nights are simulated.")] = 100,
    judged: Annotated[int, typer.Option(help="How many of the worst are judged for real.")] = 3,
    seed: int = 0,
) -> None:
    """Simulate nights, judge those with most retries, print the figures."""
    dice = random.Random(seed)  # noqa: S311 - a simulation, no secret
    settings = synthetic_settings()
    started = time.perf_counter()
    made = the_plan(settings)
    planned = time.perf_counter()
    seconds = _true_seconds(made, dice)
    known = {key: cost * dice.lognormvariate(0.0, 0.15) for key, cost in seconds.items()}
    shards = shards_of(made, settings, known)
    spread = time.perf_counter()
    schedule = Schedule(pipeline="nightly", settings=settings, plan=made, shards=shards)
    past = [simulate(schedule, seconds, dice) for _ in range(nights)]
    past.sort(key=lambda night: sum(night.retries.values()), reverse=True)
    size = f"{len(made.cells):,} cells, {len(shards)} shards, {sum(NODES.values())} nodes"
    table = Table(title=size, box=None, title_justify="left")
    table.add_column(f"{nights} simulated nights")
    table.add_column("", justify="right")
    table.add_row("seconds to plan", f"{planned - started:.2f}")
    table.add_row("seconds to spread", f"{spread - planned:.2f}")
    table.add_row("hours of cells in all", f"{sum(seconds.values()) / 3600:.0f}")
    for row in _rows(past):
        table.add_row(*row)
    for night in past[:judged]:
        table.add_row(*_judged_row(schedule, night))
    Console(width=90).print(table)


if __name__ == "__main__":
    typer.run(main)
