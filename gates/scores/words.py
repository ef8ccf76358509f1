"""What a test of scores says to a reader.

Owns the sentences. Must not know: how a test is made, or what blocks.
"""

from __future__ import annotations

import re

from gates.scores.result import ScoreTest, TestKind

_TINY = 1e-15
"""Below this a p-value's figures mean nothing to a reader."""

_SUBJECTS = {
    TestKind.PAIRED: "right answers",
    TestKind.CLUSTERED: "right answers",
    TestKind.UNPARSABLE: "readable answers",
}


def check(kind: str, task: str) -> str:
    """The name of a rule about one task, as findings and known issues write it."""
    return f"{kind}-{re.sub(r'[^a-z0-9]+', '-', task.lower()).strip('-')}"


def measured(test: ScoreTest) -> str:
    """The figures of a test in one line."""
    pairs = f"b {test.b}, c {test.c}, " if test.kind is not TestKind.FLOOR else ""
    error = f" +- {test.error:.2g}" if test.error else ""
    return f"{test.score:.4f}, {pairs}p {_figure(test.p_value)}{error}"


def limit(test: ScoreTest) -> str:
    """What the figures are held against."""
    return f"{test.reference:.4f}, p {test.alpha:g}"


def sentence(test: ScoreTest, *, against: str, rejects: bool) -> str:
    """What a test found and what it could have seen. `against` names the other side."""
    found = _floor(test, against, rejects) if test.kind is TestKind.FLOOR else _pairs(test, against)
    return f"{found}; {_power(test)}"


def _pairs(test: ScoreTest, against: str) -> str:
    pairs = f"{test.n} questions"
    if test.answers != test.n:
        pairs = f"{test.answers} pairs on {pairs}"
    return (
        f"{test.task}: {_SUBJECTS[test.kind]} {test.score:.2%} against {test.reference:.2%} of "
        f"{against}: of {pairs}, {test.b} were lost and {test.c} won, p {_equation(test.p_value)}"
    )


def _figure(p_value: float) -> str:
    return f"{p_value:.3g}" if p_value >= _TINY else f"<{_TINY:g}"


def _equation(p_value: float) -> str:
    return f"= {p_value:.3g}" if p_value >= _TINY else f"< {_TINY:g}"


def _floor(test: ScoreTest, against: str, rejects: bool) -> str:
    verb = "lies surely below" if rejects else "is not surely below"
    return (
        f"{test.task}: {test.score:.2%} of {test.answers} answers (95% interval {test.low:.2%} to "
        f"{test.high:.2%}) {verb} {against}, p {_equation(test.p_value)}"
    )


def _power(test: ScoreTest) -> str:
    if test.detectable is None:
        return f"no drop shows with {test.wanted_power:.0%} power: there are too few answers"
    share = f", {test.discordance:.2%} of the pairs differ" if test.discordance is not None else ""
    return (
        f"n = {test.n}{share}; a drop of {100 * test.detectable:.2f} points shows with "
        f"{test.wanted_power:.0%} power, one of {100 * test.effect:.2f} with {test.power:.0%}"
    )
