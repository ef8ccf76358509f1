"""The verb `doctor`: what this machine has, what is missing, and what that costs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fixtures.doctor.findings import State
from fixtures.doctor.judge import (
    Diagnosis,
    DoctorReport,
    Outcome,
    TierRow,
    diagnose,
    load_checks,
)
from fixtures.doctor.look import look
from fixtures.doctor.probe import PlantedFault, Probe
from fixtures.errors import GraphGateError
from fixtures.run.environment import ChildEnvironment
from fixtures.source.installed import chosen_python
from gates.verdict import ExitCode
from graphgate.live import Live
from graphgate.zoo import run_zoo

_FAULT = "illegal-write"
_STYLES = {State.OK: "green", State.MISSING: "yellow", State.BROKEN: "red", State.UNCHECKED: "dim"}
_OUT = Path("out")


def doctor(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the rows and what was looked at as JSON.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", help="Where runs are going to write.")] = _OUT,
    probe: Annotated[
        Path | None, typer.Option("--probe", help="Judge a probe that --json wrote elsewhere.")
    ] = None,
) -> None:
    """Look at this machine; exit code 20 where its GPU can't be used, else 0.

    Plants one fault in a child where there is a GPU, to see whether crashes can be named.
    """
    live = Live()
    checks = load_checks()
    if probe:
        seen = DoctorReport.read_json(probe).probe
    else:
        seen = with_planted(look(out, live.step), live)
    made = diagnose(seen, checks)
    if as_json:
        typer.echo(DoctorReport(**dict(made), probe=seen).to_json())
    else:
        show(made, Console(highlight=False))
    unusable = made.outcome is Outcome.GPU_UNUSABLE
    raise typer.Exit(ExitCode.INFRA if unusable else ExitCode.ALLOW)


def with_planted(probe: Probe, live: Live) -> Probe:
    """The probe with what a planted fault came to, where there is a GPU to plant it on."""
    if not probe.machine.gpus:
        return probe
    if probe.python.cuda_error or not probe.python.cuda_devices:
        return probe.model_copy(update={"planted_not": "torch can't use the GPU"})
    try:
        with live.step("planting a fault in a child"), tempfile.TemporaryDirectory() as folder:
            planted = _plant(Path(folder, "out"))
    except GraphGateError as error:
        return probe.model_copy(update={"planted_not": str(error)})
    return probe.model_copy(update={"planted": planted})


def _plant(out: Path) -> PlantedFault:
    """A wild store, run as a cell of the zoo."""
    environment = ChildEnvironment(python=chosen_python())
    report = run_zoo(out, gpus=1, environment=environment, only=[_FAULT], controls=False)
    if not report.named:
        why = "; ".join(report.left_out.values()) or "nothing was run"
        return PlantedFault(named=False, status="not run", why=why)
    named = report.named[0]
    return PlantedFault(
        named=named.killed,
        status=named.status,
        title=named.title,
        kernel=named.kernel,
        sources=named.sources,
        why=named.why,
    )


def show(made: Diagnosis, console: Console) -> None:
    """A row per check with what its lack costs; those not looked at in one; then the tiers."""
    width = max(len(row.name) for row in made.rows)
    unchecked = [row for row in made.rows if row.state is State.UNCHECKED]
    for row in (row for row in made.rows if row not in unchecked):
        line = Text(f"{row.state:<8}", style=_STYLES[row.state])
        line.append(f"{row.name:<{width}}  ", style="bold").append(row.found, style="default")
        console.print(line, soft_wrap=True)
        if row.costs:
            told = Text(f"costs: {row.costs}\nremedy: {row.remedy}", style="dim")
            console.print(Padding(told, (0, 0, 0, 10 + width)))
    for found in dict.fromkeys(row.found for row in unchecked):
        names = ", ".join(row.name for row in unchecked if row.found == found)
        console.print(Text(f"not looked at ({found}): {names}", style="dim"), soft_wrap=True)
    console.print()
    for tier in made.tiers:
        console.print(Text(_tier_line(tier)), soft_wrap=True)


def _tier_line(tier: TierRow) -> str:
    if not tier.lacks:
        return f"{tier.tier:<9} can run here"
    return f"{tier.tier:<9} can't run here: {', '.join(tier.lacks)}"
