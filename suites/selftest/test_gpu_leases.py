"""Which cell gets which GPU: leases between threads and processes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fixtures.errors import InfraError
from fixtures.run.gpu.lease import SLOTS, GpuSlots, LeaseCancelledError, visible
from fixtures.run.gpu.nvml import GpuId

ONE = GpuId("GPU-one", 0, 141 * 1024)
TWO = GpuId("GPU-two", 1, 141 * 1024)
SLICE = GpuId("MIG-slice", 1, 17 * 1024, mig=True)


class TestLeases:
    def test_a_whole_gpu_is_one_cells_alone(self, tmp_path: Path) -> None:
        never = threading.Event()
        with GpuSlots([ONE, TWO], tmp_path).leased(1, 0, stop=never) as first:
            other = GpuSlots([ONE, TWO], tmp_path)  # as another gate on the node has it
            with other.leased(1, 0, stop=never) as second:
                assert {first.gpus, second.gpus} == {(ONE,), (TWO,)}
                assert not first.shared
                with pytest.raises(LeaseCancelledError), other.leased(1, 1, stop=_soon()):
                    pass

    def test_small_cells_share_a_gpu_up_to_its_memory(self, tmp_path: Path) -> None:
        slots, never = GpuSlots([ONE], tmp_path), threading.Event()
        quarter = 141 / 4
        with (
            slots.leased(1, quarter, stop=never) as first,
            slots.leased(1, quarter, stop=never),
            slots.leased(1, quarter, stop=never),
        ):
            assert first.shared
            with pytest.raises(LeaseCancelledError), slots.leased(1, quarter + 1, stop=_soon()):
                pass
            with slots.leased(1, quarter, stop=never):
                pass

    def test_a_lease_ends_with_its_holder_however_that_dies(self, tmp_path: Path) -> None:
        script = (
            "import os, sys, threading; from pathlib import Path\n"
            "from fixtures.run.gpu.lease import GpuSlots; from fixtures.run.gpu.nvml import GpuId\n"
            f"slots = GpuSlots([GpuId('GPU-one', 0, 1000)], Path({str(tmp_path)!r}))\n"
            "with slots.leased(1, 0, stop=threading.Event()):\n"
            "    print('held', flush=True); os.kill(os.getpid(), 9)\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
        assert done.stdout == b"held\n", done.stderr
        with GpuSlots([ONE], tmp_path).leased(1, 0, stop=_soon()) as lease:
            assert lease.gpus == (ONE,)

    def test_who_wants_a_whole_gpu_is_not_overtaken_by_small_cells(self, tmp_path: Path) -> None:
        slots, order = GpuSlots([ONE], tmp_path), []
        never = threading.Event()

        def take(name: str, memory: float) -> None:
            with slots.leased(1, memory, stop=never):
                order.append(name)

        with slots.leased(1, 141 / SLOTS, stop=never):
            whole = threading.Thread(target=take, args=("whole", 0))
            whole.start()
            time.sleep(0.3)
            small = threading.Thread(target=take, args=("small", 1))
            small.start()
            time.sleep(0.5)
            assert order == []
        whole.join(10)
        small.join(10)
        assert order == ["whole", "small"]

    def test_several_gpus_are_taken_together_or_not_at_all(self, tmp_path: Path) -> None:
        slots, never = GpuSlots([ONE, TWO], tmp_path), threading.Event()
        with slots.leased(1, 1, stop=never):
            with pytest.raises(LeaseCancelledError), slots.leased(2, 0, stop=_soon()):
                pass
            with slots.leased(1, 0, stop=_soon()) as other:
                assert other.gpus == (TWO,)

    def test_a_gpu_that_failed_is_taken_only_where_there_is_no_other(self, tmp_path: Path) -> None:
        never = threading.Event()
        with GpuSlots([ONE, TWO], tmp_path).leased(1, 0, avoid={"GPU-one"}, stop=never) as lease:
            assert lease.gpus == (TWO,)
        with GpuSlots([ONE], tmp_path).leased(1, 0, avoid={"GPU-one"}, stop=never) as lease:
            assert lease.gpus == (ONE,)

    @pytest.mark.parametrize(("count", "memory"), [(2, 0.0), (1, 200.0)])
    def test_what_the_node_does_not_have_is_said_and_not_waited_for(
        self, tmp_path: Path, count: int, memory: float
    ) -> None:
        with (
            pytest.raises(InfraError, match="the node has"),
            GpuSlots([ONE], tmp_path).leased(count, memory, stop=threading.Event()),
        ):
            pass

    def test_a_mig_slice_goes_by_name_and_a_gpu_by_number(self, tmp_path: Path) -> None:
        never = threading.Event()
        with GpuSlots([TWO], tmp_path).leased(1, 0, stop=never) as lease:
            assert lease.variables["CUDA_VISIBLE_DEVICES"] == "1"
            assert lease.variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        with GpuSlots([SLICE], tmp_path).leased(1, 0, stop=never) as lease:
            assert lease.variables["CUDA_VISIBLE_DEVICES"] == "MIG-slice"

    @pytest.mark.parametrize(
        ("setting", "left"),
        [
            (None, (ONE, TWO)),
            ("1", (TWO,)),
            ("1,0", (TWO, ONE)),
            ("GPU-t", (TWO,)),
            ("0,7,1", (ONE,)),
            ("GPU-", ()),
            ("", ()),
            ("-1", ()),
        ],
    )
    def test_what_somebody_hid_stays_hidden(
        self, setting: str | None, left: tuple[GpuId, ...]
    ) -> None:
        assert visible((ONE, TWO), setting) == left


def _soon() -> threading.Event:
    """An event that is set before long."""
    event = threading.Event()
    timer = threading.Timer(0.4, event.set)
    timer.daemon = True
    timer.start()
    return event
