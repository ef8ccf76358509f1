"""The contract tier's gates: what a release's capture code did, held against what must hold.

Owns: the rules. They know no release: each compares parts of one record with each other.
Must not know: how the record was made.
"""

from __future__ import annotations

from fixtures.evidence.cellrun import CellRun
from gates.contract.capturing import judge_captures
from gates.contract.descriptors import judge_descriptors
from gates.contract.dispatching import judge_dispatch
from gates.contract.drafting import judge_drafts
from gates.contract.replaying import judge_replay
from gates.verdict import Finding, Gate, Status


def judge_contract(run: CellRun) -> tuple[Finding, ...]:
    """Findings on the contract record of one cell; nothing where there is no record."""
    audit = run.observation.audit if run.observation is not None else None
    if audit is None or not audit.planned:
        return ()
    found = (
        *judge_captures(audit, audit.captures),
        *judge_replay(audit),
        *judge_descriptors(audit),
        *judge_dispatch(audit),
        *judge_drafts(audit),
    )
    gates = {finding.gate for finding in found if finding.status is not Status.PASS}
    passed = []
    if Gate.AUDIT not in gates:
        why = "warm-up and capture share nothing; what ran at capture had inputs in range"
        passed.append(_passed(Gate.AUDIT, "capture", why, len(audit.captures)))
    if Gate.PARITY not in gates and audit.steps:
        replays = sum(step.replayed_graphs > 0 for step in audit.steps)
        why = f"{replays} replays gave what the same steps give without a graph"
        passed.append(_passed(Gate.PARITY, "replay", why, replays))
    return (*found, *passed)


def _passed(gate: Gate, check: str, why: str, n: int) -> Finding:
    return Finding(gate=gate, check=check, status=Status.PASS, n=n, why=why)
