"""How the parity gate words its findings."""

from __future__ import annotations

from gates.verdict import FaultClass, Finding, Gate, Status


def finding(
    check: str,
    status: Status,
    why: str,
    *,
    fault_class: FaultClass | None = None,
    measured: str | None = None,
    limit: str | None = None,
    n: int | None = None,
) -> Finding:
    """A finding of the parity gate."""
    return Finding(
        gate=Gate.PARITY,
        check=check,
        fault_class=fault_class,
        status=status,
        measured=measured,
        limit=limit,
        n=n,
        why=why,
    )


def nats(value: float) -> str:
    """A difference of logprobs, short, and never rounded to nothing."""
    return f"{value:.3g} nats"
