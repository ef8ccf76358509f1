"""The command line's entry: verbs, and how an error becomes a message and an exit code."""

from __future__ import annotations

import sys
import traceback

import typer

from fixtures.errors import ConfigError, GraphGateError
from gates.verdict import ExitCode
from graphgate.affected import affected
from graphgate.bisect import bisect
from graphgate.bundle import bundle
from graphgate.demo import demo
from graphgate.doctor import doctor
from graphgate.drift import drift
from graphgate.history import app as history
from graphgate.judge import judge
from graphgate.mutants import mutants
from graphgate.pipeline import app as pipeline
from graphgate.plan import plan
from graphgate.power import power
from graphgate.pr import pr
from graphgate.reference import app as reference
from graphgate.report import report
from graphgate.run import gate, run
from graphgate.triage import triage
from graphgate.watch import watch

_USAGE_ERROR = 2
_UNEXPECTED = 1

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Does capturing this model into CUDA graphs still compute what it computes un-captured?",
)
for verb in (
    gate,
    plan,
    run,
    judge,
    report,
    drift,
    mutants,
    triage,
    watch,
    demo,
    power,
    bundle,
    doctor,
):
    app.command()(verb)

for verb_of_ci in (affected, pr, bisect):
    app.command()(verb_of_ci)

app.add_typer(history, name="history")
app.add_typer(reference, name="reference")
app.add_typer(pipeline, name="pipeline")


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    sys.exit(exit_code())


def exit_code() -> int:
    """Runs the command line of `sys.argv`; 0 to 6 are never returned for an error (pytest's)."""
    try:
        app()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else _UNEXPECTED
        return ExitCode.CONFIG if code == _USAGE_ERROR else code
    except GraphGateError as error:
        sys.stderr.write(f"graphgate: {error}\n")
        return ExitCode.CONFIG if isinstance(error, ConfigError) else ExitCode.INFRA
    except Exception:
        traceback.print_exc()
        return _UNEXPECTED
    return ExitCode.ALLOW
