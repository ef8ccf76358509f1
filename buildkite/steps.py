"""The steps of a build, from its schedule: shards by lane, then the judge.

Owns: the pipeline in Buildkite's own terms. Must not know: how shards were made, and YAML.

No text of a plan becomes shell: a shard's command names its lane, which the settings name, and
what it runs it reads from the schedule.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from buildkite.settings import Lane, Place, Retry, Settings
from buildkite.shards import Schedule
from buildkite.text import shown
from fixtures.cells.axes import Tier

Step = dict[str, Any]

DIGEST_VARIABLE = "GRAPHGATE_SCHEDULE"
"""SHA-256 of the schedule, in the environment of every step that reads it."""
COMMIT_VARIABLE = "GRAPHGATE_VLLM_COMMIT"
"""The commit of vLLM that was planned for, where it is one: what `setup` checks out."""

SELECTION, DRIFT = "graphgate-affected.json", "graphgate-drift.json"
"""What a pull request can affect, and its contract beside the merge base's; artefacts, too."""
OUT = "graphgate-out"
"""Folder of a shard's evidence, in the job's working directory."""

_COMMIT = re.compile(r"^commit:([0-9a-f]{40})$")


def pipeline_of(schedule: Schedule, digest: str) -> dict[str, Any]:
    """The pipeline that `buildkite-agent pipeline upload` adds to the build.

    Args:
        schedule: what is to be done.
        digest: of the schedule's file.
    """
    settings = schedule.settings
    lanes = [name for name in settings.lanes if schedule.of_lane(name)]
    kind = settings.pipeline(schedule.pipeline)
    pipeline: dict[str, Any] = {
        "env": _environment(schedule, digest),
        "steps": [
            *(_lane_step(schedule, name) for name in _cheapest_first(settings, lanes)),
            _judge_step(schedule, lanes),
        ],
    }
    return {**({"notify": list(kind.notify)} if kind.notify else {}), **pipeline}


def nothing_to_run(settings: Settings) -> dict[str, Any]:
    """The pipeline of a change that no cell can tell apart: one step, whose status is green."""
    step = {
        "label": "GraphGate: nothing to run",
        "key": f"{settings.name}-judge",
        "commands": ["true"],
        **_at(settings.judge, settings),
        **({"notify": list(settings.judge.notify)} if settings.judge.notify else {}),
    }
    return {"steps": [step]}


def bootstrap_of(settings: Settings) -> dict[str, Any]:
    """The static pipeline that is stored at Buildkite: it holds forks, plans, and uploads."""
    held: Step = {
        "block": "Run the code of a fork?",
        "key": f"{settings.name}-fork",
        "prompt": "Read the change first: its Python runs on the agents.",
        "blocked_state": "running",
        "if": "build.pull_request.repository.fork == true",
    }
    return {"steps": [held, *(_plan_step(settings, name) for name in settings.pipelines)]}


def plan_commands(settings: Settings, pipeline: str, *arguments: str) -> list[str]:
    """Setup and the planning of one pipeline.

    A nightly's vLLM is named by `$GRAPHGATE_VLLM`, a variable of the build. A pull request's is
    its checkout. Its plan is cut down to the cells that the change since the merge base can
    affect, by its files and by the drift of the capture contract.
    """
    graphgate = shlex.join(settings.graphgate)
    if pipeline != "pr" or settings.changed_tree is None:
        plan = [f'{graphgate} pipeline {pipeline} --vllm "$GRAPHGATE_VLLM"', *arguments]
        return [*settings.setup, " ".join(plan)]
    tree = settings.changed_tree
    vllm = f"--vllm {shlex.quote(tree.checkout)}"
    base = f"--base-variable {tree.base_variable} --remote {tree.remote}"
    found = f"--drift {DRIFT} --out {SELECTION}"
    plan = [f"{graphgate} pipeline pr {vllm} --selection {SELECTION}", *arguments]
    return [*settings.setup, f"{graphgate} affected {vllm} {base} {found}", " ".join(plan)]


