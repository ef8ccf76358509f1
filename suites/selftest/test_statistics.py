"""The tests behind the score gate: golden values, scipy, and simulation of their guarantees."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, binomtest

from gates.scores.bounds import Count, below_floor, lower, standard_error, upper, worth
from gates.scores.holm import holm
from gates.scores.paired import mcnemar, sign_flip
from gates.scores.power import Design
from gates.scores.sequential import Spending, sequential_test
from graphgate.simulated import two_arms

ALPHA = 0.05
counts = st.integers(0, 60)
differences = st.lists(st.integers(-3, 3), max_size=9)


def test_golden_values() -> None:
    assert mcnemar(9, 1) == 0.0107421875
    assert upper(Count(30, 30), ALPHA) == 1
    assert lower(Count(30, 30), ALPHA) == pytest.approx(0.05 ** (1 / 30))
    assert lower(Count(30, 30), ALPHA) == pytest.approx(0.9050, abs=5e-5)
    assert standard_error(0.954, 1319) == pytest.approx(0.00577, abs=5e-6)


@given(counts, counts)
def test_mcnemar_is_the_sign_test_of_the_discordant_pairs(b: int, c: int) -> None:
    tail = sum(math.comb(b + c, k) for k in range(b, b + c + 1)) / 2 ** (b + c)
    assert mcnemar(b, c) == pytest.approx(tail)
    assert sign_flip([1] * b + [-1] * c + [0] * 5) == pytest.approx(mcnemar(b, c))


@given(differences)
def test_sign_flip_counts_all_flips(values: list[int]) -> None:
    flips = [
        sum(sign * abs(value) for sign, value in zip(signs, values, strict=True))
        for signs in product((-1, 1), repeat=len(values))
    ]
    share = sum(flip >= sum(values) for flip in flips) / len(flips)
    assert sign_flip(values) == pytest.approx(share)


@given(st.integers(0, 400), st.integers(1, 400))
def test_bounds_are_scipys(right: int, n: int) -> None:
    right = min(right, n)
    less = binomtest(right, n, alternative="less").proportion_ci(0.95, "exact")
    greater = binomtest(right, n, alternative="greater").proportion_ci(0.95, "exact")
    assert upper(Count(right, n), ALPHA) == pytest.approx(less.high, abs=1e-9)
    assert lower(Count(right, n), ALPHA) == pytest.approx(greater.low, abs=1e-9)


@given(st.integers(0, 200), st.integers(1, 200), st.floats(0.01, 0.99))
def test_a_score_is_below_a_floor_exactly_where_its_bound_is(
    right: int, n: int, floor: float
) -> None:
    count = Count(min(right, n), n)
    bound = upper(count, ALPHA)
    if abs(bound - floor) > 1e-9:
        assert (below_floor(count, floor) < ALPHA) == (bound < floor)


@given(st.lists(st.tuples(st.integers(0, 8), st.just(8)), min_size=2, max_size=40))
def test_repeats_are_worth_no_more_than_answers(table: list[tuple[int, int]]) -> None:
    count = worth(table, ALPHA)
    assert 1 <= count.n <= 8 * len(table)
    assert count.score == pytest.approx(sum(right for right, _ in table) / (8 * len(table)))


def test_identical_repeats_are_worth_about_one_answer_a_question() -> None:
    table = [(8, 8)] * 24 + [(0, 8)] * 6
    assert worth(table, ALPHA).n == pytest.approx(30, rel=0.1)
    assert worth([(1, 1)] * 24 + [(0, 1)] * 6, ALPHA) == Count(24, 30)


@pytest.mark.parametrize("spread", [0.0, 0.2, 0.4])
def test_a_floor_with_repeats_keeps_its_level(spread: float) -> None:
    """Thirty questions, eight repeats, each question with a chance of its own.

    A thousand runs know a level of 5% to 0.7%: a true one of 9% would show.
    """
    random, floor, runs = np.random.default_rng(3), 0.8, 1000
    chances = np.clip(0.8 + spread * random.choice([-1, 0.5, 0.5], size=(runs, 30)), 0, 1)
    rights: NDArray[np.int64] = random.binomial(8, chances)
    blocked = sum(
        below_floor(worth([(int(right), 8) for right in row], ALPHA), floor) < ALPHA
        for row in rights
    )
    assert blocked / runs <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


p_values = st.lists(st.floats(0, 1), max_size=12)


@given(p_values)
def test_holm_steps_down(values: list[float]) -> None:
    """Against the procedure itself: reject the smallest while p <= alpha / (tests left)."""
    rejected = set[int]()
    for step, index in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        if values[index] * (len(values) - step) > ALPHA:
            break
        rejected.add(index)
    assert {i for i, p in enumerate(holm(values)) if p <= ALPHA} == rejected


@given(p_values.flatmap(lambda values: st.tuples(st.just(values), st.permutations(values))))
def test_holm_does_not_mind_the_order(lists: tuple[list[float], list[float]]) -> None:
    one, other = (dict(zip(values, holm(values), strict=True)) for values in lists)
    assert one == other


def test_holm_golden() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert holm([]) == ()


@pytest.mark.parametrize("discordance", [0.006, 0.02, 0.05])
def test_mcnemar_keeps_its_level(discordance: float) -> None:
    random, runs = np.random.default_rng(1), 4000
    pairs = random.binomial(1319, discordance, size=runs)
    lost = random.binomial(pairs, 0.5)
    blocked = sum(mcnemar(int(b), int(m - b)) <= ALPHA for b, m in zip(lost, pairs, strict=True))
    assert blocked / runs <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


def test_repeats_that_hang_together_keep_the_level() -> None:
    """All repeats of a question fail together: pooled pairs would reject far too often."""
    random, runs = np.random.default_rng(2), 1500
    pooled = clustered = 0
    for _ in range(runs):
        lost = 8 * random.choice([-1, 0, 1], p=[0.2, 0.6, 0.2], size=30)
        pooled += mcnemar(int(lost[lost > 0].sum()), int(-lost[lost < 0].sum())) <= ALPHA
        clustered += sign_flip(lost.tolist()) <= ALPHA
    assert pooled / runs > 2 * ALPHA
    assert clustered / runs <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


def test_a_night_of_many_cells_has_one_alpha() -> None:
    """Thirty healthy cells: alone each would do, together they would block most nights."""
    random, nights, cells = np.random.default_rng(7), 600, 30
    pairs = random.binomial(1319, 0.03, size=(nights, cells))
    lost = random.binomial(pairs, 0.5)
    p_values = binom.sf(lost - 1, pairs, 0.5)
    alone = (p_values <= ALPHA).any(axis=1).mean()
    together = np.mean([min(holm(night.tolist())) <= ALPHA for night in p_values])
    assert alone > 0.5
    assert together <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / nights)


LOOKS = (1 / 3, 2 / 3, 1.0)


@pytest.mark.parametrize("spending", Spending)
def test_spending_ends_at_alpha_and_rises(spending: Spending) -> None:
    spent = [spending.spent(ALPHA, look) for look in LOOKS]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(ALPHA)
    assert spent[0] > 0


@given(differences)
def test_one_look_is_the_plain_test(values: list[int]) -> None:
    found = sequential_test([[value] for value in values], [ALPHA])
    assert found.p_value == pytest.approx(sign_flip(values))
    assert found.rejects == (found.p_value <= ALPHA)


def _three_looks(random: np.random.Generator, rate: float) -> NDArray[np.int64]:
    """Sixty questions, twenty a look."""
    lost = random.choice([-1, 0, 1], p=[rate / 2, 1 - rate, rate / 2], size=60)
    table: NDArray[np.int64] = np.zeros((60, 3), dtype=np.int64)
    table[np.arange(60), np.arange(60) // 20] = lost
    return table


def _rejects_somewhere(table: NDArray[np.int64], spending: list[float], draws: int) -> bool:
    """Whether a gate that looks after every stage would have rejected at one of the looks."""
    return any(
        sequential_test(table[:, :looks].tolist(), spending[:looks], draws).rejects
        for looks in (1, 2, 3)
    )


@pytest.mark.parametrize("spending", Spending)
def test_looking_three_times_keeps_the_level(spending: Spending) -> None:
    """Eight hundred runs know a level of 5% to 0.8%. Looks without a plan block more often."""
    random, runs = np.random.default_rng(4), 800
    levels = [spending.spent(ALPHA, look) for look in LOOKS]
    tables = [_three_looks(random, 0.4) for _ in range(runs)]
    blocked = sum(_rejects_somewhere(table, levels, 0) for table in tables)
    naive = sum(
        any(sign_flip(table[:, :k].sum(axis=1).tolist()) <= ALPHA for k in (1, 2, 3))
        for table in tables
    )
    limit = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)
    assert blocked / runs <= limit
    assert naive > blocked


def test_repeats_over_several_looks_keep_the_level() -> None:
    """Every question in every look, its repeats alike: the simulated distribution."""
    random, runs = np.random.default_rng(5), 300
    levels = [Spending.OBRIEN_FLEMING.spent(ALPHA, look) for look in LOOKS]
    blocked = 0
    for _ in range(runs):
        lost = random.choice([-1, 0, 1], p=[0.25, 0.5, 0.25], size=(30, 1))
        blocked += _rejects_somewhere(np.repeat(lost, 3, axis=1), levels, 2000)
    assert blocked / runs <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(-1, 1), st.integers(-1, 1)), min_size=1, max_size=12))
def test_a_simulated_look_agrees_with_all_flips(values: list[tuple[int, int]]) -> None:
    """At a second look whose first can't reject, it is the plain test of the sums."""
    found = sequential_test(values, [0.0, 1.0], draws=4000)
    exact = sign_flip([first + second for first, second in values])
    assert abs(found.p_value - exact) <= 5 * max(found.error, 1e-3)


def test_an_early_rejection_stands() -> None:
    lost = [[1, 0]] * 12 + [[0, -1]] * 12
    found = sequential_test(lost, [0.01, 0.05])
    assert found.rejects
    assert found.number == 0
    assert found.p_value <= 0.01


def test_arms_are_simulated_as_designed() -> None:
    design = Design(n=200_000, score=0.9, discordance=0.04)
    before, after = two_arms(design, 0.01, np.random.default_rng(6))
    assert before.mean() == pytest.approx(0.9, abs=0.003)
    assert (before != after).mean() == pytest.approx(0.04, abs=0.002)
    assert before.mean() - after.mean() == pytest.approx(0.01, abs=0.002)
