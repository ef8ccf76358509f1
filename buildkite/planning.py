"""The plan of a pipeline: for the nodes of its lanes, wherever it is made.

Owns: standing in for those nodes, as the settings declare them. Must not know: shards, and the
machine that it runs on. What a node lacks of what was declared shows there, as INFRA.
"""

from __future__ import annotations

from buildkite.settings import Settings
from fixtures.cells.cell import Plan, Source
from fixtures.cells.planner import plan
from fixtures.cells.request import PlanRequest
from fixtures.cells.sweeps import Catalog


def plan_for_fleet(settings: Settings, pipeline: str, source: Source, catalog: Catalog) -> Plan:
    """The plan of the pipeline's sweep and tiers, of the vLLM that `source` is.

    Raises:
        ConfigError: the settings name what does not exist, or leave nothing to run.
        InfraError: a tier can't run on nodes like those that are declared.
    """
    kind = settings.pipeline(pipeline)
    request = PlanRequest(sweep=kind.sweep, tiers=kind.tiers)
    built = source.model_copy(update={"compiled": source.compiled or settings.fleet.compiled})
    machine = settings.fleet.as_machine()
    made = plan(request, built, machine, settings.catalog_of(pipeline, catalog))
    omissions = tuple(one.as_omission() for one in kind.left_out)
    return made.model_copy(update={"source": source, "omissions": (*made.omissions, *omissions)})
