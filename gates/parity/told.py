"""Parity at the score tier: how far a cell's logprobs are from its reference's, told only.

Owns that one finding. Must not know the rules of other tiers: there scores decide. What
production settings do by design (attention kernels that split otherwise inside graphs) moves
bits, and a trained model that is asked random tokens says nothing about its weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fixtures.cells.scenario import Kind
from gates.parity.blocks import Blocks
from gates.parity.pairs import Pair, pairs_of, rows_apart
from gates.parity.words import finding, nats
from gates.verdict import Finding, Status

CHECK = "difference"


def tell_difference(tested: Blocks, reference: Blocks) -> tuple[Finding, ...]:
    """The largest difference over all batches of forced tokens, which never blocks.

    Free text is left out: it feeds on itself. Nothing where there is nothing else.
    """
    pairs = [
        pair
        for pair in pairs_of(tested, reference)
        if pair.tested.scenario.kind is not Kind.FREE_TEXT
    ]
    return (_told(pairs),) if pairs else ()


def _told(pairs: Sequence[Pair]) -> Finding:
    apart = [rows_apart(pair) for pair in pairs]
    largest = [float(values.max()) for values in apart]
    worst = int(np.argmax(largest))
    rows = np.concatenate(apart)
    place = pairs[worst].tested.place(int(np.argmax(apart[worst])))
    why = (
        f"logprobs differ from the reference's by {nats(float(rows.mean()))} on average and "
        f"{nats(largest[worst])} at most ({place}); told only, the scores decide"
    )
    return finding(CHECK, Status.PASS, why, n=len(pairs), measured=nats(largest[worst]))
