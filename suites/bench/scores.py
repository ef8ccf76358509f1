"""Score rules side by side on the same simulated runs: `python -m suites.bench.scores`.

Owns: the simulated nights, the rules of others as they are public, the search for the smallest
drop, the printed tables. Must not know: cells, or how GraphGate gathers answers.

A night is a recorded reference score, an answer of the NONE arm to every question and repeat,
and one of the graph arm. The reference was measured once, by as many answers, on another day.
The arms differ as in gates/scores/power.py. Every rule sees the same nights; a rule that needs
no NONE arm ignores it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.stats import binom, norm

from gates.scores.power import Design, rates, sign_flip_rejects

ALPHA = 0.05
POWER = 0.8
STEP = 0.0005
"""Grid of the search for the smallest drop, as a fraction of 1."""
FLAT = 0.08
SIGMA = 0.5
_SEED = 48_822

DESIGNS = (
    Design(1319, 0.954, 0.006),
    Design(1319, 0.954, 0.02),
    Design(1319, 0.954, 0.05),
    Design(30, 0.942, 0.05, repeats=1),
    Design(30, 0.942, 0.05, repeats=4),
    Design(30, 0.942, 0.05, repeats=8),
    Design(30, 0.942, 0.05, repeats=16),
)
"""gsm8k at three discordances, aime25 with repeats; both at the healthy score of DSV4 Flash."""


class Nights(NamedTuple):
    """Simulated nights under one true drop; one element or row per night.

    `reference` and `score` are fractions of 1; `lost` holds the repeats lost minus won by
    question (shape: nights x questions).
    """

    reference: NDArray[np.float64]
    score: NDArray[np.float64]
    lost: NDArray[Any]


Rule = Callable[[Nights, Design], NDArray[np.bool_]]
"""Which nights a rule blocks."""


class Row(NamedTuple):
    """What one rule does under one design. `drop` None: not even a drop to zero is seen."""

    rule: str
    false_alarms: float
    drop: float | None


def simulate(design: Design, drop: float, nights: int) -> Nights:
    """`nights` nights of one design under a true `drop` of the graph arm; seeded."""
    random = np.random.default_rng(_SEED)
    answers = design.n * design.repeats
    lost, won = rates(design, drop)
    shape = (nights, design.n)
    right = random.binomial(design.repeats, design.score, size=shape)
    losses = random.binomial(right, min(1.0, lost / design.score))
    wins = random.binomial(design.repeats - right, min(1.0, won / (1 - design.score)))
    reference = random.binomial(answers, design.score, size=nights) / answers
    return Nights(reference, (right - losses + wins).sum(axis=1) / answers, losses - wins)


def flat(nights: Nights, _design: Design, margin: float = FLAT) -> NDArray[np.bool_]:
    """vLLM's rule: a score below the reference less an absolute tolerance."""
    return np.asarray(nights.score < nights.reference - margin)


def fixed_sigma(nights: Nights, design: Design, alpha: float = ALPHA) -> NDArray[np.bool_]:
    """TensorRT-LLM's rule: two independent samples, one sigma for every answer."""
    answers = design.n * design.repeats
    margin = norm.isf(alpha) * math.sqrt(2 * SIGMA**2 / answers)
    return flat(nights, design, margin)


def paired(nights: Nights, design: Design) -> NDArray[np.bool_]:
    """GraphGate's rule: the exact test of both arms on the same questions."""
    if design.repeats > 1:
        return sign_flip_rejects(nights.lost, design.alpha)
    b, c = (nights.lost > 0).sum(axis=1), (nights.lost < 0).sum(axis=1)
    return np.asarray((binom.sf(b - 1, b + c, 0.5) <= design.alpha) & (b > 0))


def calibrated(design: Design, wanted: float, nights: int) -> Rule:
    """The largest tolerance that still gives `wanted` false alarms, or a few more."""
    healthy = simulate(design, 0.0, nights)
    worst = float(np.quantile(healthy.reference - healthy.score, 1 - wanted, method="lower"))
    return partial(flat, margin=worst - 0.5 / (design.n * design.repeats))


def smallest_drop(rule: Rule, design: Design, nights: int) -> float | None:
    """The smallest drop on the grid that the rule blocks in `POWER` of the nights."""
    low, high = 0, math.floor(design.score / STEP)
    if rule(simulate(design, high * STEP, nights), design).mean() < POWER:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        seen = rule(simulate(design, middle * STEP, nights), design).mean() >= POWER
        low, high = (low, middle) if seen else (middle, high)
    return high * STEP


def compare(design: Design, nights: int) -> list[Row]:
    """Every rule under one design; the last one is given GraphGate's false alarms."""
    healthy = simulate(design, 0.0, nights)
    ours = float(paired(healthy, design).mean())
    rules: dict[str, Rule] = {
        "GraphGate, paired": paired,
        "vLLM, flat 0.08": flat,
        "TensorRT-LLM, sigma 0.5": fixed_sigma,
        "a tolerance with as many false alarms": calibrated(design, ours, nights),
    }
    return [
        Row(name, float(rule(healthy, design).mean()), smallest_drop(rule, design, nights))
        for name, rule in rules.items()
    ]


def title(design: Design) -> str:
    """What a design is, in words."""
    times = f" x {design.repeats}" if design.repeats > 1 else ""
    return f"{design.n}{times} questions, score {design.score}, {design.discordance:.1%} discordant"


def render(design: Design, rows: list[Row]) -> Table:
    """The table of one design."""
    table = Table(title=title(design), box=None, title_justify="left")
    table.add_column("rule", min_width=38)
    table.add_column("false alarms", justify="right")
    table.add_column(f"drop seen with {POWER:.0%}", justify="right")
    for row in rows:
        drop = "none" if row.drop is None else f"{100 * row.drop:.2f} points"
        table.add_row(row.rule, f"{row.false_alarms:.2%}", drop)
    return table


def main(
    nights: Annotated[int, typer.Option(min=100, help="Simulated nights per figure.")] = 4_000,
) -> None:
    """Print false alarms and the smallest drop of each rule, on the same simulated nights."""
    console = Console(width=80)
    for design in DESIGNS:
        console.print(render(design, compare(design, nights)))
        console.print()
    error = math.sqrt(POWER * (1 - POWER) / nights)
    console.print(
        f"{nights:,} nights per figure: a power of {POWER:.0%} is known to {error:.1%}, "
        f"false alarms of {ALPHA:.0%} to {math.sqrt(ALPHA * (1 - ALPHA) / nights):.1%}."
    )


if __name__ == "__main__":
    typer.run(main)
