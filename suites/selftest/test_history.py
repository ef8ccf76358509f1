"""The memory of past nights: what is kept, who may write, and what it answers."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.cells.cell import CellKey
from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.exits import Exited
from gates.verdict import Finding, Gate, Status, Verdict
from graphgate import cli
from reports.history.notes import notes_of_the_past
from reports.history.page import render_history, trend, trends
from reports.history.questions import flakes, nights, past, phases, titles, turns
from reports.history.schema import MIGRATIONS
from reports.history.store import History
from reports.html.figures import CellFigures, Score
from suites.selftest.build import SOURCE, a_cell, a_crash, a_plan, a_run, an_attempt, write_shard
from suites.selftest.nights import NOW, Night, a_night, night

KEY = "llama.FULL.bk0.contract"
GREEN = a_run(a_cell(KEY))
SICK = an_attempt(Exited(code=1), crash=a_crash("INFRA", "GPU has fallen off the bus"))
RED = a_run(a_cell(KEY), attempts=(an_attempt(Exited(code=1)),), observation=None, crash=a_crash())
NODE = a_run(a_cell(KEY), attempts=(SICK, SICK), observation=None, crash=SICK.crash)


def on(number: int) -> datetime:
    return NOW + timedelta(days=number)


def add(history: History, number: int, run: CellRun, version: str = "0.26.0") -> bool:
    source = SOURCE.model_copy(update={"version": version, "identity": f"vllm-{version}"})
    run = run.model_copy(
        update={"provenance": run.provenance.model_copy(update={"source": source.identity})}
    )
    verdicts, plan, runs = night([run], source=source)
    return history.add_night(verdicts, plan, runs, on(number))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "past" / "history.db"


def test_a_night_comes_back(path: Path) -> None:
    verdicts, plan, runs = a_night()
    with History(path) as history:
        assert history.add_night(verdicts, plan, runs, NOW)
    with History(path) as history:
        (only,) = nights(history)
        assert (only.at, only.vllm, only.exit_code, only.cells) == (
            "2026-11-30T06:00:00+00:00",
            "0.26.0",
            11,
            6,
        )
        (row,) = past(history, CellKey.parse("llama.FULL.bk0.canary"))
        assert (row.status, row.rule) == ("CRASH", "liveness exit")
        assert row.seconds == {"start": 1.0, "work": 2.5}


def test_the_same_night_is_added_once(path: Path) -> None:
    with History(path) as history:
        assert add(history, 0, GREEN)
        assert not add(history, 0, GREEN)
        assert add(history, 1, GREEN)
        assert len(nights(history)) == 2


def test_a_turn_names_the_first_night_and_the_versions_around_it(path: Path) -> None:
    with History(path) as history:
        for number, (run, version) in enumerate(
            [
                (GREEN, "0.25.0"),
                (NODE, "0.26.0"),
                (RED, "0.27.0"),
                (RED, "0.28.0"),
                (GREEN, "0.29.0"),
            ]
        ):
            add(history, number, run, version)
        back, away = turns(history)
    assert (away.before, away.after, away.to_red) == ("0.25.0", "0.27.0", True)
    assert (away.at, away.status, away.previous_status) == (
        on(2).isoformat(timespec="seconds"),
        "CRASH",
        "PASS",
    )
    assert (back.before, back.after, back.to_red) == ("0.28.0", "0.29.0", False)
    assert (away.source_before, away.source_after) == ("vllm-0.25.0", "vllm-0.27.0")


def test_a_night_that_arrives_late_takes_its_place(path: Path) -> None:
    with History(path) as history:
        add(history, 0, GREEN, "0.25.0")
        add(history, 9, RED, "0.29.0")
        add(history, 4, RED, "0.27.0")
        (turn,) = turns(history, key=KEY)
    assert (turn.before, turn.after) == ("0.25.0", "0.27.0")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(Status), max_size=12))
def test_turns_are_those_of_a_plain_walk_over_the_nights(
    tmp_path_factory: pytest.TempPathFactory, statuses: Sequence[Status]
) -> None:
    unjudged = {Status.INFRA, Status.MISSING, Status.CONFIG}
    expected, last = [], None
    for number, status in enumerate(statuses):
        if status in unjudged:
            continue
        if last is not None and status.blocks is not last.blocks:
            expected.append((on(number).isoformat(timespec="seconds"), last, status))
        last = status
    with History(tmp_path_factory.mktemp("walk") / "h.db") as history:
        given_night, plan, _ = night([GREEN])
        for number, status in enumerate(statuses):
            finding = Finding(gate=Gate.AUDIT, check="any", status=status, why="so")
            verdict = Verdict(key=GREEN.cell.key, status=status, findings=(finding,))
            changed = given_night.model_copy(update={"verdicts": (verdict,)})
            history.add_night(changed, plan, {}, on(number))
        found = [(turn.at, turn.previous_status, turn.status) for turn in turns(history)]
    assert found == expected[::-1]


def test_titles_are_remembered_from_every_attempt(path: Path) -> None:
    healed = a_run(a_cell(KEY), attempts=(SICK, an_attempt(index=1)))
    with History(path) as history:
        add(history, 0, RED)
        add(history, 3, RED)
        add(history, 5, healed)
        infra, fault = titles(history)
        (month, _) = flakes(history)
    assert (infra.title, infra.kind, infra.nights) == ("GPU has fallen off the bus", "INFRA", 1)
    assert (fault.first, fault.last, fault.nights) == (
        *(on(number).isoformat(timespec="seconds") for number in (0, 3)),
        2,
    )
    assert (month.month, month.attempts, month.infra_attempts, month.rate) == (
        "2026-12",
        3,
        1,
        1 / 3,
    )


def test_times_are_means_over_the_cells_of_a_night(path: Path) -> None:
    with History(path) as history:
        add(history, 0, GREEN)
        assert [(row.phase, row.seconds, row.cells) for row in phases(history)] == [
            ("start", 1.0, 1),
            ("work", 2.5, 1),
        ]


def test_scores_are_kept_with_their_interval(path: Path) -> None:
    score = Score(task="gsm8k", score=0.95, low=0.94, high=0.96, questions=1319)
    verdicts, plan, runs = night([GREEN])
    with History(path) as history:
        figures = {KEY: CellFigures(scores=(score,))}
        history.add_night(verdicts, plan, runs, NOW, figures)
        (row,) = past(history, CellKey.parse(KEY))
        page = render_history(trends(history), NOW).decode()
    assert row.scores == {"gsm8k": (0.95, 0.94, 0.96)}
    assert "Scores with their intervals" in page


def test_nothing_can_be_changed_or_removed(path: Path) -> None:
    with History(path) as history:
        add(history, 0, RED)
    raw = sqlite3.connect(path)
    for table in ("night", "cell", "title", "phase", "result", "timing", "crash"):
        column = raw.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchone()[0]
        update = f"UPDATE {table} SET {column} = {column}"  # noqa: S608
        for change in (update, f"DELETE FROM {table}"):  # noqa: S608
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                raw.execute(change)
    raw.close()


def test_a_later_version_is_refused_with_a_remedy(path: Path) -> None:
    History(path).__exit__()
    raw = sqlite3.connect(path)
    raw.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    raw.close()
    with pytest.raises(ConfigError, match="the GraphGate that wrote it"):
        History(path)


def test_another_file_is_no_history(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("these are not the rows you are looking for " * 9)
    with pytest.raises(ConfigError, match="is no history"):
        History(other)


def test_a_night_is_added_whole_or_not_at_all(path: Path) -> None:
    verdicts, plan, runs = a_night()
    twice = verdicts.model_copy(update={"verdicts": (*verdicts.verdicts, verdicts.verdicts[0])})
    with History(path) as history:
        with pytest.raises(ConfigError, match="does not take this night"):
            history.add_night(twice, plan, runs, NOW)
        assert nights(history) == []
        assert history.add_night(verdicts, plan, runs, NOW)


def write_ten(path: Path, writer: int) -> None:
    with History(path) as history:
        for number in range(10):
            add(history, 10 * writer + number, GREEN)


def test_several_writers_lose_nothing(path: Path) -> None:
    """They also race to make the file."""
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_ten, args=(path, number)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    with History(path) as history:
        assert len(nights(history, 100)) == 30


def test_notes_tell_how_a_blocked_cell_was_before(path: Path) -> None:
    tonight = night([RED])
    with History(path) as history:
        assert "was never judged before" in notes(history, tonight)[0]
        add(history, 0, GREEN, "0.25.0")
        add(history, 1, NODE, "0.26.0")
        was, seen = notes(history, tonight)
        assert was.endswith(f"{KEY} was PASS on {on(0).isoformat()}, with vLLM 0.25.0")
        assert seen.endswith("'illegal memory access' was never seen before")
        add(history, 2, RED)
        assert "was seen on 1 night(s)" in notes(history, tonight)[1]
        assert notes(history, night([GREEN])) == ()


def notes(history: History, tonight: Night) -> tuple[str, ...]:
    return notes_of_the_past(history, tonight.verdicts, tonight.runs)


@settings(max_examples=20, deadline=None)
@given(st.text(st.characters(), max_size=40))
def test_no_title_becomes_markup_or_sql(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    run = RED.model_copy(update={"crash": a_crash(title=f"T{text}<b>'; DROP TABLE night; --")})
    with History(tmp_path_factory.mktemp("titles") / "h.db") as history:
        add(history, 0, run)
        page = render_history(trends(history), NOW).decode()
        assert len(nights(history)) == 1
    assert "&lt;b&gt;&#39;; DROP TABLE night" in page


def test_a_trend_spans_its_picture() -> None:
    line = trend("x", [("a", 1.0, 0.5, 2.0), ("b", 2.0, 2.0, 2.0)])
    assert line.points == "6.0,60.0 594.0,6.0"
    assert line.bars == ((6.0, 6.0, 87.0),)


def graphgate(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["graphgate", *map(str, arguments)])
    return int(cli.exit_code())


def test_the_verbs_import_and_show(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write_shard(tmp_path / "good", a_plan(GREEN.cell), [GREEN])
    bad = write_shard(tmp_path / "bad", a_plan(RED.cell), [RED])
    for folder, day in ((good, "2026-11-29T06:00"), (bad, "2026-11-30T06:00")):
        assert graphgate(monkeypatch, "history", "import", folder, "--db", path, "--at", day) == 0
    assert graphgate(monkeypatch, "history", "import", bad, "--db", path, "--json") == 0
    capsys.readouterr()
    page = tmp_path / "trends.html"
    assert graphgate(monkeypatch, "history", "show", "--db", path, "--html", page, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert [(turn["key"], turn["to_red"]) for turn in facts["turns"]] == [(KEY, True)]
    assert KEY in page.read_text()
    assert graphgate(monkeypatch, "history", "show", "--db", path, "--cell", KEY) == 0
    assert "2026-11-29 06:00 0.26.0 PASS" in capsys.readouterr().out
    assert graphgate(monkeypatch, "judge", bad, "--history", path) == 11
    assert "history:" in (bad / "verdicts.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("show", "--db", "nowhere.db"), "import a night first"),
        (("import", "nowhere", "--db", "h.db"), "holds no plan.json"),
    ],
)
def test_wrong_requests_say_what_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert graphgate(monkeypatch, "history", *arguments) == 30
    assert told in capsys.readouterr().err
    assert not (tmp_path / "h.db").exists()
