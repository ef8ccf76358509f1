"""Hygiene gate: what a run left behind, and what its GPU said meanwhile.

Owns: findings on leaked processes, on memory left on a GPU and on Xid events. Must not know:
how they were observed.
"""

from __future__ import annotations

from fixtures.evidence.cellrun import Attempt, CellRun, Xid
from fixtures.evidence.node import NodeWatch
from gates.policy import Policy, XidPolicy
from gates.verdict import FaultClass, Finding, Gate, Status


def judge_hygiene(run: CellRun, _reference: CellRun | None, policy: Policy) -> tuple[Finding, ...]:
    """Findings on the last attempt, or one PASS; nothing where there was no attempt.

    Earlier attempts failed by their node, were retried, and are told of by liveness.
    """
    if not run.attempts:
        return ()
    last = run.attempts[-1]
    found = _leaks(last.leaked_pids) + _xids(_own_xids(last, policy.xids), policy.xids)
    for watch in last.nodes:
        found += _node(watch, policy.gpu.memory_left_mib)
    clean = _finding("clean", Status.PASS, "no process was left behind, no Xid was raised")
    return found or (clean,)


def _leaks(pids: tuple[int, ...]) -> tuple[Finding, ...]:
    if not pids:
        return ()
    why = f"{len(pids)} process(es) outlived the child and had to be ended"
    return (_finding("leaked-processes", Status.FAIL, why, n=len(pids)),)


def _node(watch: NodeWatch, limit_mib: int) -> tuple[Finding, ...]:
    """What was left on one GPU, and what failed in it."""
    gpu, left, processes = watch.before.uuid, watch.memory_left_mib, watch.processes_left
    found = [
        _finding("gpu-failure", Status.INFRA, f"{gpu}: {failure} while the cell ran")
        for failure in watch.failures
    ]
    if processes:
        pids = ", ".join(str(process.pid) for process in processes[:10])
        why = f"{gpu}: {len(processes)} process(es) kept the GPU after the lease: {pids}"
        found.append(_finding("gpu-processes", Status.FAIL, why, n=len(processes)))
    if left > limit_mib:
        why = f"{gpu}: memory is still in use that was free before the lease"
        finding = _finding("gpu-memory", Status.FAIL, why)
        figures = {"measured": f"{left} MiB", "limit": f"{limit_mib} MiB"}
        found.append(finding.model_copy(update=figures))
    return tuple(found)


def _own_xids(attempt: Attempt, policy: XidPolicy) -> tuple[Xid, ...]:
    """A faulting kernel on a shared GPU may be a neighbour's; sick hardware is everybody's."""
    if not any(watch.shared for watch in attempt.nodes):
        return attempt.xids
    return tuple(xid for xid in attempt.xids if xid.code in policy.hardware)


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
