"""The canary tier from pytest: its items on a Hopper node, and words on any other machine."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.cells.axes import Tier
from fixtures.cells.cell import Source
from fixtures.cells.machine import Gpu, MachineProbe
from fixtures.errors import InfraError
from gates.judge import GATES_OF_TIER
from suites import session
from suites.hopper.test_hopper import pytest_generate_tests as generate
from suites.session import tier_plan


def test_a_machine_without_a_hopper_gpu_gets_one_skip_with_words() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "suites/hopper", "-p", "no:cacheprovider", "-rs"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": ""},
    )
    told = "--tier canary: not available here: the GPUs are hidden by CUDA_VISIBLE_DEVICES"
    assert "1 skipped" in done.stdout
    assert told in " ".join(done.stdout.split())
    assert done.returncode == 0


def test_a_hopper_node_plans_every_canary_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    node = MachineProbe(
        gpus=(Gpu(uuid="GPU-1", name="NVIDIA H200", memory_gib=139.8, capability=(9, 0)),)
    )
    installed = Source(
        kind="installed",
        request="installed",
        version="0.26.0",
        identity="installed:0.26.0:0",
        python_path="/nowhere",
        compiled=True,
    )
    monkeypatch.setattr(session, "probe_machine", lambda: node)
    monkeypatch.setattr(session, "resolve", lambda request: installed)
    planned = tier_plan(Tier.CANARY, None, "pr")
    assert {cell.key.tier for cell in planned.cells} == {Tier.CANARY}
    assert {cell.key.model for cell in planned.cells} == {"dsv4", "inkling", "llama"}
    assert GATES_OF_TIER[Tier.CANARY]
    monkeypatch.setattr(
        session, "resolve", lambda request: installed.model_copy(update={"compiled": False})
    )
    with pytest.raises(InfraError, match="compiled extensions"):
        tier_plan(Tier.CANARY, None, "pr")


L4 = Gpu(uuid="GPU-2", name="NVIDIA L4", memory_gib=22.5, capability=(8, 9))


@pytest.mark.parametrize(
    ("machine", "skips"),
    [
        (MachineProbe(nvml_error="no driver"), True),
        (MachineProbe(gpus=(L4,)), True),
        (MachineProbe(devices=("/dev/nvidia0",), nvml_error="driver mismatch"), False),
    ],
)
def test_only_a_machine_that_has_no_hopper_gpu_skips(
    machine: MachineProbe, skips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "probe_machine", lambda: machine)
    made: list[object] = []
    metafunc: Any = SimpleNamespace(
        config=SimpleNamespace(getoption={"--vllm": None, "--sweep": "pr"}.__getitem__),
        parametrize=lambda _names, items: made.extend(items),
    )
    if skips:
        generate(metafunc)
        assert len(made) == 1
    else:
        with pytest.raises(pytest.UsageError, match="driver mismatch"):
            generate(metafunc)
