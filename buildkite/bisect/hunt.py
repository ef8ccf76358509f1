"""What one revision's verdict says about the finding that is hunted: bad, good, or nothing.

Owns: that reading, and a failure's title. Must not know: revisions and how they are tested.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import StringConstraints, field_validator

from fixtures.cells.cell import CellKey
from fixtures.evidence.crash import CrashReport
from fixtures.schema import Record
from gates.judge import OWN_STATUSES
from gates.verdict import Finding, Gate, Status, Verdict
from reports.reasons import rule_of

_PLACE = re.compile(r"\[([^\[\]]+)\]$")
_NOTHING_SAID = frozenset({Status.CONFIG, Status.INFRA, Status.MISSING})
_INDEPENDENT = frozenset({Gate.AUDIT})
"""Gates each of whose checks looks at the whole record, whatever another check found."""

FindingName = Annotated[
    str, StringConstraints(pattern=r"^[a-z]+:([A-OU]|-)(:[a-z0-9]+(-[a-z0-9]+)*)?$")
]


class State(StrEnum):
    """What a revision is, as far as the hunt goes."""

    BAD = "bad"
    GOOD = "good"
    SKIP = "skip"


class Hunted(Record):
    """A finding of one cell, written `gate:CLASS` or more closely `gate:CLASS:check`."""

    cell: CellKey
    finding: FindingName

    @field_validator("finding")
    @classmethod
    def _has_a_gate(cls, finding: str) -> str:
        gate = finding.partition(":")[0]
        if gate not in set(Gate):
            raise ValueError(f"{gate!r} is no gate; gates are {', '.join(Gate)}")
        return finding

    @property
    def gate(self) -> Gate:
        """The gate that makes the finding."""
        return Gate(self.finding.partition(":")[0])

    def names(self, finding: Finding) -> bool:
        """Whether `finding` is the hunted one, and blocks."""
        closely = f"{finding.identity}:{finding.check}"
        return finding.status.blocks and self.finding in (finding.identity, closely)


class Reading(NamedTuple):
    """A revision's state, the title of its failure where it has one, and why in words."""

    state: State
    title: str | None
    why: str


def read(verdict: Verdict, crash: CrashReport | None, hunted: Hunted) -> Reading:
    """What `verdict` on the hunted cell says.

    Bad is only what shows the finding. Another blocker may hide it, so such a revision is
    skipped, but for findings of a gate whose checks do not hide each other: where that gate
    looked at the run and did not make the finding, it isn't there. A mode that is turned down
    as expected says something only where the gate looked at what it became.
    """
    shown = next((one for one in verdict.findings if hunted.names(one)), None)
    if shown is not None:
        return Reading(State.BAD, title_of(shown, crash), shown.why)
    own = next((f for f in verdict.findings if f.status is verdict.status), None)
    why = own.why if own else f"the cell is {verdict.status}"
    if verdict.status in _NOTHING_SAID:
        return Reading(State.SKIP, None, f"{verdict.status}: {why}")
    spoke = any(finding.gate is hunted.gate for finding in verdict.findings)
    if verdict.status is Status.UNSUPPORTED and not spoke:
        return Reading(State.SKIP, None, f"UNSUPPORTED: {why}")
    if not verdict.status.blocks:
        return Reading(State.GOOD, None, f"{hunted.finding} did not show")
    title = title_of(own, crash) if own else None
    if spoke and hunted.gate in _INDEPENDENT and verdict.status not in OWN_STATUSES:
        return Reading(State.GOOD, title, f"{hunted.finding} did not show, but {title}")
    return Reading(State.SKIP, title, f"another finding may hide it: {why}")


def title_of(finding: Finding, crash: CrashReport | None) -> str:
    """What the failure is called: equal failures of two revisions have equal titles."""
    if finding.gate is Gate.LIVENESS and crash is not None:
        return crash.title
    place = _PLACE.search(finding.why)
    return f"{rule_of(finding)} [{place[1]}]" if place else rule_of(finding)


def finding_to_hunt(verdict: Verdict) -> str | None:
    """The name of the first blocking finding, where nobody named one; None where none blocks."""
    blocking = [one for one in verdict.findings if one.status.blocks]
    if not blocking or verdict.status in _NOTHING_SAID:
        return None
    first = min(blocking, key=lambda one: one.status.rank)
    return f"{first.identity}:{first.check}"
