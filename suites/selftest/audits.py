"""Building and judging audit records: graphs of named kernels over named memory."""

from __future__ import annotations

import struct
from typing import Any

from fixtures.evidence.audit import (
    MEMSET,
    Block,
    CaptureAudit,
    Checkpoint,
    Kernel,
    LazyField,
    Node,
    SharedObject,
    StateAudit,
    Trace,
)
from fixtures.evidence.contract import Descriptor
from gates.audit import judge_audit
from gates.audit.harmless import Harmless
from gates.verdict import Finding

FULL = Descriptor(mode="FULL", num_tokens=16, num_reqs=16)
SMALLER = Descriptor(mode="FULL", num_tokens=8, num_reqs=8)
INPUT, WEIGHT, TEMPORARY = 0x7F00_0000_0000, 0x7F10_0000_0000, 0x7F20_0000_0000
"""Addresses of an input buffer, of weights, and in the graphs' pool."""
POOL = "0.1"

PLANNER = "_Z23get_mla_metadata_kernel20GetMlaMetadataParams"
ATTEND, COPY, RESET = "flash_fwd_splitkv_mla_kernel", "copy_kernel", "memset"
KERNELS = (
    Kernel(name=PLANNER, parameters=((0, 8), (8, 8))),
    Kernel(name=ATTEND, parameters=((0, 8), (8, 24), (32, 4), (36, 4))),
    Kernel(name=COPY, parameters=((0, 8), (8, 8))),
    MEMSET,
)
"""The planner reads INPUT; attention has a struct whose second word is WEIGHT, and two integers."""


def packed(layout: str, *values: int) -> str:
    """Argument bytes in hex."""
    return struct.pack(f"<{layout}", *values).hex()


def node(name: str, arguments: str, **changes: Any) -> Node:
    """A node of one of KERNELS."""
    number = next(i for i, kernel in enumerate(KERNELS) if kernel.name == name)
    kind = "memset" if name == RESET else "kernel"
    return Node(kind=kind, kernel=number, arguments=arguments, **changes)


def plan() -> Node:
    return node(PLANNER, packed("QQ", INPUT, TEMPORARY))


def attend(longest: int = 1, *, out: int = TEMPORARY, tail: int = 0, **changes: Any) -> Node:
    """Attention over a plan: the two integers are max_query_len and something unwritten."""
    words = (INPUT, 0, WEIGHT, 7)
    return node(ATTEND, packed("QQQQii", *words, longest, tail), **changes)


def copy(out: int = TEMPORARY) -> Node:
    return node(COPY, packed("QQ", out, INPUT + 64))


def reset() -> Node:
    return node(RESET, packed("QQQQQ", TEMPORARY, 0, 4, 16, 1))


PASS = (reset(), plan(), attend(), copy())
"""A whole pass."""


def trace(kind: Any, nodes: tuple[Node, ...] = PASS, **changes: Any) -> Trace:
    """A trace of FULL with nothing special about it."""
    values = {"descriptor": FULL, "scalars": {"max_query_len": 1}, "captured_at": 1000}
    return Trace(kind=kind, nodes=nodes, **{**values, **changes})


def memory(**changes: Block | None) -> tuple[Block, ...]:
    """The blocks `input`, `weight`, `temporary`, with changes; None leaves one out."""
    blocks: dict[str, Block | None] = {
        "input": Block(start=INPUT, size=4096, state="live"),
        "weight": Block(start=WEIGHT, size=1 << 20, state="live"),
        "temporary": Block(start=TEMPORARY, size=512, state="freed", pool=POOL),
        **changes,
    }
    return tuple(block for block in blocks.values() if block is not None)


def audit(
    *traces: Trace,
    captured: tuple[Block, ...] | None = None,
    later: tuple[Block, ...] | None = None,
    **changes: Any,
) -> CaptureAudit:
    """A record of `traces`, whose memory was `captured` at first and is `later` in the end."""
    graphs = tuple(i for i, one in enumerate(traces) if one.kind == "graph")
    checkpoints = (
        Checkpoint(
            name="captured", traces=graphs, blocks=memory() if captured is None else captured
        ),
        Checkpoint(name="workload", blocks=memory() if later is None else later),
    )
    return CaptureAudit(
        kernels=KERNELS, traces=traces, checkpoints=checkpoints, parts=("nodes",), **changes
    )


def state(at_capture: Any = "empty", *, shared: bool = False) -> StateAudit:
    """State of FlashMLA's kind: its plan is filled on first use."""
    backend = "vllm.v1.attention.backends.mla.flashmla_sparse.FlashMLASparseMetadata"
    holder = "vllm.third_party.flashmla.flash_mla_interface.FlashMLASchedMeta"
    names = ("have_initialized", "tile_scheduler_metadata", "num_splits")
    return StateAudit(
        descriptor=FULL,
        backends=(backend,),
        layers=4,
        objects=2,
        lazy=tuple(
            LazyField(
                path=f"{backend}.scheduler_metadata.{name}",
                holder=holder,
                backend=backend,
                name=name,
                at_capture=at_capture,
            )
            for name in names
        ),
        shared=(SharedObject(path=backend, type=backend),) if shared else (),
    )


NOTHING = Harmless(schema_version=1)
"""No excuses."""


def only(record: CaptureAudit, harmless: Harmless = NOTHING) -> Finding:
    """The one finding on a record."""
    found = judge_audit(record, harmless)
    assert len(found) == 1, [finding.why for finding in found]
    return found[0]
