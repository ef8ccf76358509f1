"""The settings of the parity gate, as `policy.yaml` holds them under `parity`."""

from __future__ import annotations

from pydantic import Field

from fixtures.schema import Record


class ParityRules(Record):
    """See docs/parity.md for what each setting does to false alarms and to power."""

    alpha: float = Field(default=1e-3, gt=0, lt=0.5)
    """Chance of one false block or more among a cell's permutation tests (Holm)."""
    padding_margin: float = Field(default=2.0, ge=1)
    """Times what padding alone does in the reference, which a padded step may differ by."""
    widest_margin: float = Field(default=2.0, ge=1)
    """Times the widest range within one cell, which a single gap must exceed."""
    sensitivity: float = Field(default=0.02, gt=0)
    """Nats by which one changed early token must move later logprobs, on average."""
    distinct_tokens: int = Field(default=8, ge=1)
    """Different tokens that free text must hold; a dead model loops over two or three."""