def shard_commands(settings: Settings, lane: str) -> list[str]:
    """Setup, then the shard; where it dies, what it left is sent before the job ends."""
    verb = f"{shlex.join(settings.graphgate)} pipeline"
    run, salvage = (f"{verb} {name} {lane} --out {OUT}" for name in ("shard", "salvage"))
    return [*settings.setup, f"{run} || {{ code=$?; {salvage}; exit $code; }}"]


def judge_commands(settings: Settings) -> list[str]:
    """Setup, then the judge."""
    return [*settings.setup, f"{shlex.join(settings.graphgate)} pipeline judge --out {OUT}"]


def lane_key(settings: Settings, lane: str) -> str:
    """The key of a lane's step."""
    return f"{settings.name}-{lane}"


def _cheapest_first(settings: Settings, lanes: list[str]) -> list[str]:
    return sorted(lanes, key=lambda name: list(Tier).index(settings.lanes[name].tier))


def _environment(schedule: Schedule, digest: str) -> dict[str, str]:
    settings = schedule.settings
    commit = _COMMIT.match(schedule.plan.source.identity)
    return {
        **settings.env,
        DIGEST_VARIABLE: digest,
        **({COMMIT_VARIABLE: commit[1]} if commit else {}),
    }


def _plan_step(settings: Settings, pipeline: str) -> Step:
    # A pull request of this pipeline's repository, or a build that asks for the check by name.
    is_pr = 'build.pull_request.id != null || build.env("GRAPHGATE_PIPELINE") == "pr"'
    return {
        "label": f"GraphGate: plan {pipeline}",
        "key": f"{settings.name}-plan-{pipeline}",
        "if": is_pr if pipeline == "pr" else f"!({is_pr})",
        "commands": plan_commands(settings, pipeline, "--upload"),
        **_at(settings.plan, settings),
        **({"artifact_paths": [SELECTION, DRIFT]} if pipeline == "pr" else {}),
    }


def _lane_step(schedule: Schedule, name: str) -> Step:
    settings, lane = schedule.settings, schedule.settings.lanes[name]
    shards = schedule.of_lane(name)
    before = [] if lane.tier is Tier.CONTRACT else _contract_lanes(schedule)
    return {
        "label": f"GraphGate: {name} %N of %t",
        "key": lane_key(settings, name),
        **({"depends_on": before, "allow_dependency_failure": True} if before else {}),
        "commands": shard_commands(settings, name),
        "parallelism": len(shards),
        **_together(lane),
        **_at(lane, settings),
        "soft_fail": [{"exit_status": code} for code in settings.soft_fail] or False,
        # For what a killed job left; what was sent is gone from there.
        "artifact_paths": [f"{OUT}/**/*"],
    }


def _contract_lanes(schedule: Schedule) -> list[str]:
    lanes = schedule.settings.lanes
    return [
        lane_key(schedule.settings, name)
        for name, lane in lanes.items()
        if lane.tier is Tier.CONTRACT and schedule.of_lane(name)
    ]


def _together(lane: Lane) -> Step:
    if lane.concurrency_group is None:
        return {}
    return {
        "concurrency_group": lane.concurrency_group,
        "concurrency": lane.concurrency,
        "concurrency_method": "eager",
    }


def _judge_step(schedule: Schedule, lanes: list[str]) -> Step:
    settings = schedule.settings
    tested = shown(schedule.plan.source.version, 60)
    return {
        "label": f"GraphGate: decision on vLLM {tested}",
        "key": f"{settings.name}-judge",
        "depends_on": [lane_key(settings, name) for name in lanes],
        "allow_dependency_failure": True,
        "commands": judge_commands(settings),
        **_at(settings.judge, settings),
        **({"notify": list(settings.judge.notify)} if settings.judge.notify else {}),
    }


def _at(place: Place, settings: Settings) -> Step:
    """Where a step runs, how long it may take, and which ends are tried again."""
    rules = settings.retry if place.retry is None else place.retry
    return {
        "agents": {"queue": place.queue, **place.agents},
        **({"plugins": list(place.plugins)} if place.plugins else {}),
        **({"env": dict(place.env)} if place.env else {}),
        "timeout_in_minutes": place.timeout_minutes,
        "retry": {"automatic": [_rule(rule) for rule in rules], "manual": {"allowed": True}},
    }


def _rule(rule: Retry) -> dict[str, Any]:
    return rule.model_dump(exclude_none=True)
