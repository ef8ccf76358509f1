"""Cells as pytest items: one per cell and gate, with the gate's verdicts.

Owns: how a tier's plan becomes items, and how a verdict ends one. Must not know: how a cell is
run or judged.
"""

from __future__ import annotations

import warnings

import pytest

from fixtures.cells.axes import Tier
from fixtures.cells.cell import CellKey, Plan
from fixtures.errors import GraphGateError
from gates.judge import GATES_OF_TIER, OWN_STATUSES, worst
from gates.verdict import Finding, Gate, Status, Verdict
from suites.session import CellSession

_SESSION = pytest.StashKey[CellSession]()


def add_items(metafunc: pytest.Metafunc, tier: Tier, planned: Plan) -> None:
    """One item per planned cell and gate of its tier; the same list in every process.

    One tier a session: the cells of a session share one folder and one plan.
    """
    config = metafunc.config
    session_id = getattr(config, "workerinput", {}).get("testrunuid")
    config.stash[_SESSION] = CellSession(planned, config.getoption("--graphgate-out"), session_id)
    items = [
        pytest.param(cell.key, gate, id=f"{cell.key}-{gate}")
        for cell in planned.cells
        for gate in gates_of(tier)
    ]
    metafunc.parametrize(("key", "gate"), items)


def gates_of(tier: Tier) -> tuple[Gate, ...]:
    """The gates that may speak about a cell of the tier: the audit only where there was one."""
    gates = GATES_OF_TIER[tier]
    return gates if Gate.AUDIT in gates else (*gates, Gate.AUDIT)


def check(key: CellKey, gate: Gate, config: pytest.Config) -> None:
    """The findings of one gate on one cell; a failure's message is the findings' own words."""
    try:
        verdict = config.stash[_SESSION].verdict(key)
    except GraphGateError as error:
        pytest.fail(str(error), pytrace=False)
    report(gate, verdict)


def report(gate: Gate, verdict: Verdict) -> None:
    """Ends the item as pytest says it: failed, xfailed, skipped, or passed by returning."""
    findings = tuple(finding for finding in verdict.findings if finding.gate is gate)
    if not findings and verdict.status in OWN_STATUSES - {Status.UNSUPPORTED}:
        pytest.skip(f"not judged: the run itself is {verdict.status}")
    if not findings:
        return
    status = worst(findings)
    why = _why(findings, status)
    if status.blocks:
        pytest.fail(why, pytrace=False)
    elif status is Status.XFAIL:
        pytest.xfail(why)
    elif status is Status.UNSUPPORTED:
        pytest.skip(why)
    elif status is Status.XPASS:
        warnings.warn(why, stacklevel=1)


def _why(findings: tuple[Finding, ...], status: Status) -> str:
    """The words of the findings that made the status, one a line, each with its fault class."""
    return "\n".join(
        f"{finding.status} {finding.identity}: {finding.why}"
        for finding in findings
        if finding.status is status
    )
