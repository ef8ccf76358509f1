"""Every log of the corpus gets its title, kind and frame; every pattern has its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.triage.choice import NOTHING
from fixtures.triage.log import read_log
from fixtures.triage.table import default_table
from suites.selftest.scrubbed import machine_path
from suites.selftest.triage_corpus import (
    ExpectedLog,
    frame_text,
    log_files,
    log_folders,
    report_of,
)

FOLDERS = log_folders()


def _expected(folder: Path) -> ExpectedLog:
    return ExpectedLog.read_json(folder / "expected.json")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_log_is_named_as_expected(folder: Path) -> None:
    expected = _expected(folder)
    report = report_of(folder, expected)
    assert (report.title, report.kind.value) == (expected.title, expected.kind)
    assert frame_text(report.frame) == expected.frame
    if expected.exception is not None:
        assert report.exception == expected.exception
    assert set(expected.secondary) <= set(report.secondary)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_log_is_read_by_the_patterns_it_names(folder: Path) -> None:
    keys = {
        hit.pattern.key
        for path in log_files(folder)
        for hit in read_log(path, default_table()).hits
    }
    assert set(_expected(folder).patterns) <= keys


def test_every_pattern_has_a_log() -> None:
    sampled = {key for folder in FOLDERS for key in _expected(folder).patterns}
    table = {pattern.key for pattern in default_table().patterns}
    assert table - sampled == set(), "a pattern without its sample: see docs/triage.md"
    assert sampled - table == set(), "a sample of a pattern that is gone"


def test_eight_logs_or_more_match_nothing() -> None:
    silent = [f for f in FOLDERS if _expected(f).title == NOTHING]
    assert len(silent) >= 8


def test_corpus_is_free_of_machine_paths() -> None:
    for folder in FOLDERS:
        for path in log_files(folder):
            text = path.read_text(encoding="utf-8", errors="replace")
            assert machine_path(text) is None, path
