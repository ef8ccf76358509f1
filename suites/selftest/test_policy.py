"""The policy and the known issues: what the files may hold, and what an excuse does."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

import fixtures.triage
from fixtures.cells.cell import CellKey
from fixtures.errors import ConfigError
from gates.known import KnownIssue, excuse, read_known_issues
from gates.policy import read_policy
from gates.verdict import Finding, Gate, Status

KEY = CellKey.parse("dsv4.FULL.bk0.contract")
PATTERNS = Path(fixtures.triage.__file__).with_name("patterns.yaml")
TODAY = date(2026, 11, 30)

ISSUE: dict[str, Any] = {
    "cells": "dsv4.FULL*.bk0.contract",
    "finding": "audit:C",
    "issue": "https://example.org/issues/7",
    "owner": "somebody",
    "expires": date(2026, 12, 31),
    "seen": [
        {"revision": "1a2b3c4", "evidence": "run 1"},
        {"revision": "5d6e7f8", "evidence": "run 2"},
    ],
}
SHARED = Finding(
    gate=Gate.AUDIT, check="shared-state", fault_class="C", status=Status.FAIL, why="shared"
)
FINE = Finding(gate=Gate.ENGAGEMENT, check="mode", status=Status.PASS, why="FULL as requested")


def issue(**changes: object) -> KnownIssue:
    return KnownIssue.model_validate({**ISSUE, **changes})


def test_the_files_that_ship_are_valid() -> None:
    assert read_policy().drift.tiers_due["pr"]
    assert isinstance(read_known_issues(), tuple)


def written(path: Path, data: object) -> Path:
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def the_policy(**changes: object) -> dict[str, Any]:
    good: dict[str, Any] = {
        "schema_version": 1,
        "drift": {"tiers_due": {"pr": ["canary"]}},
        "xids": {"hardware": [48], "application": [13]},
    }
    return {**good, **changes}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"drift": {"tiers_due": {"pr": ["contract"]}}}, "contract tier needs no hardware"),
        ({"drift": {"tiers_due": {"pr": ["silver"]}}}, "drift.tiers_due.pr.0"),
        ({"xids": {"hardware": [13], "application": [13]}}, "Xid 13"),
        ({"alpha": 0.05}, "alpha"),
        ({"scores": {"alpha": 0}}, "scores.alpha"),
        ({"scores": {"default": {"looks": [0.5, 0.4, 1]}}}, "scores.default.looks"),
        ({"scores": {"default": {"looks": [0.5]}}}, "end with 1"),
        ({"scores": {"tasks": {"../x": {}}}}, "scores.tasks"),
        ({"references": [{"schema_version": 1, "model": "dsv4"}]}, "folder of their own"),
    ],
)
def test_a_bad_policy_is_refused_by_file_and_key(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    path = written(tmp_path / "mine.yaml", the_policy(**changes))
    with pytest.raises(ConfigError) as caught:
        read_policy(path)
    assert str(path) in str(caught.value)
    assert named in str(caught.value)


def test_a_policy_of_ones_own_is_read(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path / "mine.yaml", the_policy()))
    assert policy.xids.hardware == {48}


def test_triage_reads_the_same_meaning_from_an_xid() -> None:
    patterns = {
        pattern["key"]: pattern["match"]
        for pattern in yaml.safe_load(PATTERNS.read_text(encoding="utf-8"))["patterns"]
        if pattern["key"].startswith("xid-")
    }
    xids = read_policy().xids
    for key, codes in (("xid-hardware", xids.hardware), ("xid-application", xids.application)):
        in_log = {n for n in range(200) if re.search(patterns[key], f"Xid (PCI:0000:1a:00): {n}, ")}
        assert in_log == codes


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"finding": "audit"}, "issues.0.finding"),
        ({"finding": "looks:C"}, "'looks' is no gate"),
        ({"owner": " "}, "issues.0.owner"),
        ({"issue": "somewhere"}, "issues.0.issue"),
        ({"expires": "soon"}, "issues.0.expires"),
        ({"seen": ISSUE["seen"][:1]}, "issues.0.seen"),
        ({"seen": [ISSUE["seen"][0]] * 2}, "two different revisions"),
        ({"note": "x"}, "issues.0.note"),
    ],
)
def test_a_bad_known_issue_is_refused_by_key(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    path = written(tmp_path / "k.yaml", {"schema_version": 1, "issues": [{**ISSUE, **changes}]})
    with pytest.raises(ConfigError, match=named):
        read_known_issues(path)


def test_a_known_issue_is_read_and_excuses(tmp_path: Path) -> None:
    path = written(tmp_path / "k.yaml", {"schema_version": 1, "issues": [ISSUE]})
    (finding,) = excuse(KEY, (SHARED,), read_known_issues(path), TODAY)
    assert finding.status is Status.XFAIL
    assert "https://example.org/issues/7" in finding.why


@pytest.mark.parametrize("name", ["audit:C", "audit:C:shared-state"])
@pytest.mark.parametrize(
    ("today", "status"), [(date(2026, 12, 31), Status.XFAIL), (date(2027, 1, 1), Status.FAIL)]
)
def test_an_excuse_holds_until_its_last_day(name: str, today: date, status: Status) -> None:
    (finding,) = excuse(KEY, (SHARED,), (issue(finding=name),), today)
    assert finding.status is status
    assert ("expired on 2026-12-31" in finding.why) == (status is Status.FAIL)


@pytest.mark.parametrize(
    "changes",
    [{"cells": "llama.*"}, {"finding": "audit:D"}, {"finding": "audit:C:other"}],
)
def test_an_issue_excuses_nothing_but_its_own(changes: dict[str, Any]) -> None:
    (finding, *_) = excuse(KEY, (SHARED,), (issue(**changes),), TODAY)
    assert finding == SHARED


def test_vacuous_is_never_excused() -> None:
    empty = SHARED.model_copy(update={"status": Status.VACUOUS})
    assert excuse(KEY, (empty,), (issue(),), TODAY) == (empty,)


def test_an_issue_that_does_not_show_is_said_aloud() -> None:
    fine, surprise = excuse(KEY, (FINE,), (issue(),), TODAY)
    assert fine == FINE
    assert surprise.status is Status.XPASS
    assert surprise.identity == "audit:C"


@pytest.mark.parametrize(
    "status", [Status.VACUOUS, Status.INVALID, Status.MISSING, Status.UNSUPPORTED]
)
def test_an_issue_that_had_no_chance_to_show_is_not_gone(status: Status) -> None:
    nothing_ran = FINE.model_copy(update={"status": status})
    assert excuse(KEY, (nothing_ran,), (issue(),), TODAY) == (nothing_ran,)


def test_an_expired_issue_that_does_not_show_is_silent() -> None:
    assert excuse(KEY, (FINE,), (issue(),), date(2027, 1, 1)) == (FINE,)


def test_the_longest_excuse_counts() -> None:
    old = issue(expires=date(2026, 1, 1))
    (finding,) = excuse(KEY, (SHARED,), (old, issue()), TODAY)
    assert finding.status is Status.XFAIL
