"""What happened at capture: shared state (C), inputs of what ran (E), frozen sizes (D)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fixtures.evidence.contract import Capture, ContractAudit, Pass
from gates.contract.words import BREAKS, CAPTURE, DUMMY, INPUTS, PREPARE, failed, some
from gates.verdict import Finding, Gate, Status


def judge_captures(
    audit: ContractAudit, captures: Sequence[Capture], *, whose: str = "", by: str = CAPTURE
) -> Iterator[Finding]:
    """Findings on captures of one manager.

    Args:
        audit: the cell's record, for its settings and dispatch table.
        captures: the manager's captures.
        whose: prefix of the check's name for a manager other than the model's own.
        by: the place in vLLM that decides what the manager's passes are given.
    """
    yield from _shared_state(captures, audit.breakable, whose, by)
    yield from _eager_inputs(audit, captures, whose, by)
    yield from _local_lengths(audit, captures, whose)
    if not whose:
        yield from _frozen_query(audit, captures)
        yield from _frozen_sequence(audit, captures)
        yield from _breaks(captures, audit.breakable)


def _captured_pass(capture: Capture) -> Pass | None:
    """The pass that was captured: the last of its kind."""
    return next((p for p in reversed(capture.passes) if p.kind == "capture"), None)


def _shared_state(
    captures: Sequence[Capture], breakable: bool, whose: str, by: str
) -> Iterator[Finding]:
    """Class C: whatever warm-up filled in is not planned again, so it isn't in the graph."""
    held = [c for c in captures if c.descriptor.mode == "FULL" or (breakable and c.graphs)]
    for mode in dict.fromkeys(c.descriptor.mode for c in held):
        of_mode = [c for c in held if c.descriptor.mode == mode]
        filled = {c.descriptor: p.planned_before for c in of_mode if (p := _captured_pass(c))}
        bad = [c for c in of_mode if c.shared or filled.get(c.descriptor)]
        if not bad:
            continue
        shared = ", ".join(bad[0].shared) or "no object, but a lazily filled field"
        lazy = ", ".join(filled.get(bad[0].descriptor) or ()) or "nothing"
        why = (
            f"{mode}: {some([c.descriptor for c in bad], len(of_mode))} captured with the "
            f"warm-up's state; shared: {shared}; already filled when capture began: {lazy}. "
            "What is planned on first use is then missing from the graph"
        )
        yield failed(
            Gate.AUDIT,
            f"{whose}shared-state",
            "C",
            why,
            by,
            n=len(of_mode),
            measured=f"{len(bad)} descriptors",
            limit="0 descriptors",
        )


def _eager_inputs(
    audit: ContractAudit, captures: Sequence[Capture], whose: str, by: str
) -> Iterator[Finding]:
    """Class E: whatever runs at capture time gets in-range, self-consistent inputs."""
    bad: list[tuple[Capture, str]] = []
    for capture in captures:
        problems = [text for p in capture.passes for text in _problems(audit, p)]
        if problems:
            bad.append((capture, "; ".join(dict.fromkeys(problems))))
    if bad:
        longest = max(p.metadata.longest_seq or 0 for capture, _ in bad for p in capture.passes)
        why = (
            f"{some([c.descriptor for c, _ in bad], len(captures))} ran at capture time on inputs "
            f"that are out of range or contradict each other: {bad[0][1]}"
        )
        yield failed(
            Gate.AUDIT,
            f"{whose}eager-inputs",
            "E",
            why,
            f"{DUMMY}, handed on by {INPUTS}" if by == CAPTURE else by,
            n=len(captures),
            measured=f"longest dummy sequence {longest} tokens",
            limit=f"max_model_len {audit.max_model_len} tokens",
        )


def _problems(audit: ContractAudit, ran: Pass) -> Iterator[str]:
    longest = ran.metadata.longest_seq or 0
    if longest > audit.max_model_len:
        yield f"a request of {longest} tokens, max_model_len {audit.max_model_len}"
    yield from ran.metadata.inconsistencies
    for fault in ran.range_faults:
        yield f"{fault.operation} would use {fault.what} {fault.value} of {fault.limit}"


