"""The demo: what a newcomer sees, and that it is recorded evidence and not a drawing."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from gates.verdict import Status, Verdicts
from graphgate import cli
from reports.history.questions import scores, turns
from reports.history.store import History


def demo(monkeypatch: pytest.MonkeyPatch, out: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["graphgate", "demo", "--out", str(out)])
    return int(cli.exit_code())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "out"
    with pytest.MonkeyPatch.context() as patch:
        started = time.monotonic()
        assert demo(patch, out) == 0
    assert time.monotonic() - started < 60
    return out


def verdicts(made: Path, scene: str) -> Verdicts:
    return Verdicts.read_json(made / scene / "verdicts.json")


@pytest.mark.parametrize(
    ("scene", "code"),
    [
        ("green", 0),
        ("s2", 10),
        ("defects", 10),
        ("canary", 11),
        ("scores", 10),
        ("faults", 11),
        ("simulated", 10),
    ],
)
def test_each_scene_has_its_decision_and_all_reports(made: Path, scene: str, code: int) -> None:
    assert verdicts(made, scene).decision.exit_code == code
    for report in ("junit.xml", "annotation.md", "report/index.html"):
        assert (made / scene / report).stat().st_size > 400


def test_s2_is_shared_state_and_nothing_green_is_blocked(made: Path) -> None:
    classes = {f.fault_class for v in verdicts(made, "s2").verdicts for f in v.findings}
    assert "C" in classes
    assert {v.status for v in verdicts(made, "green").verdicts} == {Status.PASS}


def test_the_defects_are_those_of_that_release(made: Path) -> None:
    found = verdicts(made, "defects").verdicts
    blocking = {f.fault_class for v in found for f in v.findings if f.status.blocks}
    assert blocking == {"D", "E"}


def test_the_faults_are_named_from_what_they_left(made: Path) -> None:
    statuses = [verdict.status for verdict in verdicts(made, "faults").verdicts]
    assert sorted(statuses) == ["CRASH", "HANG", "HANG", "INFRA"]
    page = (made / "faults/report/index.html").read_text()
    assert "illegal address in gather_rows" in page
    assert "uncorrectable ECC error" in page
    assert "Host stacks 1" in page


def test_the_canary_crashes_where_it_did_and_its_figures_are_drawn(made: Path) -> None:
    found = {str(v.key): v.status for v in verdicts(made, "canary").verdicts}
    crashed = {key for key, status in found.items() if status is Status.CRASH}
    wrong = {key for key, status in found.items() if status is Status.FAIL}
    assert crashed == {"dsv4.PIECEWISE.bk1.canary", "dsv4.FULL_AND_PIECEWISE.bk1.canary"}
    assert wrong == {"llama.FULL.bk0.canary", "llama.FULL.bk1.canary"}
    page = (made / "canary/report/index.html").read_text()
    assert "steps lie outside" in page
    assert "phase1.cuh" in page


def test_the_recorded_scores_come_with_intervals_and_are_remembered(made: Path) -> None:
    found = {v.status for v in verdicts(made, "scores").verdicts if v.key.variant is None}
    assert found == {Status.PASS}
    with History(made / "history.db") as history:
        keys = {row.key for row in scores(history)}
    scored = [v for v in verdicts(made, "scores").verdicts if any(f.test for f in v.findings)]
    assert keys == {str(v.key) for v in scored}
    assert {v.key.variant is None for v in scored} == {True, False}


def test_the_simulated_scores_are_said_to_be_that(made: Path) -> None:
    statuses = {v.key.mode: v.status for v in verdicts(made, "simulated").verdicts}
    assert statuses == {
        "NONE": Status.PASS,
        "PIECEWISE": Status.PASS,
        "FULL": Status.FAIL,
        "FULL_DECODE_ONLY": Status.FAIL,
    }
    assert "no model ran" in (made / "index.html").read_text()
    page = (made / "simulated/report/index.html").read_text()
    assert "clustered" in page
    assert "after Holm" in page
    with History(made / "history.db") as history:
        assert not [row for row in scores(history) if "simulated" in row.key]


def test_the_history_tells_with_which_release_the_cells_turned_green(made: Path) -> None:
    with History(made / "history.db") as history:
        found = turns(history)
    assert found
    assert {(turn.before, turn.after, turn.to_red) for turn in found} == {
        ("0.26.0", "0.33.0", False)
    }


def test_every_link_of_the_index_is_there(made: Path) -> None:
    page = (made / "index.html").read_text()
    links = [part.split('"')[0] for part in page.split('<a href="')[1:]]
    assert len(links) == 8
    assert all((made / link).exists() for link in links)


def test_a_demo_may_be_drawn_again_and_nothing_else_is_touched(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo(monkeypatch, made) == 0
    mine = tmp_path / "mine.txt"
    mine.write_text("keep")
    assert demo(monkeypatch, tmp_path) == 30
    assert "is no demo" in capsys.readouterr().err
    assert mine.read_text() == "keep"
