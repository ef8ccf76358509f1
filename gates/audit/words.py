"""The words that the audit's gates share: names of kernels, counts of graphs, a finding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fixtures.evidence.audit import CaptureAudit, Node, Trace
from fixtures.triage.demangle import short_name
from gates.verdict import FaultClass, Finding, Gate, Status

CAPTURE = "vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.capture"
INPUTS = "vllm/v1/worker/gpu/cudagraph_utils.py: prepare_inputs_to_capture"
PREPARE = "vllm/v1/worker/gpu/model_runner.py: GPUModelRunner.prepare_inputs"


def kernel_name(audit: CaptureAudit, node: Node) -> str:
    """The kernel's short name, or the kind of a node that is no kernel."""
    return node.kind if node.kernel is None else short_name(audit.kernels[node.kernel].name)


def graph_name(trace: Trace) -> str:
    """`FULL 16 tokens, 16 requests`, with the segment where there are several."""
    segment = f", segment {trace.segment}" if trace.segment else ""
    owner = "" if trace.owner in ("", "ModelCudaGraphManager") else f"{trace.owner} "
    return f"{owner}{trace.descriptor}{segment}"


def class_name(path: str) -> str:
    """`Class` of `package.module.Class`."""
    return path.rpartition(".")[2]


def some(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    told = list(dict.fromkeys(names))
    rest = f" and {len(told) - most} more" if len(told) > most else ""
    return ", ".join(told[:most]) + rest


def by_fact(found: Iterable[tuple[str, str]], most: int = 8) -> tuple[str, ...]:
    """(fact, graph) pairs as evidence: each fact once, with the graphs that it holds in."""
    graphs: dict[str, list[str]] = {}
    for fact, graph in found:
        graphs.setdefault(fact, []).append(graph)
    return tuple(f"{fact}: in {_several(names)}" for fact, names in list(graphs.items())[:most])


def _several(graphs: Sequence[str]) -> str:
    """Names of graphs hold commas, so they are told apart by semicolons."""
    told = list(dict.fromkeys(graphs))
    return "; ".join(told[:2]) + (f" and {len(told) - 2} more" if len(told) > 2 else "")


def failed(
    check: str,
    fault_class: FaultClass,
    why: str,
    at: str,
    *,
    n: int | None = None,
    measured: str | None = None,
    limit: str | None = None,
    evidence: tuple[str, ...] = (),
) -> Finding:
    """A FAIL of the audit whose `why` ends with the place in vLLM's sources."""
    return Finding(
        gate=Gate.AUDIT,
        check=check,
        fault_class=fault_class,
        status=Status.FAIL,
        measured=measured,
        limit=limit,
        n=n,
        why=f"{why} [{at}]",
        evidence=evidence,
    )
