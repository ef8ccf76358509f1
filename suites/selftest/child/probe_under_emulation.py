"""Puts the canary's probe around a release's real capture code on a CPU, and prints its counts.

Usage: python -m suites.selftest.child.probe_under_emulation MODE BREAKABLE(0|1) [MUTANT [DRAFTS]]

DRAFTS tokens are drafted a step by a draft whose first token's graphs are captured and whose
later tokens' are only planned, as the engine leaves them where it drafts one.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from types import SimpleNamespace

_MODULES = (
    *("gpu.cudagraph_utils", "gpu.model_states.default", "gpu.block_table", "gpu.input_batch"),
)


def main(mode: str, breakable: str, mutant: str = "", drafts: str = "") -> None:
    """Capture and replay with the probe installed; one JSON object on the last line."""
    os.environ.update(
        VLLM_USE_V2_MODEL_RUNNER="0",
        CUDA_VISIBLE_DEVICES="",
        VLLM_USE_BREAKABLE_CUDAGRAPH=breakable,
    )
    for name in _MODULES:
        importlib.import_module(f"vllm.v1.worker.{name}")
    importlib.import_module("vllm.compilation.cuda_graph")
    from fixtures.child import mutants
    from fixtures.child.canary import hooks
    from fixtures.child.canary.tally import Tally
    from fixtures.child.contract.engine import Engine, Settings
    from fixtures.child.contract.observe import capture, manager_of, replay
    from fixtures.child.contract.platform import emulate_cuda
    from fixtures.child.contract.recorder import inference

    emulate_cuda()
    tally = Tally()
    hooks.install(tally)
    if mutant:
        mutants.apply(mutant)
    on = breakable == "1"
    engine = Engine(Settings(mode=mode, breakable=on, compiled=not on, support="ALWAYS"))
    manager = manager_of(engine)
    capture(engine, manager)
    draft = SimpleNamespace(
        num_speculative_steps=int(drafts or 0),
        prefill_cudagraph_manager=manager,
        decode_cudagraph_manager=manager_of(engine),
    )
    runner = SimpleNamespace(cudagraph_manager=manager, speculator=draft if drafts else None)
    tally.begin()
    before = sum(use.graphs for use in tally.descriptors(runner))
    inference(replay)(engine, manager)
    uses = [use.model_dump(mode="json") for use in tally.descriptors(runner)]
    print(json.dumps({"before": before, "uses": uses, "eager": dict(tally.eager_steps)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