def _local_lengths(
    audit: ContractAudit, captures: Sequence[Capture], whose: str
) -> Iterator[Finding]:
    """Class E: with decode context parallelism each rank needs its share of the lengths."""
    given = [c for c in captures if any(p.metadata.present for p in c.passes)]
    bad = [c for c in given if any(p.metadata.local_seq_lens_right is False for p in c.passes)]
    if bad:
        why = (
            f"{some([c.descriptor for c in bad], len(given))} captured with local sequence lengths "
            f"that are missing or are not a rank's share of the lengths over "
            f"{audit.context_parallel} ranks"
        )
        yield failed(Gate.AUDIT, f"{whose}local-lengths", "E", why, INPUTS, n=len(given))


def _frozen_query(audit: ContractAudit, captures: Sequence[Capture]) -> Iterator[Finding]:
    """Class D: dispatch admits longer queries than the metadata was captured for."""
    admitted = {c.descriptor: 0 for c in captures if c.descriptor.mode == "FULL"}
    for case in audit.dispatch:
        if case.chosen in admitted:
            admitted[case.chosen] = max(admitted[case.chosen], case.max_query_len)
    bad = []
    for capture in captures:
        ran, longest = _captured_pass(capture), admitted.get(capture.descriptor, 0)
        frozen = ran.metadata.max_query_len if ran else None
        if frozen is not None and longest > frozen:
            bad.append((capture.descriptor, longest, frozen))
    if bad:
        desc, longest, frozen = max(bad, key=lambda one: one[1])
        why = (
            f"{len(bad)} of {len(admitted)} FULL descriptors admit longer queries than they were "
            f"captured for: dispatch gives {desc} a request of {longest} query tokens, its "
            f"metadata froze max_query_len {frozen}"
        )
        yield failed(
            Gate.AUDIT,
            "frozen-query-length",
            "D",
            why,
            INPUTS,
            n=len(admitted),
            measured=f"query of {longest} tokens admitted",
            limit=f"max_query_len {frozen}",
        )


def _frozen_sequence(audit: ContractAudit, captures: Sequence[Capture]) -> Iterator[Finding]:
    """Class D: a full graph must be captured for the longest sequence that can come."""
    full = [c for c in captures if c.descriptor.mode == "FULL"]
    bad = []
    for capture in full:
        ran = _captured_pass(capture)
        frozen = ran.metadata.max_seq_len if ran else None
        if frozen is not None and frozen < audit.max_model_len:
            bad.append((capture.descriptor, frozen))
    if bad:
        why = (
            f"{some([desc for desc, _ in bad], len(full))} captured for sequences of up to "
            f"{bad[0][1]} tokens, but the model admits {audit.max_model_len}"
        )
        yield failed(
            Gate.AUDIT,
            "frozen-sequence-length",
            "D",
            why,
            PREPARE,
            n=len(full),
            measured=f"max_seq_len {bad[0][1]}",
            limit=f"max_model_len {audit.max_model_len}",
        )


def _breaks(captures: Sequence[Capture], breakable: bool) -> Iterator[Finding]:
    """Class H: a breakable capture that never breaks has attention inside the graph."""
    pieces = [c for c in captures if c.descriptor.mode == "PIECEWISE" and c.graphs]
    unbroken = [c for c in pieces if not c.eager_breaks]
    if breakable and unbroken:
        why = (
            f"{some([c.descriptor for c in unbroken], len(pieces))} were captured without a break: "
            "attention went into the graph, where PIECEWISE promises that it runs eagerly"
        )
        yield Finding(
            gate=Gate.ENGAGEMENT,
            check="breaks",
            fault_class="H",
            status=Status.VACUOUS,
            n=len(pieces),
            why=f"{why} [{BREAKS}]",
        )
