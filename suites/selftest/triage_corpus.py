"""The corpus of failures: what each log or core is expected to be called."""

from __future__ import annotations

from pathlib import Path

from fixtures.evidence.crash import CrashReport, Frame
from fixtures.evidence.exits import Exit
from fixtures.schema import Record
from fixtures.triage.demangle import short_name
from fixtures.triage.reader import read_failure, read_files

CORPUS = Path(__file__).parent / "corpus"


class ExpectedLog(Record):
    """`expected.json` of a log: `exit` None means files that a person brought.

    `frame` is written `function (file:line)`; `patterns` are keys of the table that read it.
    """

    title: str
    kind: str
    patterns: tuple[str, ...]
    frame: str | None
    exception: str | None
    secondary: tuple[str, ...]
    exit: Exit | None
    provenance: str


def log_folders() -> list[Path]:
    return sorted(path.parent for path in (CORPUS / "logs").glob("*/expected.json"))


def log_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name != "expected.json")


def report_of(folder: Path, expected: ExpectedLog) -> CrashReport:
    if expected.exit is None:
        return read_files(log_files(folder))
    report = read_failure(folder, expected.exit)
    assert report is not None
    return report


def frame_text(frame: Frame | None) -> str | None:
    """A frame as `expected.json` writes it: C++ names short, for they read alike everywhere."""
    if frame is None:
        return None
    name = short_name(frame.raw or frame.function)
    return f"{name} ({frame.file}:{frame.line})" if frame.file else name
