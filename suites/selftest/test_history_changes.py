"""Changes of scores and times over the nights: what is told, when, and how seldom wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.evidence.exits import Exited
from reports.history.changes import ALPHA, Change, best_split, changes
from reports.history.page import render_history, trends
from reports.history.store import History
from reports.html.figures import CellFigures, Score
from suites.selftest.build import SOURCE, a_cell, a_crash, a_run, an_attempt
from suites.selftest.nights import NOW, night

KEYS = ("llama.FULL.bk0.score", "llama.NONE.bk0.score")


def test_of_equal_nights_it_speaks_less_often_than_it_may() -> None:
    random = np.random.default_rng(7)
    false = 0
    for _ in range(400):
        split = best_split(random.normal(size=30).tolist())
        false += split is not None and split.p_value <= ALPHA
    assert false <= 9  # 4 are expected at most


def test_of_scores_with_many_ties_too() -> None:
    random = np.random.default_rng(8)
    false = 0
    for _ in range(400):
        split = best_split((random.binomial(30, 0.9, size=30) / 30).tolist())
        false += split is not None and split.p_value <= ALPHA
    assert false <= 9


@pytest.mark.parametrize("late", [5, 8, 15, 25])
def test_a_step_is_found_where_it_is(late: int) -> None:
    random = np.random.default_rng(late)
    values = random.normal(size=30) + 20.0 * (np.arange(30) >= 30 - late)
    split = best_split(values.tolist())
    assert split is not None
    assert split.start == 30 - late
    assert split.p_value <= ALPHA


def test_one_strange_night_is_no_change() -> None:
    values = wave(30, 1.0)
    values[12] = 50.0
    split = best_split(values)
    assert split is None or split.p_value > ALPHA


@given(st.lists(st.floats(0, 1), max_size=12))
def test_any_series_has_an_answer(values: Sequence[float]) -> None:
    split = best_split(values)
    if split is not None:
        assert 0 < split.start < len(values)
        assert 0 <= split.p_value <= 1


def told(
    path: Path, seconds: Sequence[float], scores: Sequence[float], *, crashed: bool = False
) -> list[Change]:
    """The changes of nights of two cells; on every third night only one of them ran."""
    with History(path) as history:
        for number, (work, score) in enumerate(zip(seconds, scores, strict=True)):
            source = SOURCE.model_copy(
                update={"version": f"0.{number}.0", "identity": f"commit-{number}"}
            )
            runs = []
            for place, key in enumerate(KEYS[: 1 if number % 3 == 0 else 2], 1):
                timings = {"start": 1.0 + number % 4 / 100, "work": work * place}
                attempt = an_attempt().model_copy(update={"timings": timings})
                run = a_run(a_cell(key), attempts=(attempt,), source=source.identity)
                if crashed and number >= 20:
                    died = attempt.model_copy(update={"exit": Exited(code=1)})
                    run = run.model_copy(
                        update={"attempts": (died,), "crash": a_crash(), "observation": None}
                    )
                runs.append(run)
            figure = Score(task="gsm8k", score=score, low=0, high=1, questions=1319)
            figures = {KEYS[0]: CellFigures(scores=(figure,))}
            history.add_night(*night(runs, source=source), NOW + timedelta(days=number), figures)
        shown = trends(history)
        assert list(shown.changes) == changes(history)
        page = render_history(shown, NOW).decode()
        assert ("None that chance" in page) is not bool(shown.changes)
        return list(shown.changes)


def wave(count: int, base: float) -> list[float]:
    """Values around `base`, none equal to another, in no order."""
    return [base * (1 + (number * 7919 % 101) / 5000) for number in range(count)]


def test_slower_nights_and_lower_scores_are_told_with_their_commits(tmp_path: Path) -> None:
    seconds = [*wave(20, 10.0), *wave(10, 14.0)]
    scores = [*wave(12, 0.93), *wave(18, 0.90)]
    time, score = told(tmp_path / "h.db", seconds, scores)
    assert (time.what, time.source_before, time.source_after) == (
        "time of phase work",
        "commit-19",
        "commit-20",
    )
    assert time.median_after / time.median_before == pytest.approx(1.4, abs=0.03)
    assert (score.what, score.before, score.after) == (f"{KEYS[0]}: gsm8k", "0.11.0", "0.12.0")
    assert score.median_after < score.median_before


def test_steady_nights_and_small_steps_of_time_tell_nothing(tmp_path: Path) -> None:
    seconds = [*wave(20, 10.0), *wave(10, 10.5)]
    assert told(tmp_path / "h.db", seconds, wave(30, 0.93)) == []


def test_a_cell_that_crashes_early_did_not_get_faster(tmp_path: Path) -> None:
    seconds = [*wave(20, 10.0), *wave(10, 2.0)]
    assert told(tmp_path / "h.db", seconds, wave(30, 0.93), crashed=True) == []
