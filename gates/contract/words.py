"""The words that the contract gates share: places in vLLM, and counts of descriptors."""

from __future__ import annotations

from collections.abc import Sequence

from fixtures.evidence.contract import Descriptor
from gates.verdict import FaultClass, Finding, Gate, Status

CAPTURE = "vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.capture"
DUMMY = "vllm/v1/worker/gpu/input_batch.py: InputBatch.make_dummy"
INPUTS = "vllm/v1/worker/gpu/cudagraph_utils.py: prepare_inputs_to_capture"
POSITIONS = "vllm/v1/worker/gpu/input_batch.py: prepare_pos_seq_lens"
PREPARE = "vllm/v1/worker/gpu/model_states/default.py: DefaultModelState.prepare_attn"
TABLES = "vllm/v1/worker/gpu/block_table.py: BlockTables"
DISPATCH = "vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.dispatch"
CANDIDATES = "vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager._init_candidates"
BREAKS = "vllm/compilation/breakable_cudagraph.py: eager_break_during_capture"


def place(symbol: str) -> str:
    """`package/module.py: Class.method` of a dotted `package.module.Class.method`."""
    parts = symbol.split(".")
    names = next((i for i, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
    return f"{'/'.join(parts[:names])}.py: {'.'.join(parts[names:])}"


def some(descriptors: Sequence[Descriptor], of: int) -> str:
    """`3 of 5 descriptors (FULL 16 tokens, ...)`, naming the first."""
    return f"{len(descriptors)} of {of} descriptors (first: {descriptors[0]})"


def failed(
    gate: Gate,
    check: str,
    fault_class: FaultClass,
    why: str,
    at: str,
    *,
    n: int | None = None,
    measured: str | None = None,
    limit: str | None = None,
) -> Finding:
    """A FAIL whose `why` ends with the place in vLLM's sources."""
    return Finding(
        gate=gate,
        check=check,
        fault_class=fault_class,
        status=Status.FAIL,
        measured=measured,
        limit=limit,
        n=n,
        why=f"{why} [{at}]",
    )
