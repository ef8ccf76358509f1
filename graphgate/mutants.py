"""The verb `mutants`: plants every regression, and tells which ones the gates saw."""

from __future__ import annotations

import json as json_text
from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fixtures.cells.axes import Tier
from fixtures.cells.machine import probe_machine, usable_gpus
from fixtures.cells.mutants import Mutant, MutantPlan, load_mutants, plan_mutants
from fixtures.cells.request import PlanRequest
from fixtures.cells.sweeps import load_catalog
from fixtures.errors import ConfigError
from fixtures.run.runner import run_plan
from fixtures.source.environment import child_environment
from fixtures.source.resolve import resolve
from gates.evidence import judge_evidence, read_evidence
from gates.mutants import MutantResult, judge_mutants
from gates.policy import read_policy
from gates.verdict import ExitCode
from graphgate.live import Live
from graphgate.options import Jobs, Out, Vllm
from graphgate.zoo import as_text, run_zoo

_OUT = Path("out/mutants")


def mutants(
    *,
    tier: Annotated[str, typer.Option("--tier", help="The tier whose mutants to plant.")] = (
        Tier.CONTRACT.value
    ),
    vllm: Vllm = None,
    zoo: Annotated[
        bool, typer.Option("--zoo", help="The planted crashes of triage, in place of a tier's.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    out: Out = _OUT,
    jobs: Jobs = None,
) -> None:
    """Plant each mutant and expect it killed with its class; exit code 0 if all are, else 10."""
    if zoo:
        raise typer.Exit(_zoo(out, as_json, jobs))
    live = Live()
    made = _planned(tier, vllm, live)
    results = run_mutants(made, out, live, jobs)
    if as_json:
        typer.echo(json_text.dumps([result.plain() for result in results], indent=2))
    else:
        _show(results, made)
    killed = all(result.killed for result in results)
    raise typer.Exit(ExitCode.ALLOW if killed else ExitCode.FAIL)


def _zoo(out: Path, as_json: bool, jobs: int | None) -> ExitCode:
    """Runs the faults of the zoo that this machine can run, and prints planted against named."""
    report = run_zoo(out, gpus=len(usable_gpus(probe_machine())), jobs=jobs)
    if as_json:
        typer.echo(json_text.dumps([entry.plain() for entry in report.named], indent=2))
    else:
        typer.echo(as_text(report))
    return ExitCode.ALLOW if report.ok else ExitCode.FAIL


def _planned(tier: str, vllm: str | None, live: Live) -> MutantPlan:
    """The plan; the cheap checks come before anything is fetched."""
    asked = PlanRequest.parse(tier=tier).tiers
    if asked is None or len(asked) != 1:
        raise ConfigError(
            f"{tier!r} is not one tier", source="--tier", remedy=f"name one: {', '.join(Tier)}"
        )
    known, catalog = load_mutants(), load_catalog()
    return plan_mutants(known, asked[0], resolve(vllm or None, live.step), probe_machine(), catalog)


def run_mutants(
    made: MutantPlan, out: Path, live: Live, jobs: int | None = None
) -> tuple[MutantResult, ...]:
    """Runs the plan's cells into `out` and judges every mutant by them."""
    environment = child_environment(made.plan.source, live.step)
    live.follow(run_plan(made.plan, out, environment, jobs=jobs), len(made.plan.cells))
    policy = read_policy()
    # No known issues: what they excuse would make a mutant of that kind invisible.
    judged = judge_evidence(read_evidence([out], policy), policy, (), date.today())
    return judge_mutants(made.planted, {str(v.key): v for v in judged.verdicts})


def _show(results: tuple[MutantResult, ...], made: MutantPlan) -> None:
    """A line per mutant, what was seen of it beneath, and the score."""
    console = Console(highlight=False)
    console.print(f"Mutants on vLLM {made.plan.source.version}\n")
    expected = {mutant.name: mutant for mutant in made.planted}
    for result in results:
        word = "[green]killed  [/]" if result.killed else "[red]SURVIVED[/]"
        _print_row(console, word, expected[result.name], result.why)
    for mutant in made.left_out:
        reason = mutant.reason or f"it is for vLLM {mutant.versions}"
        _print_row(console, "left out", mutant, reason)
    killed = sum(result.killed for result in results)
    console.print(f"\n{killed} of {len(results)} mutants killed, each by its own gate and class")


def _print_row(console: Console, word: str, mutant: Mutant, why: str) -> None:
    console.print(f"  {word} {mutant.seen_by:<13} [bold]{mutant.name}[/] ({mutant.origin})")
    console.print(Padding(Text(why, style="dim"), (0, 0, 0, 4)))
