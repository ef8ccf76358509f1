"""Whether outputs are fit to be compared: finite, and dependent on what was asked.

Owns the rules on one cell alone. Must not know any reference.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fixtures.cells.scenario import Kind
from gates.parity.blocks import Block, Blocks
from gates.parity.rules import ParityRules
from gates.parity.words import finding, nats
from gates.verdict import Finding, Status

_OVER_SPREAD = 3.0
"""Times the mean spread of the repeats, by which the control must exceed it."""


def judge_finite(blocks: Blocks) -> tuple[Finding, ...]:
    """FAIL where a recorded row, which is a real one, holds a logprob that is no number."""
    bad = [block for block in blocks.values() if not np.isfinite(block.values).all()]
    if not bad:
        return ()
    first = bad[0]
    _, rows, _ = np.nonzero(~np.isfinite(first.values))
    count = sum(int((~np.isfinite(block.values)).any(axis=2).sum()) for block in bad)
    why = (
        f"{count} tokens in {len(bad)} of {len(blocks)} batches have logprobs that are no "
        f"numbers; first seen in {first.place(int(rows.min()))}"
    )
    return (finding("finite", Status.FAIL, why, n=len(blocks), measured=f"{count} tokens"),)


def judge_controls(blocks: Blocks, rules: ParityRules) -> tuple[Finding, ...]:
    """VACUOUS where outputs do not depend on the context: equal outputs would prove nothing."""
    kinds: dict[Kind, list[Block]] = {}
    for block in blocks.values():
        kinds.setdefault(block.scenario.kind, []).append(block)
    return (
        _judge_sensitivity(kinds.get(Kind.SENSITIVITY, ()), rules),
        _judge_texts(kinds.get(Kind.FREE_TEXT, ()), rules),
    )


def _judge_sensitivity(blocks: Iterable[Block], rules: ParityRules) -> Finding:
    """A changed early token must change what comes later, in every pass."""
    passes: dict[int, list[Block]] = {}
    for block in blocks:
        passes.setdefault(block.pass_index, []).append(block)
    pairs = [pair for pair in passes.values() if len(pair) == 2]
    if not pairs:
        why = "no two prompts that differ in an early token were compared"
        return finding("context", Status.VACUOUS, why)
    moved = min(_moved(one, other) for one, other in pairs)
    spread = float(np.mean([np.ptp(b.values, axis=0).mean() for pair in pairs for b in pair]))
    limit = max(rules.sensitivity, _OVER_SPREAD * spread)
    status = Status.PASS if moved > limit else Status.VACUOUS
    verb = "moves" if status is Status.PASS else "hardly moves"
    why = f"one changed early token {verb} later logprobs by {nats(moved)} on average"
    if status is Status.VACUOUS:
        why += ": weights through which no context passes prove nothing"
    figures = {"measured": nats(moved), "limit": f"more than {nats(limit)}"}
    return finding("context", status, why, n=len(pairs)).model_copy(update=figures)


def _moved(one: Block, other: Block) -> float:
    """Mean over rows of the emitted token's change, in nats."""
    return float(np.abs(one.values[0, :, 0] - other.values[0, :, 0]).mean())


def _judge_texts(blocks: Iterable[Block], rules: ParityRules) -> Finding:
    counts = [len(np.unique(block.tokens[0])) for block in blocks]
    if not counts:
        return finding("distinct-tokens", Status.VACUOUS, "no free text was written")
    least = min(counts)
    status = Status.PASS if least >= rules.distinct_tokens else Status.VACUOUS
    why = f"free text holds {least} different tokens"
    if status is Status.VACUOUS:
        why += ": a model that loops writes the same whatever its graphs do"
    figures = {"measured": f"{least} tokens", "limit": f"{rules.distinct_tokens} tokens or more"}
    return finding("distinct-tokens", status, why, n=len(counts)).model_copy(update=figures)
