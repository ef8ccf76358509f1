"""Puts the audit around a release's real capture code on a CPU, and prints its records.

Only what the host can see: attention state of warm-up and capture. An emulated graph has no nodes.
A FULL graph is replayed afterwards: the record that is left before that is printed first.

Usage: python -m suites.selftest.child.audit_under_emulation MODE BREAKABLE(0|1) MUTANT
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from fixtures.child.canary.names import PROBE_FOLDER
from fixtures.evidence.audit import AUDIT_FILE, parse_audit

_MODULES = (
    *("gpu.cudagraph_utils", "gpu.model_states.default", "gpu.block_table", "gpu.input_batch"),
)


def main(mode: str, breakable: str, mutant: str) -> None:
    """Capture without and with the mutant; each record as JSON on a line of its own."""
    os.environ.update(
        VLLM_USE_V2_MODEL_RUNNER="0",
        CUDA_VISIBLE_DEVICES="",
        VLLM_USE_BREAKABLE_CUDAGRAPH=breakable,
        GRAPHGATE_AUDIT="state,flush",
    )
    with TemporaryDirectory() as folder:
        os.environ[PROBE_FOLDER] = f"{folder}/probe"
        _captured(mode, breakable == "1", mutant, Path(folder) / AUDIT_FILE)


def _captured(mode: str, on: bool, mutant: str, left: Path) -> None:
    for name in _MODULES:
        importlib.import_module(f"vllm.v1.worker.{name}")
    importlib.import_module("vllm.compilation.cuda_graph")
    from fixtures.child import mutants
    from fixtures.child.audit import session
    from fixtures.child.contract.engine import Engine, Settings
    from fixtures.child.contract.observe import capture, manager_of
    from fixtures.child.contract.platform import emulate_cuda

    emulate_cuda()
    session.install()
    if mode == "PIECEWISE":  # a capture of vLLM's memory profiler, as it marks it: not recorded
        engine = Engine(Settings(mode=mode, breakable=on, compiled=not on, support="ALWAYS"))
        manager = manager_of(engine)
        manager._capture_mem_samples = []
        capture(engine, manager)
    for planted in (None, mutant):
        if planted:
            mutants.apply(planted)
        engine = Engine(Settings(mode=mode, breakable=on, compiled=not on, support="ALWAYS"))
        manager = manager_of(engine)
        capture(engine, manager)
        assert not left.exists(), "nothing is replayed yet"
        if manager.graphs:
            _ = manager.run_fullgraph(next(iter(manager.graphs)))
            print(parse_audit(left.read_bytes()).to_json(indent=None))
            left.unlink()
        print(session.recorded())


if __name__ == "__main__":
    main(*sys.argv[1:])
