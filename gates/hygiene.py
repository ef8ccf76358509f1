"""Hygiene gate: what a run left behind, and what its GPU said meanwhile.

Owns: findings on leaked processes and Xid events. Must not know: how they were observed.
"""

from __future__ import annotations

from fixtures.evidence.cellrun import CellRun, Xid
from gates.policy import Policy, XidPolicy
from gates.verdict import FaultClass, Finding, Gate, Status


def judge_hygiene(run: CellRun, _reference: CellRun | None, policy: Policy) -> tuple[Finding, ...]:
    """Findings on the last attempt, or one PASS; nothing where there was no attempt.

    Earlier attempts failed by their node, were retried, and are told of by liveness.
    """
    if not run.attempts:
        return ()
    last = run.attempts[-1]
    found = _leaks(last.leaked_pids) + _xids(last.xids, policy.xids)
    clean = _finding("clean", Status.PASS, "no process was left behind, no Xid was raised")
    return found or (clean,)


def _leaks(pids: tuple[int, ...]) -> tuple[Finding, ...]:
    if not pids:
        return ()
    why = f"{len(pids)} process(es) outlived the child and had to be ended"
    return (_finding("leaked-processes", Status.FAIL, why, n=len(pids)),)


def _xids(xids: tuple[Xid, ...], policy: XidPolicy) -> tuple[Finding, ...]:
    """One finding per Xid number that means something; the others are tear-down or noise."""
    found = []
    for code in sorted({xid.code for xid in xids}):
        count = sum(xid.code == code for xid in xids)
        if code in policy.hardware:
            why = f"Xid {code}: the GPU or its links failed while the cell ran"
            found.append(_finding("hardware-xid", Status.INFRA, why, n=count))
        elif code in policy.application:
            why = f"Xid {code}: a kernel faulted, although the child completed"
            found.append(_finding("xid", Status.FAIL, why, fault_class="M", n=count))
    return tuple(found)


def _finding(
    check: str,
    status: Status,
    why: str,
    *,
    fault_class: FaultClass | None = None,
    n: int | None = None,
) -> Finding:
    return Finding(
        gate=Gate.HYGIENE, check=check, fault_class=fault_class, status=status, n=n, why=why
    )
