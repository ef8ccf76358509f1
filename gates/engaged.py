"""Which graphs ran, descriptor by descriptor, and whether the probe saw all processes.

Owns the rules on a worker's list of descriptors, where there is one. Must not know the mode
that was asked for: gates/engagement.py judges that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fixtures.cells.axes import GraphMode
from fixtures.cells.cell import Cell
from fixtures.evidence.cellrun import DescriptorUse, Engagement
from fixtures.evidence.families import TARGET, family_of_use, held_families, realised_mode
from gates.verdict import Status

PROBE = "probe"
"""The check that the probe was loaded in every process."""

_NAMED = 8
"""Descriptors or sizes that a sentence names."""


class Problem(NamedTuple):
    """What is wrong: `measured` of `limit` things are as they must be."""

    check: str
    status: Status
    why: str
    measured: str | None = None
    limit: str | None = None
    n: int | None = None


def unproven(cell: Cell, engagement: Engagement) -> Problem | None:
    """The roles that must have proved the probe, where some did not; None: all did.

    vLLM only logs it when a plugin fails to load, so silence is no proof.
    """
    workers = (f"worker-{rank}" for rank in range(max(1, cell.requirements.gpus)))
    wanted = ("frontend", "core", *workers)
    missing = [role for role in wanted if role not in engagement.processes]
    if not missing:
        return None
    why = (
        f"the probe was not loaded in {', '.join(missing)}: what those processes did, nobody saw; "
        "is the plugin on their module path, and not filtered out by VLLM_PLUGINS?"
    )
    proved = len(wanted) - len(missing)
    return Problem(
        PROBE, Status.VACUOUS, why, f"{proved} processes", f"{len(wanted)} processes", len(wanted)
    )


def problems_of(engagement: Engagement) -> Iterator[Problem]:
    """What is wrong with the descriptors: not captured, not replayed, or passed over.

    Those of the mode that came true count: that a whole family of graphs is missing, the
    mode tells. A descriptor that dispatch can choose for no batch need not be replayed.
    """
    if engagement.disagreeing:
        ranks = ", ".join(map(str, engagement.disagreeing))
        why = f"rank(s) {ranks} captured or replayed other graphs than rank 0"
        yield Problem("ranks", Status.FAIL, why, n=len(engagement.disagreeing))
    families = held_families(engagement.descriptors)
    uses = [use for use in engagement.descriptors if family_of_use(use) in families]
    empty = [use for use in uses if use.graphs == 0]
    if empty:
        why = f"{len(empty)} of {len(uses)} planned descriptors hold no graph: {_named(empty)}"
        yield _short("captured", len(uses) - len(empty), len(uses), why)
    due = [use for use in uses if use.graphs and use.reachable]
    idle = [use for use in due if use.replays == 0]
    if idle:
        why = f"{len(idle)} of {len(due)} captured descriptors were never replayed: {_named(idle)}"
        yield _short("replayed", len(due) - len(idle), len(due), why)
    yield from _passed_over(engagement)


def realised(engagement: Engagement) -> GraphMode:
    """The mode that came true: that of the model's graphs, not vLLM's word for what it planned.

    One that captured no graph, or was refused, is NONE.
    """
    if engagement.refusal is not None or engagement.graphs == 0:
        return GraphMode.NONE
    if not engagement.descriptors:
        return engagement.effective
    return realised_mode(held_families(engagement.descriptors))


def _passed_over(engagement: Engagement) -> Iterator[Problem]:
    """Steps that ran without a graph although one serves any batch of so many tokens.

    Uniform descriptors serve decode steps alone, and a draft's steps are counted with the
    target's, so neither says anything here.
    """
    uses = engagement.descriptors
    if any(use.owner != TARGET for use in uses):
        return
    largest = max((use.tokens for use in uses if use.graphs and not use.uniform), default=0)
    sizes = {int(tokens): count for tokens, count in engagement.eager_steps.items()}
    over = {tokens: count for tokens, count in sizes.items() if tokens <= largest and count}
    if over:
        shown = ", ".join(str(tokens) for tokens in sorted(over)[:_NAMED])
        count = sum(over.values())
        why = (
            f"{count} steps were dispatched to no graph although one of {largest} tokens fits "
            f"them: steps of {shown} tokens"
        )
        yield Problem("eager-steps", Status.VACUOUS, why, f"{count} steps", "0 steps", count)


def _short(check: str, measured: int, limit: int, why: str) -> Problem:
    figures = (f"{measured} descriptors", f"{limit} descriptors", limit)
    return Problem(check, Status.VACUOUS, why, *figures)


def _named(uses: Iterable[DescriptorUse]) -> str:
    """Descriptors by owner, mode and size, cut where they are many."""
    names = [
        f"{'' if use.owner == TARGET else f'{use.owner} '}{use.mode} {use.tokens}" for use in uses
    ]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
