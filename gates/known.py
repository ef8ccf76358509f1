"""Known issues: failures that somebody owns, excused until a day.

Owns: the type of `known_issues.yaml` and what an entry does to the findings of a cell.
Must not know: which gate found what, or today's date (it is told).
"""

from __future__ import annotations

from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from fixtures.cells.cell import CellKey
from fixtures.schema import Record
from gates.verdict import Finding, Gate, Status

DEFAULT_KNOWN_ISSUES = Path(__file__).with_name("known_issues.yaml")

Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Link = Annotated[str, StringConstraints(pattern="^https?://")]

_HAD_NO_CHANCE = frozenset({Status.VACUOUS, Status.INVALID, Status.MISSING, Status.UNSUPPORTED})
"""A cell that proved nothing cannot show that an issue has gone."""


class Sighting(Record):
    """One revision of what is tested that showed the issue, and where that is written down."""

    revision: Text
    evidence: Text


class KnownIssue(Record):
    """One excused finding. `expires` is the last day on which it is excused."""

    cells: Text
    finding: Annotated[str, StringConstraints(pattern=r"^[a-z]+:([A-OU]|-)(:[a-z0-9-]+)?$")]
    issue: Link
    owner: Text
    expires: date
    seen: tuple[Sighting, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _is_believable(self) -> KnownIssue:
        gate = self.finding.split(":", 1)[0]
        if gate not in set(Gate):
            raise ValueError(f"{gate!r} is no gate; gates are {', '.join(Gate)}")
        if len({sighting.revision for sighting in self.seen}) < 2:
            raise ValueError("evidence of at least two different revisions is needed")
        return self

    def covers(self, key: CellKey) -> bool:
        """Whether the cell pattern matches `key`."""
        return fnmatchcase(str(key), self.cells)

    def names(self, finding: Finding) -> bool:
        """Whether `finding` is the one that is excused."""
        return self.finding in (finding.identity, f"{finding.identity}:{finding.check}")


class KnownIssues(Record):
    """The file `known_issues.yaml`."""

    schema_version: Literal[1]
    issues: tuple[KnownIssue, ...]


def read_known_issues(path: Path = DEFAULT_KNOWN_ISSUES) -> tuple[KnownIssue, ...]:
    """The known issues in the YAML file at `path`.

    Raises:
        ConfigError: the file is missing, is not YAML, or does not fit the type.
    """
    return KnownIssues.read_yaml(path).issues


def excuse(
    key: CellKey, findings: tuple[Finding, ...], known: tuple[KnownIssue, ...], today: date
) -> tuple[Finding, ...]:
    """The findings of a cell that was judged, after the known issues had their say.

    A named FAIL becomes XFAIL, or stays FAIL and says that the excuse expired. An issue that
    is still excused and did not show adds an XPASS finding.
    """
    covering = tuple(issue for issue in known if issue.covers(key))
    if not covering:
        return findings
    excused = tuple(_excused(finding, covering, today) for finding in findings)
    return excused + _unseen(findings, covering, today)


def _excused(finding: Finding, covering: tuple[KnownIssue, ...], today: date) -> Finding:
    naming = [issue for issue in covering if issue.names(finding)]
    if finding.status is not Status.FAIL or not naming:
        return finding
    latest = max(naming, key=lambda issue: issue.expires)
    if latest.expires < today:
        note = f"known as {latest.issue}, but the excuse expired on {latest.expires}"
        return finding.model_copy(update={"why": f"{finding.why} [{note}; ask {latest.owner}]"})
    note = f"known until {latest.expires} as {latest.issue}, owned by {latest.owner}"
    why = f"{finding.why} [{note}]"
    return finding.model_copy(update={"status": Status.XFAIL, "why": why})


def _unseen(
    findings: tuple[Finding, ...], covering: tuple[KnownIssue, ...], today: date
) -> tuple[Finding, ...]:
    if any(finding.status in _HAD_NO_CHANCE for finding in findings):
        return ()
    shown = [finding for finding in findings if finding.status is Status.FAIL]
    gone = [
        issue
        for issue in covering
        if issue.expires >= today and not any(issue.names(finding) for finding in shown)
    ]
    return tuple(_xpass(issue) for issue in gone)


def _xpass(issue: KnownIssue) -> Finding:
    gate, fault_class, *_ = issue.finding.split(":")
    return Finding(
        gate=Gate(gate),
        check="known-issue",
        fault_class=None if fault_class == "-" else fault_class,
        status=Status.XPASS,
        why=f"the known issue {issue.issue} ({issue.finding}) did not show: "
        f"if it is repaired, {issue.owner} should delete its entry",
    )
