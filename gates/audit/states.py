"""Attention state of warm-up and capture (class C): what was planned must be planned again."""

from __future__ import annotations

from collections.abc import Iterator

from fixtures.evidence.audit import CaptureAudit, LazyField, StateAudit
from gates.audit.harmless import Check, Harmless
from gates.audit.words import CAPTURE, class_name, failed, some
from gates.verdict import Finding


def judge_states(audit: CaptureAudit, harmless: Harmless) -> Iterator[Finding]:
    """Fields that warm-up filled and that were filled already when capture began.

    What is filled on first use is then not done again, so the kernels that do it are missing
    from the graph. An object that both passes reach is no fault by itself: builders hand out
    objects of their own. The layer's metadata is one: vLLM makes it anew for every pass.
    """
    bad = [(state, tuple(_stale(state, harmless))) for state in audit.states]
    bad = [(state, fields) for state, fields in bad if fields or _shares_metadata(state)]
    for mode in dict.fromkeys(state.descriptor.mode for state, _ in bad):
        of_mode = [(state, fields) for state, fields in bad if state.descriptor.mode == mode]
        state, fields = of_mode[0]
        shared = some([class_name(one.type) for one in state.shared])
        backends = list(dict.fromkeys(class_name(field.backend) for field in fields))
        whose = some(backends or [class_name(name) for name in state.backends])
        names = some([_named(field) for field in fields], 6)
        total = sum(state.descriptor.mode == mode for state in audit.states)
        why = "captured with warm-up's attention state, so that what is done on first use is not "
        why += f"in the graph: {len(of_mode)} of {total} descriptors, first {state.descriptor}. "
        why += f"Backend: {whose}"
        why += f". Filled already when capture began: {names}" if names else ""
        why += f". Objects of both passes: {shared}" if shared else ""
        yield failed(
            "warm-state",
            "C",
            why,
            CAPTURE,
            n=total,
            measured=f"{len(of_mode)} descriptors",
            limit="0 descriptors",
            evidence=tuple(field.path for field in fields[:8]),
        )


def _stale(state: StateAudit, harmless: Harmless) -> Iterator[LazyField]:
    for field in state.lazy:
        filled = field.at_capture in ("filled", "warmup")
        if filled and not harmless.excuses(Check.STATE, _named(field)):
            yield field


def _named(field: LazyField) -> str:
    return f"{class_name(field.holder)}.{field.name}"


def _shares_metadata(state: StateAudit) -> bool:
    return any(one.path in state.backends for one in state.shared)
