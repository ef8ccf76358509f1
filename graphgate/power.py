"""The verb `power`: which drop a number of questions can show."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from fixtures.errors import ConfigError
from fixtures.schema import Record
from gates.policy import read_policy
from gates.scores.power import Design, Power, detectable_drop, paired_power
from gates.scores.rules import ScoreRules


class Answer(Record):
    """What `power --json` prints. Scores, drops and shares are fractions of 1.

    `detectable_drop` None: not even a drop to zero shows with that power. `standard_error` is
    that of the power where it was simulated.
    """

    n: int
    repeats: int
    score: float
    discordance: float
    alpha: float
    power: float
    detectable_drop: float | None
    standard_error: float
    drop: float | None = None
    power_at_drop: float | None = None


def power(
    n: Annotated[int, typer.Option("--n", min=1, max=1_000_000, help="Questions.")],
    score: Annotated[float, typer.Option(help="The reference's score, as a fraction of 1.")],
    discordance: Annotated[
        float, typer.Option(help="Share of answers that differ between healthy arms.")
    ],
    repeats: Annotated[int, typer.Option(min=1, max=1_000, help="Times each is asked.")] = 1,
    drop: Annotated[
        float | None, typer.Option(help="Also say the power to see this drop (fraction of 1).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which drop the paired test would show, at the policy's alpha and power."""
    rules = read_policy().scores
    design = Design(n, score, discordance, repeats, rules.alpha)
    _require_possible(design, drop)
    answer = _answer(design, rules, drop)
    typer.echo(answer.to_json() if as_json else _sentence(answer))


def _answer(design: Design, rules: ScoreRules, drop: float | None) -> Answer:
    smallest = detectable_drop(design, rules.power)
    reached = Power(0.0) if smallest is None else paired_power(design, smallest)
    return Answer(
        n=design.n,
        repeats=design.repeats,
        score=design.score,
        discordance=design.discordance,
        alpha=design.alpha,
        power=rules.power,
        detectable_drop=smallest,
        standard_error=reached.error,
        drop=drop,
        power_at_drop=None if drop is None else paired_power(design, drop).value,
    )


def _require_possible(design: Design, drop: float | None) -> None:
    """Refuse what no two arms can do.

    Raises:
        ConfigError: a figure is out of range, or the figures contradict each other.
    """
    shares = {"--score": design.score, "--discordance": design.discordance, "--drop": drop or 0.0}
    for option, value in shares.items():
        if not (math.isfinite(value) and 0 <= value <= 1):
            raise ConfigError(f"{value} is no share", source=option, remedy="write 0.02 for 2%")
    if not design.possible:
        most = 2 * min(design.score, 1 - design.score)
        raise ConfigError(
            f"{design.discordance:g} of the pairs can't differ both ways at a score of "
            f"{design.score:g}",
            source="--discordance",
            remedy=f"it is at most {most:g} there",
        )
    if drop is not None and drop > design.score:
        raise ConfigError(
            f"a score of {design.score:g} can't fall by {drop:g}",
            source="--drop",
            remedy="name a smaller one",
        )


def _sentence(answer: Answer) -> str:
    times = f", each asked {answer.repeats} times" if answer.repeats > 1 else ""
    design = (
        f"{answer.n} questions{times}, at a score of {answer.score:g} with "
        f"{answer.discordance:.2%} of the pairs differing"
    )
    if answer.detectable_drop is None:
        return f"{design}: no drop shows with {answer.power:.0%} power"
    error = f" (+- {answer.standard_error:.1%}, simulated)" if answer.standard_error else ""
    text = (
        f"{design}: a drop of {100 * answer.detectable_drop:.2f} points shows with "
        f"{answer.power:.0%} power{error}, at a one-sided alpha of {answer.alpha:g}"
    )
    if answer.drop is not None and answer.power_at_drop is not None:
        text += f"; one of {100 * answer.drop:.2f} points with {answer.power_at_drop:.0%}"
    return text
