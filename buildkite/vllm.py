"""The same steps in the terms of vLLM's own pipeline generator.

Owns: that form. Its steps know no artifact_paths, no allow_dependency_failure and no notify: so
commands send their own evidence, and shards fail softly, which lets the judge run after them.
The group is static: a build makes its schedule in the first step, and a shard for which
nothing is planned ends at once.
"""

from __future__ import annotations

from typing import Any

from buildkite.settings import Lane, Place, Retry, Settings
from buildkite.steps import (
    Step,
    judge_commands,
    lane_key,
    plan_commands,
    shard_commands,
)
from fixtures.cells.axes import Tier
from fixtures.cells.models import ModelSpec


def vllm_group(settings: Settings, pipeline: str, models: list[ModelSpec]) -> dict[str, Any]:
    """The group of one pipeline, for a file of vLLM's test areas.

    Args:
        settings: queues and budgets; `device` names vLLM's machines.
        pipeline: whose tiers.
        models: whose files are added to the dependencies.
    """
    kind = settings.pipeline(pipeline)
    paths = dependencies(settings, models)
    first = f"{settings.name}-plan-{pipeline}"
    lanes = {name: lane for name, lane in settings.lanes.items() if lane.tier in kind.tiers}
    plan: Step = {
        "label": f"GraphGate: plan {pipeline}",
        "key": first,
        **_at(settings.plan, settings, paths),
        "commands": plan_commands(settings, pipeline, "--upload --schedule-only"),
    }
    judge: Step = {
        "label": "GraphGate: decision",
        "key": f"{settings.name}-judge",
        "depends_on": [lane_key(settings, name) for name in lanes],
        **_at(settings.judge, settings, paths),
        "commands": judge_commands(settings),
    }
    shards = [_lane_step(settings, name, first, paths, lanes) for name in lanes]
    return {"group": "GraphGate", "steps": [plan, *shards, judge]}


def dependencies(settings: Settings, models: list[ModelSpec]) -> list[str]:
    """Paths of vLLM's tree, sorted: the settings' own, and the files that the models name."""
    named = {
        place.partition(":")[0].replace(".", "/") + ".py"
        for contract in (model.contract for model in models)
        if contract is not None
        for place in (
            *contract.classes,
            *(builder for backend in contract.backends for builder in backend.builders),
        )
    }
    covered = tuple(path for path in settings.source_file_dependencies if path.endswith("/"))
    own = {path for path in named if not path.startswith(covered)}
    return sorted(own | set(settings.source_file_dependencies))


def _lane_step(
    settings: Settings, name: str, first: str, paths: list[str], lanes: dict[str, Lane]
) -> Step:
    lane = lanes[name]
    contract = [
        lane_key(settings, other)
        for other, known in lanes.items()
        if known.tier is Tier.CONTRACT and lane.tier is not Tier.CONTRACT
    ]
    return {
        "label": f"GraphGate: {name} %N",
        "key": lane_key(settings, name),
        "depends_on": [first, *contract],
        **_at(lane, settings, paths),
        **({"num_devices": lane.gpus} if lane.gpus else {}),
        "parallelism": lane.most_shards,
        "soft_fail": True,
        **(
            {"concurrency_group": lane.concurrency_group, "concurrency": lane.concurrency}
            if lane.concurrency_group
            else {}
        ),
        "commands": shard_commands(settings, name),
    }


def _at(place: Place, settings: Settings, paths: list[str]) -> Step:
    rules: tuple[Retry, ...] = settings.retry if place.retry is None else place.retry
    return {
        **({"device": place.device} if place.device else {}),
        **({"env": dict(place.env)} if place.env else {}),
        "timeout_in_minutes": place.timeout_minutes,
        "source_file_dependencies": paths,
        "retry": {"automatic": [rule.model_dump(exclude_none=True) for rule in rules]},
    }
