"""Liveness gate: did the child live, make progress, and say that it was done?

Owns: the run's own status, which shuts out the other gates. Must not know: what the
child was computing, or how triage found its report.
"""

from __future__ import annotations

import signal

from fixtures.cells.axes import GraphMode
from fixtures.evidence.cellrun import Attempt, CellRun
from fixtures.evidence.crash import CrashKind, CrashReport
from fixtures.evidence.exits import Exited, Killed, KillReason, NeverStarted, Signaled
from fixtures.triage.device import kernel_title
from gates.policy import Policy
from gates.verdict import FaultClass, Finding, Gate, Status

STATUS_OF_KIND = {
    CrashKind.REG: Status.CRASH,
    CrashKind.AMB: Status.CRASH,
    CrashKind.SHADOW: Status.CRASH,
    CrashKind.INFRA: Status.INFRA,
    CrashKind.CONFIG: Status.CONFIG,
    CrashKind.VAC: Status.VACUOUS,
}
"""What a triaged failure makes of a run that did not complete. What cannot be told apart
from a fault of the code under test counts as one."""

_CAPTURE_ERRORS = ("cudaErrorStreamCapture", "cudaErrorCapturedEvent")

_CHECKS = {
    Status.MISSING: "received",
    Status.HANG: "progress",
    Status.CRASH: "exit",
    Status.INFRA: "node",
    Status.CONFIG: "request",
    Status.UNSUPPORTED: "refusal",
    Status.VACUOUS: "log",
    Status.PASS: "completed",
}


def judge_liveness(
    run: CellRun, _reference: CellRun | None, _policy: Policy
) -> tuple[Finding, ...]:
    """Exactly one finding: PASS, or the run's own status with its cause in words."""
    status = _status(run)
    return (
        Finding(
            gate=Gate.LIVENESS,
            check=_check(run, status),
            fault_class=_fault_class(run, status),
            status=status,
            n=len(run.attempts),
            why=_why(run, status),
            evidence=_evidence(run) if status is not Status.PASS else (),
        ),
    )


def _status(run: CellRun) -> Status:
    if not run.attempts:
        return Status.MISSING
    ended = run.attempts[-1].exit
    if isinstance(ended, Exited):
        return _status_of_exit(run, ended.code)
    if isinstance(ended, Killed) and ended.reason is KillReason.INTERRUPTED:
        return Status.MISSING
    report = _report(run)
    if report is not None and report.kind in (CrashKind.INFRA, CrashKind.CONFIG):
        return STATUS_OF_KIND[report.kind]
    if isinstance(ended, NeverStarted):
        return Status.INFRA
    hung = isinstance(ended, Killed) and ended.reason is KillReason.NO_PROGRESS
    return Status.HANG if hung else Status.CRASH


def _status_of_exit(run: CellRun, code: int) -> Status:
    """The status of a child that ended by itself; exit code 0 alone proves nothing."""
    report, record = _report(run), run.observation
    if report is not None and report.kind in (CrashKind.REG, CrashKind.INFRA):
        return STATUS_OF_KIND[report.kind]
    if record is not None and record.refusal is not None:
        return Status(record.refusal.kind.value)
    if record is None or code != 0:
        return STATUS_OF_KIND[report.kind] if report is not None else Status.CRASH
    graphs_expected = run.cell.expected.mode is not GraphMode.NONE
    if report is not None and report.kind is CrashKind.VAC and graphs_expected:
        return Status.VACUOUS
    return Status.PASS


def _report(run: CellRun) -> CrashReport | None:
    """The report on the last attempt; those of earlier attempts led to a retry."""
    if run.crash is not None:
        return run.crash
    return run.attempts[-1].crash if run.attempts else None


def _check(run: CellRun, status: Status) -> str:
    no_record = run.observation is None and _report(run) is None
    if status is Status.CRASH and no_record and isinstance(run.attempts[-1].exit, Exited):
        return "completion-record"
    return _CHECKS[status]


def _fault_class(run: CellRun, status: Status) -> FaultClass | None:
    """H: nothing was proven. I: illegal in a capture. M: hidden behind a good exit or record."""
    if status is Status.VACUOUS:
        return "H"
    report = _report(run)
    if status is Status.CRASH and report is not None and _illegal_in_capture(report):
        return "I"
    ended = run.attempts[-1].exit if run.attempts else None
    clean = isinstance(ended, Exited) and ended.code == 0
    hidden = clean or (isinstance(ended, Exited) and run.observation is not None)
    return "M" if status is Status.CRASH and hidden else None


