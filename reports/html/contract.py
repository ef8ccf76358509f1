"""The facts of the contract tier, brought down to tables that a person can read.

Owns: which of an audit's facts are shown, and how many. Must not know: HTML, and which
facts are faults; observation.json in the cell's folder holds all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from fixtures.evidence.contract import Capture, ContractAudit, Draft, Metadata, Step

SHOWN = 24
"""Rows of one table that are spelled out."""


class CaptureRow(NamedTuple):
    """One captured descriptor."""

    descriptor: str
    calls: str
    metadata: str
    graphs: int
    eager_breaks: int
    launches: int
    shared: str


class ReplayRow(NamedTuple):
    """One step of the workload that differs from the run without a graph, or failed."""

    chosen: str
    queries: str
    contexts: str
    wrong: str


class ContractFacts(NamedTuple):
    """What is shown of one audit. `steps_wrong` of `steps` replays differ."""

    sizes: tuple[tuple[str, str], ...]
    captures: tuple[CaptureRow, ...]
    captures_left: int
    steps: int
    steps_wrong: int
    replays: tuple[ReplayRow, ...]
    replays_left: int
    dispatch: tuple[tuple[str, int], ...]
    dispatch_left: int
    drafts: tuple[tuple[str, str, str, str], ...]


def contract_facts(audit: ContractAudit) -> ContractFacts:
    """The tables of one contract cell."""
    wrong = [step for step in audit.steps if step.wrong or step.stray_writes or step.error]
    chosen = Counter(str(case.chosen or "no graph") for case in audit.dispatch).most_common()
    return ContractFacts(
        sizes=tuple(_sizes(audit)),
        captures=tuple(_capture(capture) for capture in audit.captures[:SHOWN]),
        captures_left=max(0, len(audit.captures) - SHOWN),
        steps=len(audit.steps),
        steps_wrong=len(wrong),
        replays=tuple(_replay(step) for step in wrong[:SHOWN]),
        replays_left=max(0, len(wrong) - SHOWN),
        dispatch=tuple(chosen[:SHOWN]),
        dispatch_left=max(0, len(chosen) - SHOWN),
        drafts=tuple(_draft(draft) for draft in audit.drafts),
    )


def _sizes(audit: ContractAudit) -> Iterable[tuple[str, str]]:
    yield "manager", audit.manager
    yield "requested", audit.requested
    yield "effective", audit.effective
    yield "capture sizes", _listed(audit.capture_sizes)
    yield "most requests", str(audit.max_num_seqs)
    yield "longest sequence", str(audit.max_model_len)
    yield "tokens a decode step", str(audit.query_len)
    yield "late captures", str(audit.late_captures)
    if audit.lora_cases:
        yield "LoRA cases", _listed(audit.lora_cases)
    if audit.context_parallel > 1:
        yield "decode context parallelism", str(audit.context_parallel)
    for level in audit.support:
        yield f"support of {level.backend}", level.level


def _capture(capture: Capture) -> CaptureRow:
    captured = [one for one in capture.passes if one.kind == "capture"]
    return CaptureRow(
        descriptor=str(capture.descriptor),
        calls=", ".join(capture.calls),
        metadata=_metadata(captured[-1].metadata) if captured else "no capture pass",
        graphs=capture.graphs,
        eager_breaks=capture.eager_breaks,
        launches=capture.launches,
        shared=", ".join(capture.shared) or "nothing",
    )


def _metadata(metadata: Metadata) -> str:
    if not metadata.present:
        return "none"
    facts = (
        ("requests", metadata.num_reqs),
        ("tokens", metadata.num_tokens),
        ("max_query_len", metadata.max_query_len),
        ("max_seq_len", metadata.max_seq_len),
        ("longest query", metadata.longest_query),
        ("longest sequence", metadata.longest_seq),
    )
    told = ", ".join(f"{name} {value}" for name, value in facts if value is not None)
    return "; ".join((told, *metadata.inconsistencies))


def _replay(step: Step) -> ReplayRow:
    wrong = [f"{rows} rows of {column}" for column, rows in step.wrong.items()]
    wrong += [f"{slots} stray writes to {cache}" for cache, slots in step.stray_writes.items()]
    wrong += [step.error] if step.error else []
    forced = " (forced)" if step.forced else ""
    return ReplayRow(
        chosen=f"{step.chosen or 'no graph'}{forced}",
        queries=_listed(step.query_lens),
        contexts=_listed(step.context_lens),
        wrong="; ".join(wrong),
    )


def _draft(draft: Draft) -> tuple[str, str, str, str]:
    def words(wrong: dict[str, int]) -> str:
        told = ", ".join(f"{rows} rows of {column} wrong" for column, rows in wrong.items())
        return told or "right"

    alone, after = words(draft.wrong_alone), words(draft.wrong_after_target)
    return f"{draft.symbol} ({draft.phase})", draft.metadata_origin, alone, after


def _listed(numbers: Iterable[int]) -> str:
    values = tuple(numbers)
    told = ", ".join(map(str, values[:SHOWN]))
    return f"{told} and {len(values) - SHOWN} more" if len(values) > SHOWN else told
