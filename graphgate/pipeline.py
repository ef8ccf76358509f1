"""The verb `pipeline`: what Buildkite runs. Here: the pipelines; in shard.py: their steps."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from buildkite.agent import Agent
from buildkite.costs import Costs, measured_costs
from buildkite.exchange import publish
from buildkite.planning import plan_for_fleet
from buildkite.selection import Selection, selected
from buildkite.settings import DEFAULT_SETTINGS, Settings, read_settings
from buildkite.shards import Schedule, digest_of, shards_of
from buildkite.steps import bootstrap_of, nothing_to_run, pipeline_of
from buildkite.text import shown, to_yaml
from buildkite.vllm import vllm_group
from fixtures.cells.sweeps import load_catalog
from fixtures.source.resolve import resolve
from gates.drift import Drift
from graphgate.live import Live
from graphgate.options import Vllm
from graphgate.shard import judge, salvage, shard
from reports.files import write_whole
from reports.history.store import History
from reports.markdown import plain

app = typer.Typer(no_args_is_help=True, help="Buildkite pipelines, and what their steps run.")
app.command()(shard)
app.command()(salvage)
app.command()(judge)

_STEPS_FILE = Path("graphgate-steps.yml")


class Format(StrEnum):
    """Whose terms the steps are printed in."""

    BUILDKITE = "buildkite"
    VLLM = "vllm"


SettingsFile = Annotated[
    Path, typer.Option("--settings", help="Queues, images, budgets.", show_default="the shipped")
]
SelectionFile = Annotated[
    Path | None, typer.Option("--selection", help="Run only these cells (`graphgate affected`).")
]
DriftFile = Annotated[
    Path | None,
    typer.Option(
        "--drift",
        help="What changed in the contract: a drift.json, in place of the selection's own.",
    ),
]
HistoryFile = Annotated[
    Path | None, typer.Option("--history", help="What cells cost; by default the settings' own.")
]
Upload = Annotated[
    bool, typer.Option("--upload", help="Store schedule and steps in this build; print nothing.")
]
ScheduleOnly = Annotated[
    bool, typer.Option("--schedule-only", help="With --upload: the steps are there already.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="Whose terms to print them in.")]


@app.command()
def bootstrap(settings: SettingsFile = DEFAULT_SETTINGS) -> None:
    """Print the static pipeline to store at Buildkite: it plans, and uploads the rest."""
    sys.stdout.write(to_yaml(bootstrap_of(read_settings(settings))))


def _add_generator(pipeline: str, told: str) -> None:
    """The verb of a generated pipeline: all take the same options."""

    @app.command(pipeline, help=told)
    def generate(
        *,
        settings: SettingsFile = DEFAULT_SETTINGS,
        vllm: Vllm = None,
        selection: SelectionFile = None,
        drift: DriftFile = None,
        history: HistoryFile = None,
        format_: FormatOption = Format.BUILDKITE,
        upload: Upload = False,
        schedule_only: ScheduleOnly = False,
    ) -> None:
        read = read_settings(settings)
        if format_ is Format.VLLM:
            _print_for_vllm(read, pipeline)
            return
        made = _schedule(read, pipeline, vllm, selection, drift, history)
        _hand_on(made, upload=upload, schedule_only=schedule_only)


_add_generator("nightly", "The nightly's steps, from a plan of its sweep.")
_add_generator(
    "pr", "A pull request's steps, from a plan of its sweep and a selection of its cells."
)


def _print_for_vllm(settings: Settings, pipeline: str) -> None:
    models = list(load_catalog().models.values())
    sys.stdout.write(to_yaml(vllm_group(settings, pipeline, models)))


def _schedule(
    settings: Settings,
    pipeline: str,
    vllm: str | None,
    selection_file: Path | None,
    drift: Path | None,
    history: Path | None,
) -> Schedule:
    source = resolve(vllm or None, Live().step)
    made = plan_for_fleet(settings, pipeline, source, load_catalog())
    changed = Drift.read_json(drift) if drift is not None else None
    nothing = None
    if selection_file is not None:
        selection = Selection.read_json(selection_file)
        made = selected(made, selection)
        nothing = None if made.cells else selection.why
        changed = changed or selection.drift
    return Schedule(
        pipeline=pipeline,
        settings=settings,
        plan=made,
        shards=shards_of(made, settings, _costs(settings, history)),
        drift=changed,
        nothing=nothing,
    )


def _costs(settings: Settings, history: Path | None) -> Costs:
    """Measured seconds; the first night has none."""
    path = history or (Path(settings.history) if settings.history else None)
    if path is None or not path.exists():
        return {}
    with History(path) as past:
        return measured_costs(past)


def _hand_on(schedule: Schedule, *, upload: bool, schedule_only: bool) -> None:
    """Print the steps, or store schedule and steps in the build that this process is a step of."""
    if not upload:
        data = schedule.to_json(indent=None).encode()
        sys.stdout.write(to_yaml(_steps(schedule, digest_of(data))))
        return
    agent = Agent()
    digest = publish(schedule, agent)
    if schedule.nothing is not None:
        text = f"### GraphGate: nothing to run\n\n{plain(schedule.nothing, 2000)}\n"
        agent.annotate(text, style="success", context=schedule.settings.name)
    if not schedule_only:
        write_whole(_STEPS_FILE, to_yaml(_steps(schedule, digest)).encode())
        agent.upload_pipeline(_STEPS_FILE)
    cells = f"{len(schedule.plan.cells)} cells in {len(schedule.shards)} shards"
    typer.echo(f"{cells} for vLLM {shown(schedule.plan.source.version)}")


def _steps(schedule: Schedule, digest: str) -> dict[str, object]:
    if schedule.nothing is not None:
        return nothing_to_run(schedule.settings)
    return pipeline_of(schedule, digest)
