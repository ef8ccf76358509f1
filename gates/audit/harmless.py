"""Differences that do no harm: data in `harmless.yaml`, each with its reason.

Owns the type of that file. Must not know what the checks compare.
"""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import StringConstraints, model_validator

from fixtures.schema import Record

DEFAULT_HARMLESS = Path(__file__).with_name("harmless.yaml")

Sentence = Annotated[str, StringConstraints(min_length=20, strip_whitespace=True)]


class Check(StrEnum):
    """What an entry excuses, and what its pattern is held against."""

    MISSING = "missing"
    """A kernel of the fresh trace that the graph lacks: the kernel's short name."""
    EXTRA = "extra"
    """A kernel that only the graph has: the kernel's short name."""
    SHAPE = "shape"
    """A kernel launched in another shape: the kernel's short name."""
    STATE = "state"
    """A field that was filled before capture began: `Class.field`."""
    POINTER = "pointer"
    """A pointer to memory that is gone: the kernel's short name."""
    MOVED = "moved"
    """A tensor of the metadata that steps hold elsewhere: its path without the class's package."""
    CONSTANT = "constant"
    """A buffer that replays need not write: its name."""
    FROZEN = "frozen"
    """An argument that grew and stayed: the kernel's short name."""


class Entry(Record):
    """One excuse. `match` is a shell pattern over the check's subject."""

    check: Check
    match: Annotated[str, StringConstraints(min_length=3)]
    reason: Sentence


class Harmless(Record):
    """All excuses."""

    schema_version: Literal[1]
    entries: tuple[Entry, ...] = ()

    @model_validator(mode="after")
    def _each_once(self) -> Harmless:
        seen = [(entry.check, entry.match) for entry in self.entries]
        twice = [pair for pair in seen if seen.count(pair) > 1]
        if twice:
            raise ValueError(f"{twice[0][0]} {twice[0][1]!r} stands twice")
        return self

    def excuses(self, check: Check, subject: str) -> bool:
        """Whether an entry of that check fits the subject."""
        return any(
            entry.check is check and fnmatchcase(subject, entry.match) for entry in self.entries
        )


def read_harmless(path: Path = DEFAULT_HARMLESS) -> Harmless:
    """The excuses in the YAML file at `path`.

    Raises:
        ConfigError: the file is missing, is not YAML, or does not fit the type.
    """
    return Harmless.read_yaml(path)


@lru_cache(maxsize=1)
def default_harmless() -> Harmless:
    """The excuses that GraphGate ships."""
    return read_harmless()
