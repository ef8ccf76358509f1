"""The verb `triage`: a log or GPU core read by hand."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer

from fixtures.evidence.crash import CrashReport
from fixtures.triage.reader import read_files


def triage(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Logs and GPU cores of one failure.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
) -> None:
    """Read logs and GPU cores of one failure by hand, and print what it was."""
    facts = facts_of(read_files(files))
    print(json_text.dumps(facts, indent=2) if json else as_text(facts))


def facts_of(report: CrashReport) -> dict[str, Any]:
    """The facts that the verb prints; `location` is `file:line` or None."""
    frame = report.frame
    on_device = any(source in ("core", "driver", "cuda-gdb") for source in report.sources)
    located = frame is not None and frame.file is not None
    return {
        "title": report.title,
        "kind": report.kind.value,
        "kernel": frame.function if frame and on_device else None,
        "raw_kernel": (frame.raw or frame.function) if frame and on_device else None,
        "function": frame.function if frame and not on_device else None,
        "exception": report.exception,
        "pc": report.pc,
        "location": f"{frame.file}:{frame.line}" if frame and located else None,
        "sources": list(report.sources),
        "secondary": list(report.secondary),
        "excerpt": report.excerpt,
    }


def as_text(facts: dict[str, Any]) -> str:
    """The facts as aligned lines; what is not known is left out."""
    shown = ("title", "kind", "kernel", "function", "exception", "pc", "location")
    lines = [f"{name:<10} {facts[name]}" for name in shown if facts[name] is not None]
    lines.append(f"{'sources':<10} {', '.join(facts['sources']) or 'none'}")
    lines += [f"{'also':<10} {line}" for line in facts["secondary"]]
    return "\n".join(lines)
