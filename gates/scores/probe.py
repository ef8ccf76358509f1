"""The early probe: a few answers before hours of scores.

Owns: when response lengths or logprobs are a collapse. Must not know: scores.
"""

from __future__ import annotations

import math
from statistics import fmean

from fixtures.evidence.samples import EarlyProbe, ProbeAnswer
from gates.scores.rules import ProbeRules
from gates.verdict import Finding, Gate, Status

_CHECK = "probe"


def judge_probe(
    probe: EarlyProbe | None, reference: EarlyProbe | None, rules: ProbeRules
) -> tuple[Finding, ...]:
    """One finding on the probe of a cell, or none where it made no probe."""
    if probe is None:
        return ()
    if not probe.answers:
        return (_finding(Status.INVALID, "the early probe has no answer"),)
    unreal = [one.doc_id for one in probe.answers if not _is_real(one)]
    if unreal:
        why = f"logprobs of document {unreal[0]} are no numbers, as of {len(unreal)} in the probe"
        return (_finding(Status.FAIL, why, n=len(probe.answers), fault_class="U"),)
    if reference is None:
        return _stopped(probe) or (_alone(probe),)
    if probe.protocol != reference.protocol:
        return (_finding(Status.INVALID, "the probe's protocol is not the reference cell's"),)
    return _compared(probe, reference, rules)


def _is_real(answer: ProbeAnswer) -> bool:
    return answer.mean_logprob is None or math.isfinite(answer.mean_logprob)


def _stopped(probe: EarlyProbe) -> tuple[Finding, ...]:
    if probe.stopped is None:
        return ()
    why = f"the child stopped before the scores, which no limit here asks for: {probe.stopped}"
    return (_finding(Status.INVALID, why, n=len(probe.answers)),)


def _alone(probe: EarlyProbe) -> Finding:
    why = f"{len(probe.answers)} questions of {probe.task} were answered; nothing to compare with"
    return _finding(Status.PASS, why, n=len(probe.answers))


def _compared(probe: EarlyProbe, reference: EarlyProbe, rules: ProbeRules) -> tuple[Finding, ...]:
    others = {one.doc_id: one for one in reference.answers}
    both = [(one, others[one.doc_id]) for one in probe.answers if one.doc_id in others]
    if not both:
        return (_finding(Status.INVALID, "the probe asked no question of the reference's probe"),)
    ratio = (1 + fmean(one.length for one, _ in both)) / (1 + fmean(one.length for _, one in both))
    shifts = [
        mine.mean_logprob - other.mean_logprob
        for mine, other in both
        if mine.mean_logprob is not None
        and other.mean_logprob is not None
        and math.isfinite(other.mean_logprob)
    ]
    shift = fmean(shifts) if shifts else 0.0
    measured = f"{ratio:.2f} of the length, logprobs shifted by {shift:+.3f} nats a token"
    limit = f"1/{rules.length_ratio:g} to {rules.length_ratio:g}, {rules.logprob_shift:g} nats"
    what = f"{len(both)} questions of {probe.task} against the reference cell: {measured} (means)"
    collapsed = max(ratio, 1 / ratio) >= rules.length_ratio or abs(shift) >= rules.logprob_shift
    if collapsed:
        found = _finding(Status.FAIL, f"collapsed: {what}", n=len(both), fault_class="U")
    else:
        found = (*_stopped(probe), _finding(Status.PASS, what, n=len(both)))[0]
    return (found.model_copy(update={"measured": measured, "limit": limit}),)


def _finding(
    status: Status, why: str, *, n: int | None = None, fault_class: str | None = None
) -> Finding:
    return Finding(
        gate=Gate.SCORES, check=_CHECK, fault_class=fault_class, status=status, n=n, why=why
    )
