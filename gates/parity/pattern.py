"""What the pattern of failing sizes says about the cause.

Owns the rules from patterns to letters; where none is well-founded there is no letter.
Must not know how a check was decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fixtures.cells.scenario import Kind
from gates.parity.pairs import Pair, difference
from gates.verdict import Finding, Status

FROZEN_LENGTH = "D"
_ON_SIZE, _BEYOND = f"{Kind.PROMPT_ALONE}-on-size", f"{Kind.PROMPT_ALONE}-beyond"
_DECODE = f"{Kind.BATCH}-on-size"


def with_fault_class(
    findings: tuple[Finding, ...], checks: Mapping[str, Sequence[Pair]]
) -> tuple[Finding, ...]:
    """`findings`, those of prompts with the class that the failing sizes show, if they show one.

    A graph that serves a decode step and is wrong for a prompt of as many tokens, while
    prompts too long for any graph are right, was captured for another query length: class D.
    """
    status = {found.check: found.status for found in findings}
    lengths = _wrong_lengths(checks.get(_ON_SIZE, ()))
    only_prompts = status.get(_ON_SIZE) is Status.FAIL and status.get(_DECODE) is Status.PASS
    if not only_prompts or status.get(_BEYOND) is not Status.PASS or 1 in lengths:
        return findings
    shown = ", ".join(str(length) for length in sorted(lengths))
    words = (
        f"; wrong for prompts of {shown} tokens, right for one token, for prompts too long for "
        "a graph, and for decode steps of the same graphs: captured for another query length"
    )
    return tuple(_told(found, words) for found in findings)


def _wrong_lengths(pairs: Sequence[Pair]) -> set[int]:
    return {pair.tested.scenario.tokens for pair in pairs if difference(pair).nats > 0}


def _told(found: Finding, words: str) -> Finding:
    of_prompts = found.check.startswith(f"{Kind.PROMPT_ALONE}-") or found.check.startswith(
        f"{Kind.MIXED}-"
    )
    if found.status is not Status.FAIL or not of_prompts:
        return found
    why = found.why + (words if found.check == _ON_SIZE else "")
    return found.model_copy(update={"fault_class": FROZEN_LENGTH, "why": why})
