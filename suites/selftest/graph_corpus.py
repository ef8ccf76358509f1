"""The recorded graphs: audits of real engines, cut to a few graphs, and how they get here.

Owns the corpus folder `graphs/`: an audit, what the judge must say of it, and where it comes
from. `python -m suites.selftest.graph_corpus ATTEMPT NAME --tokens 16,1 --what TEXT` adds the
audit of an attempt's folder; `expected.json` is what the judge says now, so read it.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path

from fixtures.evidence.arguments import words
from fixtures.evidence.audit import AUDIT_FILE, CaptureAudit, Checkpoint, parse_audit
from fixtures.schema import Record
from gates.audit import judge_audit
from gates.audit.harmless import default_harmless
from gates.verdict import Finding
from suites.selftest.triage_corpus import CORPUS

GRAPH_CORPUS = CORPUS / "graphs"
EXPECTED, PROVENANCE = "expected.json", "provenance.json"


class ExpectedFinding(Record):
    """A finding without its numbers of graphs: the part of `why` that names the cause."""

    check: str
    fault_class: str | None
    status: str
    why: str


class Expected(Record):
    """`expected.json`: all that the judge says of the record."""

    findings: tuple[ExpectedFinding, ...]


def graph_folders() -> list[Path]:
    """The recorded audits."""
    return sorted(path.parent for path in GRAPH_CORPUS.glob(f"*/{EXPECTED}"))


def read_graphs(folder: Path) -> CaptureAudit:
    """The audit in a folder of the corpus."""
    return parse_audit((folder / AUDIT_FILE).read_bytes())


def judged(audit: CaptureAudit) -> Expected:
    """What the judge says."""
    return Expected(findings=tuple(map(_expected, judge_audit(audit, default_harmless()))))


def trimmed(audit: CaptureAudit, tokens: frozenset[int]) -> CaptureAudit:
    """The audit of the descriptors with so many tokens alone, and of the memory they reach."""
    kept = [i for i, trace in enumerate(audit.traces) if trace.descriptor.num_tokens in tokens]
    number = {old: new for new, old in enumerate(kept)}
    traces = tuple(audit.traces[index] for index in kept)
    reached = sorted(
        {
            word.value
            for trace in traces
            for node in trace.nodes
            if node.kernel is not None
            for word in words(audit.kernels[node.kernel], node)
        }
    )
    checkpoints = (_trimmed(checkpoint, number, reached) for checkpoint in audit.checkpoints)
    return audit.model_copy(
        update={
            "traces": traces,
            "states": tuple(s for s in audit.states if s.descriptor.num_tokens in tokens),
            "replays": tuple(r for r in audit.replays if r.descriptor.num_tokens in tokens),
            "refreshes": tuple(r for r in audit.refreshes if r.descriptor.num_tokens in tokens),
            "checkpoints": tuple(c for c in checkpoints if c.traces is None or c.traces),
        }
    )


def record(attempt: Path, name: str, tokens: frozenset[int], about: dict[str, str]) -> Path:
    """Add the audit in an attempt's folder, and say where it lies."""
    audit = trimmed(parse_audit((attempt / AUDIT_FILE).read_bytes()), tokens)
    folder = GRAPH_CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    packed = lzma.compress(audit.to_json(indent=None).encode(), preset=9 | lzma.PRESET_EXTREME)
    (folder / AUDIT_FILE).write_bytes(packed)
    (folder / EXPECTED).write_text(judged(audit).to_json() + "\n", encoding="utf-8")
    (folder / PROVENANCE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return folder


def _trimmed(checkpoint: Checkpoint, number: dict[int, int], reached: list[int]) -> Checkpoint:
    traces = checkpoint.traces
    mine = None if traces is None else tuple(number[i] for i in traces if i in number)
    blocks = tuple(
        block
        for block in checkpoint.blocks
        if any(block.start <= address < block.start + block.size for address in reached)
    )
    return checkpoint.model_copy(update={"traces": mine, "blocks": blocks})


def _expected(finding: Finding) -> ExpectedFinding:
    return ExpectedFinding(
        check=finding.check,
        fault_class=finding.fault_class,
        status=str(finding.status),
        why=finding.why,
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attempt", type=Path)
    parser.add_argument("name")
    parser.add_argument("--tokens", required=True, help="sizes of the graphs to keep, 16,1")
    parser.add_argument("--what", required=True, help="the cell, and what is known of it")
    parser.add_argument("--machine", required=True, help="GPU, driver, vLLM, torch")
    parser.add_argument("--date", required=True)
    given = parser.parse_args()
    tokens = frozenset(int(size) for size in given.tokens.split(","))
    about = {"what": given.what, "machine": given.machine, "date": given.date}
    about["cut"] = f"graphs of {given.tokens} tokens alone"
    record(given.attempt, given.name, tokens, about)


if __name__ == "__main__":
    main()
