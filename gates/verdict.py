"""Status, Finding, Verdict, Decision: the vocabulary of judgement."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Annotated

from pydantic import StringConstraints

from fixtures.cells.cell import CellKey
from fixtures.schema import SCHEMA_VERSION, Record
from gates.scores.result import ScoreTest


class ExitCode(IntEnum):
    """Exit codes of a decision: 0 to 6 stay pytest's; CI systems use 1, 125, 128, 134 and 137."""

    ALLOW = 0
    FAIL = 10
    CRASH = 11
    HANG = 12
    VACUOUS = 13
    INVALID = 14
    INFRA = 20
    CONFIG = 30
    MISSING = 31


class Status(StrEnum):
    """What a cell or a finding comes to, worst first: the order is the precedence."""

    CRASH = "CRASH"
    HANG = "HANG"
    FAIL = "FAIL"
    VACUOUS = "VACUOUS"
    INVALID = "INVALID"
    CONFIG = "CONFIG"
    INFRA = "INFRA"
    MISSING = "MISSING"
    XPASS = "XPASS"
    XFAIL = "XFAIL"
    UNSUPPORTED = "UNSUPPORTED"
    PASS = "PASS"  # noqa: S105

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return _RANKS[self]

    @property
    def blocks(self) -> bool:
        """Whether a cell of this status blocks the merge."""
        return self.rank <= Status.MISSING.rank

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a decision whose worst status this is."""
        return ExitCode[self.name] if self.blocks else ExitCode.ALLOW


_RANKS = {status: rank for rank, status in enumerate(Status)}


class Gate(StrEnum):
    """The six gates, in the order in which a reader wants their findings."""

    LIVENESS = "liveness"
    ENGAGEMENT = "engagement"
    AUDIT = "audit"
    PARITY = "parity"
    SCORES = "scores"
    HYGIENE = "hygiene"
    DRIFT = "drift"
    """Not a gate of a cell: what changed in the capture contract of the whole tree."""


FaultClass = Annotated[str, StringConstraints(pattern="^[A-OU]$")]
"""A letter of the table of fault classes in docs/fault-classes.md."""


class Finding(Record):
    """One thing that one gate has to say about one cell.

    `check` names the rule inside the gate; with gate and class it is the identity of
    a finding (`audit:C`, more closely `audit:C:shared-state`). `measured` and `limit`
    are figures with their unit in the text; `n` how many things were looked at;
    `evidence` points into the cell's folder or names file and symbol in vLLM; `test` holds
    the figures of a test of scores.
    """

    gate: Gate
    check: str
    fault_class: FaultClass | None = None
    status: Status
    measured: str | None = None
    limit: str | None = None
    n: int | None = None
    why: str
    evidence: tuple[str, ...] = ()
    test: ScoreTest | None = None

    @property
    def identity(self) -> str:
        """`gate:CLASS`, as `--finding` takes it."""
        return f"{self.gate}:{self.fault_class or '-'}"


class Verdict(Record):
    """A cell's status and the findings behind it. `attempts` counts all tries."""

    key: CellKey
    status: Status
    findings: tuple[Finding, ...] = ()
    attempts: int = 1


class Blocker(Record):
    """One reason why a merge is blocked, in words. `key` is None for the decision as a whole."""

    key: CellKey | None
    status: Status
    reason: str


class Decision(Record):
    """May it merge? `incomplete` says what was not looked at although the sweep asks for it."""

    allow: bool
    exit_code: ExitCode
    blockers: tuple[Blocker, ...] = ()
    incomplete: tuple[str, ...] = ()


class Verdicts(Record):
    """The file `verdicts.json`: every verdict of a run, findings of the tree, the decision."""

    schema_version: int = SCHEMA_VERSION
    source: str
    sweep: str
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    decision: Decision
