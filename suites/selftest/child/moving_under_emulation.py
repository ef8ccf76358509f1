"""Plants what moves memory behind a graph's back around a release's real capture code on a CPU.

Usage: python -m suites.selftest.child.moving_under_emulation. Prints, as JSON, what each mistake
did to the sequence lengths, and the signatures that it left as they were.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import weakref
from types import SimpleNamespace
from typing import Any

GPU = "vllm.v1.worker.gpu"
_MODULES = ("cudagraph_utils", "model_states.default", "block_table", "input_batch")


def main() -> None:
    """One JSON object."""
    os.environ.update(VLLM_USE_V2_MODEL_RUNNER="0", CUDA_VISIBLE_DEVICES="")
    for name in _MODULES:
        importlib.import_module(f"{GPU}.{name}")
    importlib.import_module("vllm.compilation.cuda_graph")
    from fixtures.child.contract.platform import emulate_cuda

    emulate_cuda()
    print(json.dumps({name: _watched(name) for name in ("freed", "moved", "unrefreshed")}))


def _watched(which: str) -> dict[str, Any]:
    """Capture with the mistake, in the release's own classes, which are put back afterwards."""
    from fixtures.child.contract.engine import Engine, Settings
    from fixtures.child.contract.observe import capture, manager_of
    from fixtures.child.mutants import moving, planting

    states, managers = planting.model_state_class(), planting.models_manager_class()
    originals = states.prepare_attn, managers.capture
    seen: list[Any] = []

    def prepare_attn(self: Any, input_batch: Any, *args: Any, **kwargs: Any) -> Any:
        lengths = input_batch.seq_lens
        if isinstance(input_batch, SimpleNamespace):
            return lengths.data_ptr()  # a step of ours: what its metadata would read
        seen.append((weakref.ref(lengths), lengths.untyped_storage().nbytes()))
        return originals[0](self, input_batch, *args, **kwargs)

    prepare_attn.__signature__ = inspect.signature(originals[0])  # type: ignore[attr-defined]
    states.prepare_attn = prepare_attn
    {
        "freed": moving.freed_after_capture,
        "moved": moving.moved_seq_lens,
        "unrefreshed": moving.unrefreshed_seq_lens,
    }[which]()
    runner, written = _lengths_writer()
    kept = all(
        inspect.signature(now) == inspect.signature(then)
        for now, then in zip((states.prepare_attn, managers.capture), originals, strict=True)
    )
    engine = Engine(Settings(mode="FULL", breakable=False, compiled=True, support="ALWAYS"))
    buffers = engine.offers["input_buffers"]
    before = buffers.seq_lens
    capture(engine, manager_of(engine))
    runner.prepare_pos_seq_lens(None, None, None, None, buffers.seq_lens)
    steps = {mode: _step(states, engine.mode(mode), buffers.seq_lens) for mode in ("NONE", "FULL")}
    states.prepare_attn, managers.capture = originals
    return {
        "signatures": kept,
        "passes": len(seen),
        "alive": sum(reference() is not None for reference, _ in seen),
        "storage": max(size for _, size in seen),
        "moved": buffers.seq_lens is not before,
        "equal": bool((buffers.seq_lens == before).all()),
        "elsewhere": written[0] is not buffers.seq_lens,
        "current": [mode for mode, read in steps.items() if read[0] == written[0].data_ptr()],
        "sampled": [mode for mode, read in steps.items() if read[1] == written[0].data_ptr()],
    }


def _step(states: Any, mode: Any, lengths: Any) -> tuple[int, int]:
    """Where a step of that mode reads its lengths: its attention, and its sampler afterwards."""
    batch = SimpleNamespace(seq_lens=lengths[:4])
    read = states.prepare_attn(None, batch, mode, (), None, [], None)
    return int(read), int(batch.seq_lens.data_ptr())


def _lengths_writer() -> tuple[Any, list[Any]]:
    """The runner's module with a writer of lengths that keeps what it was given, and that list."""
    runner: Any = importlib.import_module(f"{GPU}.model_runner")
    written: list[Any] = []

    def prepare_pos_seq_lens(
        idx_mapping: Any, query_start_loc: Any, num_computed_tokens: Any, pos: Any, seq_lens: Any
    ) -> None:
        written.append(seq_lens)

    own = inspect.signature(importlib.import_module(f"{GPU}.input_batch").prepare_pos_seq_lens)
    assert list(own.parameters) == list(inspect.signature(prepare_pos_seq_lens).parameters)
    runner.prepare_pos_seq_lens = prepare_pos_seq_lens
    return runner, written


if __name__ == "__main__":
    main()
