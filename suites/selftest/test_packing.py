"""Cells beside each other: lanes, GPU budgets, busy GPUs, and where compiled kernels are kept."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.cells.cell import HOPPER, Cell, Requirements, Source
from fixtures.cells.machine import Gpu, MachineProbe
from fixtures.errors import InfraError
from fixtures.evidence.exits import NeverStarted
from fixtures.run.attempt import Surroundings, attempt_cell
from fixtures.run.environment import ChildEnvironment, child_variables
from fixtures.run.gpu.lease import SLOTS, LeaseCancelledError, places
from fixtures.run.gpu.node import GpuNode
from fixtures.run.gpu.nvml import GpuId
from fixtures.run.lanes import CPUS_AN_ENGINE, cpus, lanes_of
from fixtures.run.launch import LaunchOrder
from fixtures.run.order import AttemptOrder
from fixtures.source.environment import child_environment
from fixtures.source.jit import jit_folder, jit_variables
from suites.selftest.children import cell_that
from suites.selftest.nvml_replay import ReplayedNvml, recorded, with_values

H200 = GpuId("GPU-1", 0, 143_771, capability=(9, 0))
H100 = GpuId("GPU-2", 1, 81_559, capability=(9, 0))
L40 = GpuId("GPU-3", 2, 46_068, capability=(8, 9))
MUTE = GpuId("GPU-4", 3, 143_771)
"""A GPU whose compute capability NVML does not tell."""


def a_cell(
    name: str,
    *,
    gpus: int = 0,
    memory_gib: float = 0.0,
    capability: tuple[int, int] | None = None,
) -> Cell:
    needs = Requirements(gpus=gpus, gpu_memory_gib=memory_gib, capability=capability)
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

    @pytest.mark.parametrize(("count", "expected"), [(1, 12), (2, 1)])
    def test_gpus_of_another_kind_are_no_room(self, count: int, expected: int) -> None:
        assert places([L40, H200, MUTE, H100], count, 14, HOPPER) == expected
        assert places([L40, MUTE], count, 14, HOPPER) == 0

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

    def test_only_gpus_of_the_kind_make_slots(self, tmp_path: Path) -> None:
        cells = [a_cell(f"gpu-{n}", gpus=1, memory_gib=14, capability=HOPPER) for n in range(20)]
        (lane,) = lanes_of(cells, None, lambda: a_node(tmp_path, L40, H100, MUTE))
        assert lane.slots == max(1, min(4, cpus() // CPUS_AN_ENGINE))

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


class TestKinds:
    """A node with GPUs of several kinds: a cell gets one that its kernels are for, or none."""

    def test_a_cell_waits_for_its_kind_and_leaves_others_alone(self, tmp_path: Path) -> None:
        node, stop = a_node(tmp_path, L40, MUTE, H200), threading.Event()
        with node.held(1, 0, capability=HOPPER, avoid=(), stop=stop) as session:
            assert session.gpu == H200.uuid
            soon = threading.Event()
            threading.Timer(0.5, soon.set).start()
            with (
                pytest.raises(LeaseCancelledError),
                node.held(1, 14, capability=HOPPER, avoid=(), stop=soon),
            ):
                pass
            with node.held(1, 14, avoid=(), stop=stop) as other:
                assert other.gpu == L40.uuid

    def test_one_that_failed_is_taken_rather_than_one_of_another_kind(self, tmp_path: Path) -> None:
        node, stop = a_node(tmp_path, L40, H200), threading.Event()
        with node.held(1, 14, capability=HOPPER, avoid={H200.uuid}, stop=stop) as session:
            assert session.gpu == H200.uuid

    @pytest.mark.parametrize("count", [1, 2])
    def test_a_node_without_the_kind_says_which_was_asked_for(
        self, tmp_path: Path, count: int
    ) -> None:
        node = a_node(tmp_path, L40, MUTE)
        told = rf"asks for {count} GPU\(s\) of 14 GiB of compute capability 9\.0, .* has 0"
        with (
            pytest.raises(InfraError, match=told),
            node.held(count, 14, capability=HOPPER, avoid=(), stop=threading.Event()),
        ):
            pass

    def test_an_attempt_asks_for_what_its_cell_needs(self, tmp_path: Path) -> None:
        folder = tmp_path / "attempt-0"
        cell = a_cell("gpu", gpus=1, memory_gib=14, capability=HOPPER)
        order = AttemptOrder(cell, "0.26.0", 0, folder, variables={})
        observed = attempt_cell(
            NeverLaunched(),
            order,
            lambda *_: None,
            threading.Event(),
            surroundings=Surroundings(lambda: a_node(tmp_path, L40)),
        )
        end = observed.supervised.attempt.exit
        assert isinstance(end, NeverStarted)
        assert "compute capability 9.0" in end.why


class NeverLaunched:
    """A launcher for cells that must not come so far."""

    def launch(self, order: LaunchOrder) -> NoReturn:
        raise AssertionError(order)

    def cancel(self) -> None: ...

    def close(self) -> None: ...


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
            pytest.raises(InfraError, match=r"busy \(3\.7 of .* 14 GiB; processes 4711"),
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
