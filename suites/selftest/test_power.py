"""Stated power against simulation, and the verb `power`."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fixtures.errors import ConfigError
from gates.scores.bounds import Count, upper
from gates.scores.paired import mcnemar, sign_flip
from gates.scores.power import (
    Design,
    detectable_drop,
    detectable_score,
    floor_power,
    paired_power,
    sign_flip_rejects,
)
from graphgate.cli import app
from graphgate.simulated import two_arms
from suites.bench.scores import compare

ALPHA = 0.05
RUNS = 1500


def _simulated(design: Design, drop: float) -> float:
    """The share of simulated runs that the gate's own test blocks."""
    random, blocked = np.random.default_rng(11), 0
    for _ in range(RUNS):
        before, after = two_arms(design, drop, random)
        lost = (before.astype(int) - after.astype(int)).sum(axis=1)
        if design.repeats == 1:
            p_value = mcnemar(int((lost > 0).sum()), int((lost < 0).sum()))
        else:
            p_value = sign_flip(lost.tolist())
        blocked += p_value <= design.alpha
    return blocked / RUNS


@pytest.mark.parametrize(
    ("design", "drop"),
    [
        (Design(1319, 0.954, 0.006), 0.005),
        (Design(1319, 0.954, 0.02), 0.0),
        (Design(1319, 0.954, 0.02), 0.01),
        (Design(1319, 0.954, 0.05), 0.015),
        (Design(1319, 0.954, 0.02), 0.03),
        (Design(30, 0.942, 0.1, repeats=4), 0.05),
        (Design(30, 0.942, 0.03, repeats=8), 0.03),
    ],
)
def test_power_is_what_it_is_said_to_be(design: Design, drop: float) -> None:
    stated = paired_power(design, drop)
    error = math.sqrt(stated.value * (1 - stated.value) / RUNS + stated.error**2)
    assert _simulated(design, drop) == pytest.approx(stated.value, abs=3.5 * error + 1e-3)


@pytest.mark.parametrize(("discordance", "points"), [(0.006, 0.55), (0.02, 1.0), (0.05, 1.6)])
def test_gsm8k_shows_half_a_point_to_one_and_a_half(discordance: float, points: float) -> None:
    found = detectable_drop(Design(1319, 0.954, discordance))
    assert found is not None
    assert 100 * found == pytest.approx(points, abs=0.05)


def test_a_single_pass_of_aime25_shows_only_a_collapse() -> None:
    found = detectable_drop(Design(30, 0.942, 0.1))
    assert found is not None
    assert found > 0.2


@settings(max_examples=15, deadline=None)
@given(st.integers(40, 2000), st.floats(0.5, 0.98), st.floats(0.0, 0.04))
def test_more_questions_show_smaller_drops(n: int, score: float, discordance: float) -> None:
    few = detectable_drop(Design(n, score, discordance))
    many = detectable_drop(Design(2 * n, score, discordance))
    assert many is not None
    assert few is None or many <= few + 1e-4


def test_too_few_questions_show_nothing() -> None:
    assert detectable_drop(Design(4, 0.95, 0.0)) is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(-3, 3), min_size=6, max_size=6), min_size=1, max_size=20))
def test_rows_at_once_are_tested_as_one_by_one(rows: list[list[int]]) -> None:
    found = sign_flip_rejects(np.asarray(rows), ALPHA)
    assert found.tolist() == [sign_flip(row) <= ALPHA for row in rows]


def test_what_a_floor_blocks() -> None:
    floor = 0.944
    score = detectable_score(1319, floor, ALPHA)
    assert score is not None
    assert floor_power(1319, floor, score, ALPHA) == pytest.approx(0.8, abs=1e-6)
    assert floor_power(1319, floor, floor, ALPHA) <= ALPHA
    random = np.random.default_rng(12)
    rights = random.binomial(1319, score, size=RUNS)
    blocked = np.mean([upper(Count(int(right), 1319), ALPHA) < floor for right in rights])
    assert blocked == pytest.approx(0.8, abs=0.04)
    assert detectable_score(2, 0.05, ALPHA) is None


def ask(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["power", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.output)
    return answer


def test_a_planner_asks_for_gsm8k() -> None:
    answer = ask("--n", "1319", "--score", "0.954", "--discordance", "0.02")
    assert answer["detectable_drop"] == pytest.approx(0.01, abs=5e-4)
    assert answer["power"] == 0.8
    assert answer["alpha"] == 0.05
    assert answer["repeats"] == 1


def test_repeats_show_smaller_drops() -> None:
    setting = ("--n", "30", "--score", "0.942", "--discordance", "0.1")
    once, often = ask(*setting), ask(*setting, "--repeats", "8")
    assert often["detectable_drop"] < once["detectable_drop"] / 3
    assert often["standard_error"] > 0


def test_a_drop_may_be_named() -> None:
    answer = ask("--n", "1319", "--score", "0.954", "--discordance", "0.02", "--drop", "0.01")
    assert answer["power_at_drop"] == pytest.approx(0.79, abs=0.02)


def test_the_answer_reads_as_a_sentence() -> None:
    arguments = ["power", "--n", "1319", "--score", "0.954", "--discordance", "0.02"]
    result = CliRunner().invoke(app, arguments)
    assert "1.01 points" in result.output


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (("--n", "0"), "--n"),
        (("--score", "1.5"), "--score"),
        (("--score", "nan"), "--score"),
        (("--discordance", "0.5"), "--discordance"),
        (("--repeats", "0"), "--repeats"),
    ],
)
def test_an_impossible_design_is_refused(changes: tuple[str, str], named: str) -> None:
    base = {"--n": "1319", "--score": "0.954", "--discordance": "0.02", changes[0]: changes[1]}
    result = CliRunner().invoke(app, ["power", *(part for item in base.items() for part in item)])
    assert result.exit_code != 0
    told = f"{result.output}{result.exception}"
    assert named in told or isinstance(result.exception, ConfigError)


@pytest.mark.parametrize("design", [Design(1319, 0.954, 0.02), Design(30, 0.942, 0.05, repeats=8)])
def test_others_see_only_larger_drops_at_equal_false_alarms(design: Design) -> None:
    """The benchmark's comparison, with few nights."""
    ours, *others, equal = compare(design, 400)
    assert ours.false_alarms <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / 400)
    assert equal.false_alarms >= ours.false_alarms
    assert ours.drop is not None
    for row in (*others, equal):
        assert row.drop is not None
        assert row.drop > ours.drop
