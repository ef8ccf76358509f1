"""The capture contract of a tree as a small readable record, and what changed between two.

Owns: which facts make the contract, in which words. Must not know: which values are good;
a change is no fault, it asks for the tiers that can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fixtures.cells.axes import Breakable, GraphMode
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.contract import Capture, ContractAudit, Descriptor, Draft, Metadata, Step
from fixtures.schema import SCHEMA_VERSION, Record
from gates.verdict import Finding, Gate, Status

ABSENT, UNKNOWN = "absent", "-"

TITLES: dict[str, str] = {
    "full_shares_warmup_state": "FULL: warm-up shares state with capture",
    "full_replay": "FULL replay after changed lengths",
    "full_calls": "FULL: order of calls",
    "full_metadata": "FULL: metadata at capture",
    "piecewise_metadata": "non-breakable PIECEWISE: metadata at capture",
    "piecewise_calls": "non-breakable PIECEWISE: order of calls",
    "breakable_piecewise": "breakable PIECEWISE: metadata at capture",
    "breakable_calls": "breakable PIECEWISE: order of calls",
    "breakable_replay": "breakable replay, metadata-reading operation inside the graph",
    "breakable_num_reqs": "breakable PIECEWISE: descriptor's num_reqs",
    "full_num_reqs": "FULL of any batch: descriptor's num_reqs",
    "mixed_query_len": "FULL of any batch: max_query_len at capture, 8 tokens over 8 requests",
    "dummy_longest": "dummy batch: longest of 256 requests over 496 tokens",
    "draft_manager": "draft manager",
    "draft_prefill_metadata": "draft prefill FULL: metadata",
    "draft_alone": "draft graph right when replayed alone",
    "draft_after_target": "draft graph right after the target's replay",
}
"""The rows of a record, in reading order."""


class ContractRecord(Record):
    """A tree's capture contract: for every row of TITLES a value in plain words.

    `-` says that there was nothing to ask; `unknown: ...` that the cell gave no answer.
    """

    schema_version: int = SCHEMA_VERSION
    vllm: str
    identity: str
    rows: dict[str, str]


class Drift(Record):
    """The file `drift.json` of a run: the contracts of the base and of the tree under test."""

    schema_version: int = SCHEMA_VERSION
    base: ContractRecord
    new: ContractRecord


def contract_record(vllm: str, identity: str, runs: Sequence[CellRun]) -> ContractRecord:
    """The record that the evidence of a drift plan makes.

    Args:
        vllm: version of the tree.
        identity: what tells the tree from others.
        runs: evidence of the plan of suites/drift.yaml.
    """
    rows = {**dict.fromkeys(TITLES, UNKNOWN), **dict(_rows(runs))}
    return ContractRecord(vllm=vllm, identity=identity, rows=rows)


def drift_findings(drift: Drift) -> tuple[Finding, ...]:
    """One finding per row that changed. None of them is a fault."""
    base, new = drift.base, drift.new
    return tuple(
        Finding(
            gate=Gate.DRIFT,
            check=row,
            status=Status.PASS,
            measured=new.rows.get(row, UNKNOWN),
            limit=base.rows.get(row, UNKNOWN),
            why=(
                f"{title} is now {new.rows.get(row, UNKNOWN)!r}, was "
                f"{base.rows.get(row, UNKNOWN)!r} in {base.vllm}"
            ),
        )
        for row, title in TITLES.items()
        if base.rows.get(row, UNKNOWN) != new.rows.get(row, UNKNOWN)
    )


def _rows(runs: Sequence[CellRun]) -> Iterator[tuple[str, str]]:
    """Each row from the cell that answers it; a cell without an answer says why."""
    mixed, pieces = GraphMode.FULL, GraphMode.FULL_AND_PIECEWISE
    off, on = Breakable.OFF, Breakable.ON
    for (mode, breakable, variant), read in {
        (mixed, off, None): _mixed_rows,
        (pieces, off, None): _piecewise_rows,
        (pieces, on, None): _breakable_rows,
        (pieces, off, "spec3"): _draft_rows,
        (mixed, off, "len128"): _dummy_rows,
    }.items():
        found = [
            run
            for run in runs
            if (run.cell.key.mode, run.cell.key.breakable, run.cell.key.variant)
            == (mode, breakable, variant)
        ]
        for run in found:
            audit = run.observation.audit if run.observation else None
            if audit is not None:
                yield from read(audit)


def _mixed_rows(audit: ContractAudit) -> Iterator[tuple[str, str]]:
    captures = [c for c in audit.captures if c.descriptor.mode == "FULL"]
    yield "full_num_reqs", _num_reqs([c.descriptor for c in captures], audit)
    eight = [c for c in captures if c.descriptor.num_tokens == 8]
    yield "mixed_query_len", _said({_captured(c).max_query_len for c in eight})


def _piecewise_rows(audit: ContractAudit) -> Iterator[tuple[str, str]]:
    full = [c for c in audit.captures if c.descriptor.mode == "FULL"]
    pieces = [c for c in audit.captures if c.descriptor.mode == "PIECEWISE"]
    shares = any(c.shared or _planned_before(c) for c in full)
    yield "full_shares_warmup_state", "yes" if shares else "no"
    yield "full_replay", _replay(audit.steps, full)
    yield "full_calls", _calls(full)
    yield "full_metadata", _said({_built(_captured(c)) for c in full})
    given = {_given(c) for c in pieces}
    yield "piecewise_metadata", _said(given)
    yield "piecewise_calls", _calls(pieces)


def _given(capture: Capture) -> str:
    metadata = _captured(capture)
    if not metadata.present:
        return "no"
    shared = "shared by both passes, " if capture.shared else "fresh for each pass, "
    return f"yes, {shared}for_capture={metadata.for_capture}"


def _breakable_rows(audit: ContractAudit) -> Iterator[tuple[str, str]]:
    pieces = [c for c in audit.captures if c.descriptor.mode == "PIECEWISE"]
    if not audit.breakable_manager or not any(c.graphs for c in pieces):
        yield "breakable_piecewise", ABSENT
        return
    yield "breakable_piecewise", _said({_breakable(c) for c in pieces})
    yield "breakable_calls", _calls(pieces)
    yield "breakable_replay", _replay(audit.steps, pieces)
    yield "breakable_num_reqs", _num_reqs([c.descriptor for c in pieces], audit)


def _breakable(capture: Capture) -> str:
    metadata = _captured(capture)
    if not metadata.present:
        return "metadata None"
    return f"{'shared' if capture.shared else 'fresh'}, for_capture={metadata.for_capture}"


def _draft_rows(audit: ContractAudit) -> Iterator[tuple[str, str]]:
    for draft in audit.drafts:
        if draft.phase == "prefill":
            yield "draft_manager", draft.symbol
            yield "draft_prefill_metadata", draft.metadata_origin
            yield "draft_alone", _right(draft, draft.wrong_alone)
            yield "draft_after_target", _right(draft, draft.wrong_after_target)


def _right(draft: Draft, wrong: dict[str, int]) -> str:
    if not draft.steps:
        return UNKNOWN
    return "no" if wrong else "yes"


def _dummy_rows(audit: ContractAudit) -> Iterator[tuple[str, str]]:
    wide = [c for c in audit.captures if c.descriptor.num_tokens == 496]
    yield "dummy_longest", _said({_captured(c).longest_seq for c in wide})


def _captured(capture: Capture) -> Metadata:
    passes = [p for p in capture.passes if p.kind == "capture"]
    return passes[-1].metadata if passes else Metadata(present=False)


def _planned_before(capture: Capture) -> tuple[str, ...]:
    passes = [p for p in capture.passes if p.kind == "capture"]
    return passes[-1].planned_before if passes else ()


def _built(metadata: Metadata) -> str:
    return f"for_capture={metadata.for_capture}" if metadata.present else "none"


def _replay(steps: Sequence[Step], captures: Sequence[Capture]) -> str:
    descriptors = {c.descriptor for c in captures}
    replayed = [s for s in steps if s.replayed_graphs and s.chosen in descriptors]
    if not replayed:
        return UNKNOWN
    return "wrong" if any(s.wrong or s.stray_writes for s in replayed) else "ok"


def _calls(captures: Sequence[Capture]) -> str:
    return _said({", ".join(c.calls) for c in captures})


def _num_reqs(descriptors: Sequence[Descriptor], audit: ContractAudit) -> str:
    if all(d.num_reqs is None for d in descriptors):
        return "None"
    if all(d.num_reqs == min(d.num_tokens, audit.max_num_seqs) for d in descriptors):
        return "min(tokens, max_reqs)"
    return _said({d.num_reqs for d in descriptors})


def _said(values: Iterable[object]) -> str:
    """The common value in words, or all of them where descriptors differ."""
    return " | ".join(sorted({str(value) for value in values})) or UNKNOWN
