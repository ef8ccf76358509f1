"""Comparison where the reference does not repeat itself bit for bit: spread against spread.

Owns the rule that joins the permutation test with a floor, and what its groups are. Must
not know how the test computes its p-values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fixtures.cells.scenario import Kind
from gates.parity.blocks import is_padded
from gates.parity.pairs import Padding, Pair, values_of
from gates.parity.permutation import Separation, Unit, separation
from gates.parity.rules import ParityRules
from gates.parity.words import finding, nats
from gates.scores.holm import holm
from gates.verdict import Finding, Status


class Group(NamedTuple):
    """Pairs that are tested as one: those of a check that share a graph, where there are enough.

    `floor` is the gap in nats that padding alone opens in the reference, where it counts.
    """

    check: str
    capture_size: int | None
    pairs: tuple[Pair, ...]
    floor: float


def groups_of(check: str, pairs: Sequence[Pair], padding: Padding, margin: float) -> list[Group]:
    """The groups of one check."""
    by_size: dict[int | None, list[Pair]] = {}
    for pair in pairs:
        scenario = pair.tested.scenario
        own = scenario.kind in (Kind.PROMPT_ALONE, Kind.BATCH)
        by_size.setdefault(scenario.capture_size if own else None, []).append(pair)
    return [
        Group(
            check=check,
            capture_size=size,
            pairs=tuple(members),
            floor=_floor(members, padding, margin),
        )
        for size, members in by_size.items()
    ]


def _floor(pairs: Sequence[Pair], padding: Padding, margin: float) -> float:
    """Where fillers show what padding does, that alone; elsewhere its largest, with a margin."""
    if not any(is_padded(pair.tested.scenario) for pair in pairs):
        return 0.0
    if all(len(pair.references) > 1 for pair in pairs):
        return padding.floor(min(len(pair.tested.values) for pair in pairs)) or 0.0
    return margin * (padding.floor() or 0.0)


def judge_noisy(groups: Sequence[Group], rules: ParityRules) -> list[Finding]:
    """One finding a check. The tests of all groups of a cell share one alpha.

    A group fails when its p-value is small enough and its gap exceeds what one cell's own
    repeats differ by on average, and what padding alone does.
    """
    tested = [_separation(group) for group in groups]
    adjusted = holm([found.p for found in tested])
    found: dict[str, list[Finding]] = {}
    for group, apart, p in zip(groups, tested, adjusted, strict=True):
        judged = _judge(group, apart, p, len(groups), rules)
        found.setdefault(group.check, []).append(judged)
    return [_worst(findings) for findings in found.values()]


def _separation(group: Group) -> Separation:
    """The test against the nearer reference: with fillers or without."""
    sides = range(max(len(pair.references) for pair in group.pairs))
    return max(
        (
            separation(
                [
                    Unit(
                        values_of(pair.references[min(side, len(pair.references) - 1)]),
                        values_of(pair.tested),
                    )
                    for pair in group.pairs
                ]
            )
            for side in sides
        ),
        key=lambda found: found.p,
    )


def _judge(group: Group, apart: Separation, p: float, tests: int, rules: ParityRules) -> Finding:
    floor = max(apart.spread, group.floor)
    n = len(group.pairs)
    figures = {"measured": f"{nats(apart.gap)}, p = {p:.2g}", "n": n}
    figures["limit"] = f"{nats(floor)} at p <= {rules.alpha:g}"
    pair = group.pairs[apart.unit]
    where = pair.tested.place(apart.value // pair.tested.values.shape[2])
    size = f" (graph of {group.capture_size} tokens)" if group.capture_size else ""
    if p <= rules.alpha and apart.gap > floor:
        why = (
            f"repeats lie apart from all of the reference's, by most in {where}{size}; the "
            f"reference's own repeats differ by {nats(apart.spread)} on average"
        )
        status = Status.FAIL
    elif apart.least_p * tests > rules.alpha:
        why = f"too few repeats to tell a fault from noise: p cannot fall below {apart.least_p:.2g}"
        status = Status.PASS
    else:
        why = f"within the spread of the reference's own repeats in {n} batches{size}"
        status = Status.PASS
    return finding(group.check, status, why).model_copy(update=figures)


def _worst(findings: Sequence[Finding]) -> Finding:
    """The finding that speaks for the check, with the number of batches of all its groups."""
    failed = [one for one in findings if one.status is Status.FAIL]
    speaker = (failed or list(findings))[0]
    total = sum(one.n or 0 for one in findings)
    more = f"; {len(failed)} of {len(findings)} groups of batches" if len(findings) > 1 else ""
    update = {"n": total, "why": speaker.why + (more if failed else "")}
    return speaker.model_copy(update=update)
