"""The verbs of a pipeline's steps: run a shard, save what a dead one left, judge them all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from buildkite.agent import Agent, Job
from buildkite.collect import collect, settled
from buildkite.delivery import PARCELS, SUFFIX, Delivery
from buildkite.exchange import fetch
from buildkite.settings import Lane
from buildkite.shards import Schedule, Shard
from fixtures.cells.axes import Tier
from fixtures.cells.cell import Plan, Source
from fixtures.cells.machine import probe_machine, usable_gpus
from fixtures.errors import GraphGateError, InfraError
from fixtures.run.interrupt import terminate_as_interrupt
from fixtures.run.outfolder import PLAN_FILE
from fixtures.run.runner import node_failed, run_plan
from fixtures.source.built import build_of
from fixtures.source.environment import plan_environment
from gates.evidence import LEDGER_FILE, Evidence
from gates.verdict import Verdicts
from graphgate.judge import VERDICTS_FILE, judge_into
from graphgate.live import Live
from graphgate.options import Out, same_source
from graphgate.report import ANNOTATION_FILE, HTML_FILE, JUNIT_FILE, report_into
from reports.files import write_whole
from reports.history.store import History
from reports.markdown import plain

_INTERRUPTED = 130
_OUT = Path("graphgate-out")
LaneName = Annotated[str, typer.Argument(metavar="LANE", help="A lane of the settings.")]


def shard(lane: LaneName, out: Out = _OUT) -> None:
    """Run this job's shard of the build's plan; exit code 20 when the node failed, else 0."""
    agent = Agent()
    schedule, job = fetch(agent, os.environ), Job.of(os.environ)
    mine = schedule.shard(lane, job.parallel)
    if mine is None:
        typer.echo("nothing is planned for this shard")
        return
    with _node_trusted(agent, schedule, mine, job):
        _require_gpus(schedule.settings.lanes[lane])
        todo = _todo(schedule, mine, job, agent)
        if not todo.cells:
            typer.echo("an earlier job of this shard has delivered every cell")
            return
        delivery = _delivery(agent, schedule, mine, job, out)
        _run(todo, schedule.settings.lanes[lane], delivery, _folder(out, mine, job))


def salvage(lane: LaneName, out: Out = _OUT) -> None:
    """Send what a shard that died has left in this job."""
    agent = Agent()
    schedule, job = fetch(agent, os.environ), Job.of(os.environ)
    mine = schedule.shard(lane, job.parallel)
    if mine is not None:
        _delivery(agent, schedule, mine, job, out).rest()


def judge(out: Out = _OUT) -> None:
    """Judge the evidence of all shards, annotate the build; the exit code is the decision's."""
    agent = Agent()
    schedule = fetch(agent, os.environ)
    if schedule.nothing is not None:
        typer.echo(f"nothing to judge: {schedule.nothing}")
        return
    home = out / "judge"
    dirs, notes = _collected(schedule, agent, home)
    history = Path(schedule.settings.history) if schedule.settings.history else None
    judged = judge_into(dirs, home, history=history)
    verdicts = judged.model_copy(update={"notes": (*judged.notes, *notes)})
    write_whole(home / VERDICTS_FILE, verdicts.to_json().encode())
    evidence = report_into(verdicts, dirs, home)
    _publish(verdicts, evidence, home, agent, schedule)
    if history is not None:
        with _only_told():
            _remember(history, verdicts, evidence)
    raise typer.Exit(int(verdicts.decision.exit_code))


@contextmanager
def _node_trusted(agent: Agent, schedule: Schedule, mine: Shard, job: Job) -> Iterator[None]:
    """Where the node fails the build is told why, and its agent is paused.

    So the retry goes to another one, and cells of which no evidence came are explained.
    """
    try:
        yield
    except InfraError as error:
        name = f"{schedule.settings.name}-{mine.name}"
        with _only_told():
            head = f"### GraphGate: INFRA in {mine.name}, try {job.retry}"
            text = f"{head}\n\n{plain(str(error), 2000)}\n"
            agent.annotate(text, style="warning", context=name)
        minutes = schedule.settings.pipeline(schedule.pipeline).pause_minutes
        if minutes:
            with _only_told():
                agent.pause(minutes, f"GraphGate: the node failed in job {job.id}")
        raise


