"""Audit gate of the contract tier."""

from fixtures.evidence.cellrun import CellRun
from gates.verdict import Finding


def judge_contract(run: CellRun) -> tuple[Finding, ...]:
    """Findings on the contract record of one cell."""
    return ()