def _illegal_in_capture(report: CrashReport) -> bool:
    """Whether CUDA said that what was done is not permitted in a capture (errors 900 to 907)."""
    return (report.exception or "").startswith(_CAPTURE_ERRORS)


def _why(run: CellRun, status: Status) -> str:
    if status is Status.PASS:
        return _how_it_passed(run)
    if not run.attempts:
        return "no attempt was recorded"
    refusal = run.observation.refusal if run.observation else None
    if refusal is not None and status.value == refusal.kind.value:
        symbol = f" ({refusal.symbol})" if refusal.symbol else ""
        return f"{refusal.why}{symbol}"
    report, last = _report(run), run.attempts[-1]
    parts = [_cause(report)] if report is not None and not _only_says(report, last) else []
    parts.append(f"the child {_how_it_ended(last)}")
    if isinstance(last.exit, Exited):
        missing = "without a completion record" if run.observation is None else None
        parts[-1] += f" {missing or 'after its completion record'}"
    tries = f" (after {len(run.attempts)} attempts)" if len(run.attempts) > 1 else ""
    return "; ".join((*parts, *_quarantine(run.attempts))) + tries


def _only_says(report: CrashReport, attempt: Attempt) -> bool:
    """Whether the report's title is how the child ended, which is told anyway and in full."""
    return report.sources == ("exit",) and isinstance(attempt.exit, NeverStarted)


def _how_it_passed(run: CellRun) -> str:
    text = "the child completed and left its completion record"
    failed = [attempt for attempt in run.attempts[:-1] if attempt.crash is not None]
    earlier = "; ".join(
        f"attempt {attempt.index + 1} was {attempt.crash.kind}: {attempt.crash.title}"
        for attempt in failed
        if attempt.crash is not None
    )
    tries = len(run.attempts)
    if tries > 1:
        text += f" at attempt {tries} of {tries}" + (f"; {earlier}" if earlier else "")
    return "; ".join((text, *_quarantine(run.attempts)))


def _quarantine(attempts: tuple[Attempt, ...]) -> tuple[str, ...]:
    """Which GPUs should be taken out of service, and why; asked for once each."""
    asked = (
        f"quarantine of {attempt.gpu or 'the GPU'} is asked for: {attempt.quarantine[0]}"
        for attempt in attempts
        if attempt.quarantine
    )
    return tuple(dict.fromkeys(asked))


def _cause(report: CrashReport) -> str:
    """Title and place of a failure, as `title in kernel (file:line)`."""
    frame = report.frame
    if frame is None:
        return report.title
    named = frame.function in report.title or kernel_title(frame) in report.title
    inside = "" if named else f" in {frame.function}"
    line = f":{frame.line}" if frame.line is not None else ""
    place = f" ({frame.file}{line})" if frame.file else ""
    return f"{report.title}{inside}{place}"


def _how_it_ended(attempt: Attempt) -> str:
    match attempt.exit:
        case Exited(code=code):
            return f"exited with code {code} in phase {attempt.phase}"
        case Signaled(signo=signo):
            return f"was ended by {_signal_name(signo)} in phase {attempt.phase}"
        case NeverStarted(why=why):
            return f"could not be started: {why}"
        case Killed(reason=KillReason.NO_PROGRESS, phase=phase):
            return f"made no progress in phase {phase} and was ended by us"
        case Killed(reason=KillReason.LOG_LIMIT, phase=phase):
            return f"wrote more log than is kept, in phase {phase}, and was ended by us"
        case Killed(phase=phase):
            return f"was interrupted in phase {phase}"


def _signal_name(signo: int) -> str:
    try:
        return signal.Signals(signo).name
    except ValueError:
        return f"signal {signo}"


def _evidence(run: CellRun) -> tuple[str, ...]:
    """Files of the last attempt, relative to the cell's folder."""
    if not run.attempts:
        return ()
    last = run.attempts[-1]
    return tuple(f"attempt-{last.index}/{artifact.path}" for artifact in last.artifacts)
