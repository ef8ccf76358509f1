"""Cells beside each other: lanes, GPU budgets, busy GPUs, and where compiled kernels are kept."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.cells.cell import Cell, Requirements, Source
from fixtures.cells.machine import Gpu, MachineProbe
from fixtures.errors import InfraError
from fixtures.run.environment import ChildEnvironment, child_variables
from fixtures.run.gpu.lease import SLOTS, places
from fixtures.run.gpu.node import GpuNode
from fixtures.run.gpu.nvml import GpuId
from fixtures.run.lanes import CPUS_AN_ENGINE, cpus, lanes_of
from fixtures.source.environment import child_environment
from fixtures.source.jit import jit_folder, jit_variables
from suites.selftest.children import cell_that
from suites.selftest.nvml_replay import ReplayedNvml, recorded, with_values

H200 = GpuId("GPU-1", 0, 143_771)
H100 = GpuId("GPU-2", 1, 81_559)


def a_cell(name: str, *, gpus: int = 0, memory_gib: float = 0.0) -> Cell:
    needs = Requirements(gpus=gpus, gpu_memory_gib=memory_gib)
    return cell_that("finish", name=name).model_copy(update={"requirements": needs})


def a_node(tmp_path: Path, *gpus: GpuId) -> GpuNode:
    return GpuNode(
        ReplayedNvml({gpu.uuid: [recorded("h200", "idle")] for gpu in gpus}), gpus, tmp_path
    )


def no_node() -> NoReturn:
    raise InfraError("no driver")


class TestPlaces:
    @pytest.mark.parametrize(
        ("gpu", "memory_gib", "expected"),
        [(H200, 14, 8), (H200, 18, 4), (H200, 0, 1), (H100, 14, 4), (H100, 8, 8), (H100, 100, 0)],
    )
    def test_a_gpu_has_room_by_budget(self, gpu: GpuId, memory_gib: float, expected: int) -> None:
        assert places([gpu], 1, memory_gib) == expected

    def test_cells_of_several_gpus_hold_them_whole(self) -> None:
        assert places([H200, H200, H100], 2, 0) == 1

    @given(st.floats(0.1, 200))
    def test_no_gpu_is_promised_twice(self, memory_gib: float) -> None:
        fit = places([H200], 1, memory_gib)
        assert fit <= SLOTS
        assert fit * memory_gib * 1024 <= H200.memory_mib


class TestLanes:
    CELLS = (
        a_cell("cpu-1"),
        a_cell("gpu-1", gpus=1, memory_gib=14),
        a_cell("cpu-2"),
        *(a_cell(f"gpu-{number}", gpus=1, memory_gib=8) for number in range(2, 12)),
    )

    def test_gpu_cells_wait_beside_cpu_cells_and_keep_their_order(self, tmp_path: Path) -> None:
        on_gpu, on_cpu = lanes_of(self.CELLS, None, lambda: a_node(tmp_path, H200))
        assert [cell.key.model for cell in on_gpu.cells] == [f"gpu-{n}" for n in range(1, 12)]
        assert [cell.key.model for cell in on_cpu.cells] == ["cpu-1", "cpu-2"]
        assert on_gpu.slots == max(1, min(8, cpus() // CPUS_AN_ENGINE))
        assert on_cpu.slots == min(cpus(), 2)

    def test_a_number_of_jobs_counts_for_all_cells_together(self, tmp_path: Path) -> None:
        (lane,) = lanes_of(self.CELLS, 3, lambda: a_node(tmp_path, H200))
        assert (lane.cells, lane.slots) == (self.CELLS, 3)

    def test_without_a_node_each_cell_says_so_itself(self) -> None:
        on_gpu, _ = lanes_of(self.CELLS, None, no_node)
        assert on_gpu.slots == 1

    def test_nobody_asks_for_gpus_where_no_cell_needs_one(self) -> None:
        (lane,) = lanes_of(self.CELLS[:1], None, no_node)
        assert lane.slots == 1
        assert lanes_of((), None, no_node) == ()


class TestBusy:
    def nodes(self, tmp_path: Path, *used_mib: int) -> GpuNode:
        readings = [
            with_values(
                recorded("h200", "idle"),
                memory={"total_mib": 143_771, "used_mib": used},
                processes=[{"pid": 4711, "memory_mib": used}],
            )
            for used in used_mib
        ]
        return GpuNode(ReplayedNvml({H200.uuid: readings}), (H200,), tmp_path)

    def test_a_gpu_that_others_fill_is_named_with_who_and_how_much(self, tmp_path: Path) -> None:
        node, stop = self.nodes(tmp_path, 140_000), threading.Event()
        with (
            node.held(1, 14, avoid=(), stop=stop) as session,
            pytest.raises(InfraError, match=r"busy: 3\.7 of .* 14 GiB \(processes 4711"),
        ):
            session.require(14, settle_seconds=0)

    def test_memory_of_the_dead_is_waited_for(self, tmp_path: Path) -> None:
        node, stop = self.nodes(tmp_path, 140_000, 140_000, 500), threading.Event()
        with node.held(1, 14, avoid=(), stop=stop) as session:
            session.require(14, settle_seconds=5)


class TestKeptKernels:
    MACHINE = MachineProbe(
        gpus=(Gpu(uuid="GPU-1", name="NVIDIA H200", memory_gib=139.8),), driver="580.159"
    )

    def test_each_environment_has_a_folder_of_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GRAPHGATE_CACHE", str(tmp_path))
        folder = jit_folder("0.26.0", "2.11.0", self.MACHINE)
        assert folder.is_relative_to(tmp_path)
        others = [
            jit_folder("0.27.0", "2.11.0", self.MACHINE),
            jit_folder("0.26.0", "2.13.0", self.MACHINE),
            jit_folder("0.26.0", "2.11.0", self.MACHINE.model_copy(update={"driver": "570"})),
            jit_folder("0.26.0", "2.11.0", MachineProbe(driver="580.159")),
        ]
        assert len({folder, *others}) == 5
        assert jit_folder("0.26.0", "2.11.0", self.MACHINE) == folder

    def test_compilers_are_led_there_on_gpus_alone_whatever_the_shell_says(self) -> None:
        kept = jit_variables(Path("/cache"))
        environment = ChildEnvironment(python="python", gpu_variables=kept)
        shell = {"TRITON_CACHE_DIR": "/home/me/.triton"}
        on_gpu = child_variables(shell, environment, a_cell("gpu", gpus=1))
        assert {name: on_gpu[name] for name in kept} == kept
        assert "OMP_NUM_THREADS" not in on_gpu
        on_cpu = child_variables(shell, environment, a_cell("cpu"))
        assert on_cpu["TRITON_CACHE_DIR"] == "/home/me/.triton"
        assert on_cpu["OMP_NUM_THREADS"] == "1"

    def test_an_installed_vllm_with_kernels_gets_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GRAPHGATE_CACHE", str(tmp_path))
        source = Source(
            kind="installed",
            request="installed",
            version="0.26.0",
            identity="x",
            python_path="/nowhere",
            compiled=True,
        )
        variables = child_environment(source).gpu_variables
        assert Path(variables["DG_JIT_CACHE_DIR"]).is_relative_to(tmp_path / "jit")
        bare = source.model_copy(update={"compiled": False})
        assert child_environment(bare).gpu_variables == {}
