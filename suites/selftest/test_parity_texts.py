"""Free texts: every one is held, also where another parts from its reference harmlessly."""

from __future__ import annotations

import numpy as np

from fixtures.cells.scenario import Kind, Scenario
from gates.parity.blocks import Block
from gates.parity.pairs import Pair
from gates.parity.texts import judge_texts
from gates.policy import read_policy
from gates.verdict import Status

RULES = read_policy().parity
TEXT = Scenario(name="text", kind=Kind.FREE_TEXT, tokens=1, capture_size=1, passes=2, repeats=2)
LENGTH = 8


def a_block(pass_index: int) -> Block:
    """A text of LENGTH tokens whose likeliest token is one nat above its second, twice."""
    step = np.arange(LENGTH)
    tops = -1.0 - np.arange(6.0)
    return Block(
        scenario=TEXT,
        pass_index=pass_index,
        request=np.zeros(LENGTH, dtype=int),
        step=step,
        tokens=np.stack([step, step]),
        values=np.tile(tops, (2, LENGTH, 1)),
    )


def parted(block: Block, at: int, apart: float) -> Block:
    """The same text with another token at step `at`, its logprob `apart` nats off."""
    tokens, values = block.tokens.copy(), block.values.copy()
    tokens[:, at:] += 100
    values[:, at, 0] -= apart
    return block._replace(tokens=tokens, values=values)


def tied(block: Block, at: int) -> Block:
    """The same text where the two likeliest tokens of step `at` are as likely."""
    values = block.values.copy()
    values[:, at, 2] = values[:, at, 1]
    return block._replace(values=values)


def test_a_choice_at_a_tie_passes_and_is_told() -> None:
    reference = tied(a_block(0), 5)
    found = judge_texts([Pair(parted(reference, 5, 0.0), (reference,))], 0.0, RULES)
    assert found.status is Status.PASS
    assert "a choice at token 5" in found.why


def test_another_text_that_is_wrong_is_not_hidden_by_it() -> None:
    first, second = tied(a_block(0), 5), a_block(1)
    pairs = [Pair(parted(first, 5, 0.0), (first,)), Pair(parted(second, 6, 4.0), (second,))]
    found = judge_texts(pairs, 0.0, RULES)
    assert found.status is Status.FAIL
    assert "at token 6" in found.why


def test_a_token_that_is_much_less_likely_is_no_tie() -> None:
    reference = tied(a_block(0), 5)
    found = judge_texts([Pair(parted(reference, 5, 8.0), (reference,))], 0.0, RULES)
    assert found.status is Status.FAIL
