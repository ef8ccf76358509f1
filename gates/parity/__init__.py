"""The parity gate: what a cell with graphs wrote, held against what it writes without them."""

from gates.parity.gate import judge_parity

__all__ = ["judge_parity"]
