"""The verbs `run` and `gate`: cells are run; `gate` goes on to verdicts and reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fixtures.cells.cell import Plan
from fixtures.evidence.cellrun import CellRun
from fixtures.run.runner import node_failed, run_plan
from fixtures.source.environment import plan_environment
from gates.drift import Drift
from gates.evidence import DRIFT_FILE
from gates.verdict import ExitCode
from graphgate.drift import Base, base_record, record_of
from graphgate.dryrun import DryRun, show_arguments
from graphgate.judge import judge_into
from graphgate.live import Live
from graphgate.options import (
    BreakableOption,
    Jobs,
    Model,
    Modes,
    Out,
    SettingsOption,
    ShardOption,
    SweepOption,
    TierOption,
    Vllm,
    planned,
    same_source,
)
from graphgate.report import report_into
from reports.files import write_whole

_INTERRUPTED = 130
_OUT = Path("out")


def run(
    plan: Annotated[Path, typer.Option("--plan", help="A plan.json that `plan --out` wrote.")],
    out: Out = _OUT,
    jobs: Jobs = None,
) -> None:
    """Run a plan's cells; nothing is judged. Exit code 20 when the node failed, else 0."""
    live = Live()
    read = Plan.read_json(plan)
    here = read.model_copy(update={"source": same_source(read.source, live.step)})
    with _readable_when_interrupted(out):
        runs = _run(here, out, live, jobs)
    raise typer.Exit(ExitCode.INFRA if node_failed(runs) else ExitCode.ALLOW)


def gate(
    *,
    model: Model = "all",
    tier: TierOption = "auto",
    vllm: Vllm = None,
    modes: Modes = None,
    breakable: BreakableOption = None,
    sweep: SweepOption = "pr",
    shard: ShardOption = None,
    settings: SettingsOption = None,
    dry_run: DryRun = False,
    base: Base = None,
    out: Out = _OUT,
    jobs: Jobs = None,
) -> None:
    """Plan, run, judge and report in a row; the exit code is the decision's."""
    live = Live()
    made = planned(
        live.step,
        vllm=vllm,
        model=model,
        tier=tier,
        modes=modes,
        breakable=breakable,
        sweep=sweep,
        shard=shard,
        settings=settings,
        dry_run=dry_run,
    )
    if dry_run:
        show_arguments(made)
        return
    with _readable_when_interrupted(out):
        _run(made, out, live, jobs)
        if base is not None:
            _record_drift(base, made, out, live)
    verdicts = judge_into([out], out)
    report_into(verdicts, [out], out)
    raise typer.Exit(int(verdicts.decision.exit_code))


def _run(plan: Plan, out: Path, live: Live, jobs: int | None) -> list[CellRun]:
    environment = plan_environment(plan, live.step)
    return live.follow(run_plan(plan, out, environment, jobs=jobs), len(plan.cells))


def _record_drift(base: str, plan: Plan, out: Path, live: Live) -> None:
    """Leaves drift.json beside the evidence: the contracts of the base and of what is tested."""
    drift = Drift(base=base_record(base, live), new=record_of(plan.source, live))
    write_whole(out / DRIFT_FILE, drift.to_json().encode())


@contextmanager
def _readable_when_interrupted(out: Path) -> Iterator[None]:
    """Ends with 130 on Ctrl-C, and says where the evidence of the finished cells lies."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(
            f"interrupted; the finished cells are in {out} (`graphgate judge {out}`)", err=True
        )
        raise typer.Exit(_INTERRUPTED) from None
