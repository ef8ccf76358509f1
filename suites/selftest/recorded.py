"""Outputs that were recorded on an H200, as blocks for the parity gate.

Owns reading `corpus/parity/`, which an earlier harness left: one repeat a prompt, no fillers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fixtures.cells.scenario import Kind, Scenario
from fixtures.evidence.outputs import TOP
from gates.parity.blocks import Block
from gates.parity.pairs import Pair

RECORDED = Path(__file__).with_name("corpus") / "parity" / "h200-0.26.0.json"
LARGEST_GRAPH = 16
LLAMA_LENGTHS = (*range(2, 17), 24, 40)
"""Tokens of the recorded prompts: those that fit a graph, then two that are too long."""

TEXT, PROMPTS = "dsv4_text", "llama_prompts"


def noise() -> list[float]:
    """Differences in nats between two runs of one DeepSeek V4 batch of ten, row by row."""
    found: list[float] = _read()["dsv4_batch_noise"]
    return found


def recorded_pairs(part: str, tested: str, reference: str) -> list[Pair]:
    """Every recorded sequence of one arm beside that of another."""
    arms = _read()[part]
    return [
        Pair(_block(part, place, one), (_block(part, place, other),))
        for place, (one, other) in enumerate(zip(arms[tested], arms[reference], strict=True))
    ]


def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def _block(part: str, place: int, sequence: dict[str, Any]) -> Block:
    tokens = np.asarray([sequence["ids"]])
    rows = [
        [step[str(token)], *list(step.values())[:TOP]]
        for token, step in zip(sequence["ids"], sequence["lp"], strict=True)
    ]
    count = tokens.shape[1]
    return Block(
        scenario=_scenario(part, place),
        pass_index=0,
        request=np.zeros(count, dtype=np.int64),
        step=np.arange(count),
        tokens=tokens,
        values=np.asarray([rows]),
    )


def _scenario(part: str, place: int) -> Scenario:
    prompts = part == PROMPTS
    tokens = LLAMA_LENGTHS[place] if prompts else 1
    return Scenario(
        name=f"prompt-{tokens}" if prompts else "text",
        kind=Kind.PROMPT_ALONE if prompts else Kind.FREE_TEXT,
        tokens=tokens,
        # No fillers were recorded, so prompts within a graph are held as if none was padded.
        capture_size=tokens if tokens <= LARGEST_GRAPH else None,
        passes=1,
        repeats=1,
    )
