"""What replays computed, held against the same steps without a graph (A, C, D, F)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fixtures.evidence.contract import Capture, ContractAudit, Descriptor, Step
from gates.contract.words import CAPTURE, INPUTS, POSITIONS, PREPARE, TABLES, failed
from gates.verdict import FaultClass, Finding, Gate

PREPARED = "prepared"
"""Beside the probe's columns: rows whose inputs are not what the scheduler sent."""

_MEANING: dict[str, tuple[str, str]] = {
    "A": ("live values did not reach the captured buffers", PREPARE),
    "C": ("work that was done outside of the graph is missing on replay", CAPTURE),
    "D": ("a host scalar of the dummy batch is baked into the graph", INPUTS),
    "F": ("padded rows changed real rows", f"{PREPARE}; {TABLES}"),
}


def judge_replay(audit: ContractAudit) -> Iterator[Finding]:
    """One finding per class of wrong output, and those on caches, ranges and errors."""
    # Where a graph was chosen, and not only where one was replayed: a replay left out is wrong too.
    graphs = [step for step in audit.steps if step.chosen is not None and step.error is None]
    captured = {capture.descriptor: capture for capture in audit.captures}
    plain = {step.chosen for step in graphs if not _padded(step) and _torn(step)}
    wrong: dict[FaultClass, list[tuple[Step, str]]] = defaultdict(list)
    for step in graphs:
        for column in step.wrong.keys() - {PREPARED}:
            wrong[_class(step, column, captured, plain)].append((step, column))
    for fault_class, cases in sorted(wrong.items()):
        yield _wrong(fault_class, cases, len(graphs))
    yield from _misprepared(graphs)
    yield from _stray_writes(graphs)
    yield from _out_of_range(graphs)
    yield from _errors(audit)


def _padded(step: Step) -> bool:
    return step.chosen is not None and step.chosen.num_tokens > sum(step.query_lens)


def _torn(step: Step) -> bool:
    """Whether what the graph reads from tensors came out wrong."""
    return bool({"input", "live", "state"} & set(step.wrong))


def _class(
    step: Step,
    column: str,
    captured: dict[Descriptor, Capture],
    plain: set[Descriptor | None],
) -> FaultClass:
    """The class that a wrong column of a step speaks for.

    `plain` holds the descriptors that are wrong without padding too: where only padded
    steps are wrong, the padding is to blame.
    """
    if not _torn(step):
        return "C" if column == "planned" else "D"
    capture = captured.get(step.chosen) if step.chosen else None
    if column == "state" and capture and not _had_metadata(capture):
        return "C"
    return "F" if _padded(step) and step.chosen not in plain else "A"


def _had_metadata(capture: Capture) -> bool:
    return any(p.metadata.present for p in capture.passes if p.kind == "capture")


def _wrong(fault_class: FaultClass, cases: list[tuple[Step, str]], of: int) -> Finding:
    meaning, at = _MEANING[fault_class]
    step, columns = cases[0][0], sorted({column for _, column in cases})
    steps = len({id(case[0]) for case in cases})
    why = (
        f"{steps} of {of} replays differ from the same step without a graph, in "
        f"{', '.join(columns)}: {meaning}; first with {step.chosen}, queries "
        f"{_lens(step.query_lens)} behind contexts {_lens(step.context_lens)}"
    )
    return failed(
        Gate.PARITY,
        "replay",
        fault_class,
        why,
        at,
        n=of,
        measured=f"{steps} wrong replays",
        limit="0 wrong replays",
    )


def _lens(values: tuple[int, ...]) -> str:
    shown = ", ".join(str(value) for value in values[:6])
    return f"({shown}{', ...' if len(values) > 6 else ''})"


def _misprepared(graphs: list[Step]) -> Iterator[Finding]:
    """Class A: wrong inputs are as wrong without a graph, so no comparison shows them."""
    bad = [step for step in graphs if PREPARED in step.wrong]
    if bad:
        step = bad[0]
        why = (
            f"{len(bad)} of {len(graphs)} steps were prepared with sequence lengths, positions or "
            f"slots other than the scheduler's, with and without a graph; first with "
            f"{step.wrong[PREPARED]} rows of queries {_lens(step.query_lens)} behind contexts "
            f"{_lens(step.context_lens)}"
        )
        yield failed(
            Gate.AUDIT, "prepared-inputs", "A", why, f"{TABLES}; {POSITIONS}", n=len(graphs)
        )


def _stray_writes(graphs: list[Step]) -> Iterator[Finding]:
    """Class F: cache slots that only real rows may touch. Without padding, stale slots (A)."""
    for fault_class in ("A", "F"):
        stray = [s for s in graphs if s.stray_writes and _padded(s) == (fault_class == "F")]
        if not stray or (
            fault_class == "F" and any(not _padded(s) and s.stray_writes for s in graphs)
        ):
            continue
        count = sum(sum(step.stray_writes.values()) for step in stray)
        who = "padded rows" if fault_class == "F" else "rows with stale slots"
        why = (
            f"{who} wrote to {count} cache slots that the same steps leave alone without a graph, "
            f"in {len(stray)} of {len(graphs)} replays; first with {stray[0].chosen}"
        )
        yield failed(
            Gate.AUDIT,
            "cache-writes",
            fault_class,
            why,
            TABLES,
            n=len(graphs),
            measured=f"{count} slots",
            limit="0 slots",
        )


def _out_of_range(graphs: list[Step]) -> Iterator[Finding]:
    """Reads and writes beyond a table: of stale values (A), or of padded rows alone (F)."""
    bad = [step for step in graphs if step.range_faults]
    if bad:
        fault_class: FaultClass = "F" if all(_padded(step) for step in bad) else "A"
        fault = bad[0].range_faults[0]
        why = (
            f"{len(bad)} of {len(graphs)} replays would access memory out of bounds: "
            f"{fault.operation} uses {fault.what} {fault.value} of {fault.limit}; first with "
            f"{bad[0].chosen}"
        )
        yield failed(Gate.AUDIT, "replay-range", fault_class, why, TABLES, n=len(graphs))


def _errors(audit: ContractAudit) -> Iterator[Finding]:
    """A step that raises instead of replaying: the graph that dispatch chose can't serve it."""
    bad = [step for step in audit.steps if step.error]
    if bad:
        why = f"{len(bad)} of {len(audit.steps)} steps raised: {bad[0].error} ({bad[0].chosen})"
        yield failed(Gate.PARITY, "step", "G", why, CAPTURE, n=len(audit.steps))