def _require_gpus(lane: Lane) -> None:
    if lane.gpus and len(found := usable_gpus(probe_machine())) < lane.gpus:
        raise InfraError(f"this node shows {len(found)} GPUs, and its lane needs {lane.gpus}")


def _todo(schedule: Schedule, mine: Shard, job: Job, agent: Agent) -> Plan:
    """What is left to run: a retry repeats what a node failed at, and no verdict."""
    done: set[str] = set()
    if job.retry:
        with TemporaryDirectory() as scratch:
            downloads, laid_out = Path(scratch, "downloads"), Path(scratch, "shards")
            query = f"{schedule.settings.name}/{PARCELS}/{mine.name}/**/*{SUFFIX}"
            agent.download(query, downloads)
            done = settled(schedule, downloads, laid_out)
    return schedule.part(key for key in mine.cells if str(key) not in done)


def _run(todo: Plan, lane: Lane, delivery: Delivery, folder: Path) -> None:
    live = Live()
    here = todo.model_copy(update={"source": _source(todo, live)})
    environment = plan_environment(here, live.step)
    try:
        with terminate_as_interrupt():
            events = delivery.along(run_plan(here, folder, environment, jobs=lane.jobs))
            runs = live.follow(events, len(here.cells))
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        delivery.rest()
    if node_failed(runs):
        raise InfraError("the node failed at a cell more often than the budget allows")


def _source(todo: Plan, live: Live) -> Source:
    """The planned vLLM as this node has it: compiled, where a cell starts an engine."""
    here = same_source(todo.source, live.step)
    engines = (c for c in todo.cells if c.key.tier is not Tier.CONTRACT and c.requirements.vllm)
    return build_of(here) if any(engines) else here


def _delivery(agent: Agent, schedule: Schedule, mine: Shard, job: Job, out: Path) -> Delivery:
    return Delivery(agent, schedule.settings.name, mine, job, _folder(out, mine, job))


def _folder(out: Path, mine: Shard, job: Job) -> Path:
    """Of this job alone: an agent may use one working directory for many."""
    return out / mine.name / job.id


def _collected(schedule: Schedule, agent: Agent, home: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Folders of evidence; what could not be fetched is missing, and the reader is told why."""
    troubles = []
    query = f"{schedule.settings.name}/{PARCELS}/**/*{SUFFIX}"
    with TemporaryDirectory() as downloads:
        try:
            agent.download(query, Path(downloads))
        except InfraError as error:
            troubles.append(f"not all evidence could be fetched: {error}")
        found = collect(schedule, Path(downloads), home / "shards")
    return list(found.folders), (*troubles, *found.notes)


def _publish(
    verdicts: Verdicts, evidence: Evidence, home: Path, agent: Agent, schedule: Schedule
) -> None:
    """Store reports and one merged folder of evidence, and annotate; the decision stands anyway."""
    write_whole(home / PLAN_FILE, evidence.plan.to_json().encode())
    lines = (f"{run.to_json(indent=None)}\n" for run in evidence.runs.values())
    write_whole(home / LEDGER_FILE, "".join(lines).encode())
    style = "success" if verdicts.decision.allow else "error"
    text = (home / ANNOTATION_FILE).read_text(encoding="utf-8")
    with _only_told():
        agent.annotate(text, style=style, context=schedule.settings.name)
    names = (VERDICTS_FILE, PLAN_FILE, LEDGER_FILE, JUNIT_FILE, str(HTML_FILE), ANNOTATION_FILE)
    for name in names:
        with _only_told():
            agent.upload(home, name)
    with _only_told():
        code = str(int(verdicts.decision.exit_code))
        agent.set_meta_data(f"{schedule.settings.name}-decision", code)


def _remember(history: Path, verdicts: Verdicts, evidence: Evidence) -> None:
    with History(history) as past:
        past.add_night(verdicts, evidence.plan, evidence.runs, datetime.now(UTC))


@contextmanager
def _only_told() -> Iterator[None]:
    """A trouble that must not change an exit code is written to stderr."""
    try:
        yield
    except (GraphGateError, OSError) as error:
        sys.stderr.write(f"graphgate: {error}\n")
