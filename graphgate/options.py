"""Options that several verbs share, and what they all do with them first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fixtures.cells.cell import Omission, Plan, Source
from fixtures.cells.imported.reading import is_path, joined, read_sweep
from fixtures.cells.machine import probe_machine
from fixtures.cells.planner import plan
from fixtures.cells.request import PlanRequest
from fixtures.cells.settings import with_settings
from fixtures.cells.sweeps import Catalog, load_catalog
from fixtures.errors import ConfigError
from fixtures.source.progress import Progress
from fixtures.source.resolve import NO_VLLM, resolve
from graphgate.dryrun import ANY_MACHINE

Model = Annotated[str, typer.Option("--model", help="Models, separated by commas, or all.")]
TierOption = Annotated[
    str, typer.Option("--tier", help="Tiers (contract, canary, score), or auto: what can run here.")
]
Vllm = Annotated[
    str | None,
    typer.Option(
        "--vllm",
        help="A release (0.26.0), a checkout's folder, or installed. "
        "By default the installed one, else the pinned release.",
    ),
]
Modes = Annotated[
    str | None, typer.Option("--modes", help="Graph modes, separated by commas; default all.")
]
BreakableOption = Annotated[
    str | None, typer.Option("--breakable", help="on, off, or both separated by a comma.")
]
SweepOption = Annotated[
    str,
    typer.Option(
        "--sweep",
        help="A file of suites/sweeps/, by name; or the path of an accuracy configuration of "
        "vLLM (gsm8k or lm-eval-harness YAML, models-*.txt).",
    ),
]
ShardOption = Annotated[
    str | None, typer.Option("--shard", help="Part i of n, written i/n: only those cells.")
]
SettingsOption = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        help="A YAML file that says where checkpoints, questions and servers are: "
        "docs/score-tier.md.",
    ),
]
Out = Annotated[Path, typer.Option("--out", help="The folder for evidence and reports.")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Cells at a time; default one per CPU.")
]


def planned(
    progress: Progress,
    *,
    vllm: str | None,
    model: str,
    tier: str,
    modes: str | None,
    breakable: str | None,
    sweep: str,
    shard: str | None,
    settings: Path | None = None,
    dry_run: bool = False,
) -> Plan:
    """The plan that the options ask for. The cheap checks come before anything is fetched.

    Raises:
        ConfigError: an option names what does not exist.
        InfraError: a tier that was named can't run here.
    """
    catalog, name, remarks = _swept(sweep)
    if settings is not None:
        catalog = with_settings(catalog, settings)
    request = PlanRequest.parse(
        model=model, tier=tier, modes=modes, breakable=breakable, sweep=name, shard=shard
    )
    catalog.sweep(request.sweep)
    for name in request.models or ():
        catalog.model(name)
    source = NO_VLLM if _needs_none(request, catalog, vllm) else resolve(vllm or None, progress)
    if dry_run:
        as_if = source.model_copy(update={"compiled": True})
        made = plan(request, as_if, ANY_MACHINE, catalog).model_copy(update={"source": source})
    else:
        made = plan(request, source, probe_machine(), catalog)
    return made.model_copy(update={"sweep": sweep, "omissions": (*made.omissions, *remarks)})


def _swept(sweep: str) -> tuple[Catalog, str, tuple[Omission, ...]]:
    """The catalogue with the sweep in it, the sweep's name, and what an imported one lost.

    Raises:
        ConfigError: `sweep` is a path, and what is there is no accuracy configuration.
    """
    catalog = load_catalog()
    if not is_path(sweep):
        return catalog, sweep, ()
    found = read_sweep(Path(sweep), catalog)
    return joined(catalog, found), found.sweep.name, found.remarks


def _needs_none(request: PlanRequest, catalog: Catalog, vllm: str | None) -> bool:
    """Whether no vLLM has to be there: none was named, and none of the models runs one."""
    names = request.models or ()
    return not vllm and bool(names) and not any(catalog.model(name).needs_vllm for name in names)


def same_source(planned_source: Source, progress: Progress) -> Source:
    """The planned vLLM as this machine has it: it may lie elsewhere, but must be the same.

    Raises:
        ConfigError: what the plan's request names here is another vLLM.
    """
    here = resolve(planned_source.request, progress)
    if here.identity != planned_source.identity:
        raise ConfigError(
            f"the plan is for {planned_source.identity}, but here that is {here.identity}",
            source="--plan",
            key="source.identity",
            remedy="plan again, or put the planned tree in place",
        )
    return here
