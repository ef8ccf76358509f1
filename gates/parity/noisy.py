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
from gates.parity.permutation import Extent, Separation, Unit, separation
from gates.parity.rules import ParityRules
from gates.parity.words import finding, nats
from gates.scores.holm import holm
from gates.verdict import Finding, Status


class Group(NamedTuple):
    """Pairs that are tested as one: those of a check that share a graph, where there are enough.

    `padding` is the gap that padding alone opens in the reference, where it counts.
    """

    check: str
    capture_size: int | None
    pairs: tuple[Pair, ...]
    padding: Extent = Extent(0.0, 0.0)


def groups_of(check: str, pairs: Sequence[Pair], padding: Padding) -> list[Group]:
    """The groups of one check."""
    by_size: dict[int | None, list[Pair]] = {}
    for pair in pairs:
        scenario = pair.tested.scenario
        own = scenario.kind in (Kind.PROMPT_ALONE, Kind.BATCH)
        by_size.setdefault(scenario.capture_size if own else None, []).append(pair)
    return [
        Group(check, size, tuple(members), _padding(members, size, padding))
        for size, members in by_size.items()
    ]


def _padding(pairs: Sequence[Pair], capture_size: int | None, padding: Padding) -> Extent:
    if not any(is_padded(pair.tested.scenario) for pair in pairs):
        return Extent(0.0, 0.0)
    return padding.of(pairs[0].tested.scenario.kind, capture_size)


def judge_noisy(groups: Sequence[Group], rules: ParityRules) -> list[Finding]:
    """One finding a check. The tests of all groups of a cell share one alpha.

    A group fails when its p-value is small enough, and its gap exceeds both what one cell's
    own repeats differ by and what padding alone does: on average, or in the widest place.
    """
    tested = [separation_of(group) for group in groups]
    adjusted = holm([found.p for found in tested])
    found: dict[str, list[Finding]] = {}
    for group, apart, p in zip(groups, tested, adjusted, strict=True):
        judged = _judge(group, apart, p, len(groups), rules)
        found.setdefault(group.check, []).append(judged)
    return [_worst(findings) for findings in found.values()]


def separation_of(group: Group) -> Separation:
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
    floor = floor_of(apart.spread, group.padding, rules)
    n = len(group.pairs)
    figures = {"measured": f"{_told(apart.gap)}, p = {p:.2g}", "n": n}
    figures["limit"] = f"{_told(floor)}, at p <= {rules.alpha:g}"
    pair = group.pairs[apart.unit]
    where = pair.tested.place(apart.value // pair.tested.values.shape[2])
    size = f" (graph of {group.capture_size} tokens)" if group.capture_size else ""
    if p <= rules.alpha and apart.gap.beyond(floor):
        why = (
            f"repeats lie apart from all of the reference's, by most in {where}{size}; repeats "
            f"within one cell differ by {nats(apart.spread.mean)} on average"
        )
        status = Status.FAIL
    elif apart.least_p * tests > rules.alpha:
        why = f"too few repeats to tell a fault from noise: p cannot fall below {apart.least_p:.2g}"
        status = Status.PASS
    else:
        why = f"within the spread of the reference's own repeats in {n} batches{size}"
        status = Status.PASS
    return finding(group.check, status, why).model_copy(update=figures)


def floor_of(spread: Extent, padding: Extent, rules: ParityRules) -> Extent:
    """What gaps must exceed to count.

    Small p-values alone mean only that the cells are not runs of one process: where memory
    lies, and which rounds went before, moves the same few values that noise moves within a
    process, by no more. docs/parity.md has the figures.
    """
    return Extent(
        mean=spread.mean + rules.padding_margin * padding.mean,
        widest=max(rules.widest_margin * spread.widest, rules.padding_margin * padding.widest),
    )


def _told(extent: Extent) -> str:
    return f"{nats(extent.mean)} on average, {nats(extent.widest)} at most"


def _worst(findings: Sequence[Finding]) -> Finding:
    """The finding that speaks for the check, with the number of batches of all its groups."""
    failed = [one for one in findings if one.status is Status.FAIL]
    speaker = (failed or list(findings))[0]
    total = sum(one.n or 0 for one in findings)
    more = f"; {len(failed)} of {len(findings)} groups of batches" if len(findings) > 1 else ""
    update = {"n": total, "why": speaker.why + (more if failed else "")}
    return speaker.model_copy(update=update)
