"""Xid events: who is told of them, and that one thread alone waits for the driver."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path

from fixtures.evidence.cellrun import Xid
from fixtures.run.gpu.node import GpuNode
from fixtures.run.gpu.nvml import GpuId, Nvml
from fixtures.run.gpu.xid import XidListener, XidWatch
from suites.selftest.nvml_replay import ReplayedNvml, recorded
from suites.selftest.running import wait_until

ONE = GpuId("GPU-one", 0, 141 * 1024)
TWO = GpuId("GPU-two", 1, 141 * 1024)
SLICE = GpuId("MIG-slice", 1, 17 * 1024, mig=True)
IDLE = recorded("h200", "idle")


def watching(nvml: Nvml, gpu: GpuId) -> XidWatch:
    return XidWatch(XidListener(nvml, nvml.gpus()), [gpu])


class TestXids:
    def test_events_are_collected_with_their_gpu(self) -> None:
        nvml = ReplayedNvml(
            {"GPU-one": [IDLE], "GPU-two": [IDLE]}, xids=[("GPU-one", 31), ("GPU-two", 79)]
        )
        with watching(nvml, ONE) as watch:
            watch.await_stragglers()
            assert watch.xids == (Xid(code=31, device="GPU-one"),)
        assert nvml.open_subscriptions == 0

    def test_where_there_are_none_to_be_had_that_is_said(self) -> None:
        nvml = ReplayedNvml({"GPU-one": [IDLE]}, deaf="Not Supported")
        with watching(nvml, ONE) as watch:
            began = time.monotonic()
            watch.await_stragglers(5)
            assert time.monotonic() - began < 1
        assert watch.xids == () and watch.trouble == "Not Supported"

    def test_a_gpu_that_is_lost_ends_the_watch_and_not_the_run(self) -> None:
        nvml = ReplayedNvml({"GPU-one": [IDLE]}, xids=[("GPU-one", 79), ("GPU-one", -1)])
        with watching(nvml, ONE) as watch:
            wait_until(lambda: watch.trouble is not None)
        assert [xid.code for xid in watch.xids] == [79]
        assert nvml.open_subscriptions == 0

    def test_a_gpu_that_repeats_itself_without_end_fills_no_memory(self) -> None:
        nvml = ReplayedNvml({"GPU-one": [IDLE]}, xids=[("GPU-one", 79)] * 500)
        with watching(nvml, ONE) as watch:
            wait_until(lambda: len(watch.xids) == 100)
            time.sleep(0.3)
        assert len(watch.xids) == 100
        assert nvml.open_subscriptions == 0

    def test_however_many_watch_one_thread_waits_for_the_driver(self) -> None:
        nvml = ReplayedNvml({"GPU-one": [IDLE], "GPU-two": [IDLE]})
        listener = XidListener(nvml, nvml.gpus())
        with ExitStack() as stack:
            watches = [XidWatch(listener, [one]) for one in (ONE, TWO, SLICE, ONE)]
            first = stack.enter_context(XidWatch(listener, []))
            for watch in watches:
                stack.enter_context(watch)
            nvml.plant(("GPU-two", 79), ("GPU-one", 31))
            wait_until(lambda: all(watch.xids for watch in watches))
            assert nvml.open_subscriptions == 1
        codes = [[xid.code for xid in watch.xids] for watch in (*watches, first)]
        assert codes == [[31], [79], [79], [31], []]
        assert nvml.most_waiting == 1 and nvml.open_subscriptions == 0

    def test_cells_beside_each_other_on_a_gpu_share_the_thread(self, tmp_path: Path) -> None:
        nvml = ReplayedNvml({"GPU-one": [IDLE]})
        node, never = GpuNode(nvml, nvml.gpus(), tmp_path), threading.Event()
        with ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(node.held(1, 8, avoid=(), stop=never))
            wait_until(lambda: nvml.most_waiting > 0)
            time.sleep(0.1)
            assert (nvml.most_waiting, nvml.open_subscriptions) == (1, 1)
        assert nvml.open_subscriptions == 0

    def test_after_a_lost_subscription_the_next_watch_has_another(self) -> None:
        nvml = ReplayedNvml({"GPU-one": [IDLE]}, xids=[("GPU-one", -1)])
        listener = XidListener(nvml, [ONE])
        with XidWatch(listener, [ONE]) as lost:
            wait_until(lambda: lost.trouble is not None)
            nvml.plant(("GPU-one", 31))
            with XidWatch(listener, [ONE]) as next_one:
                wait_until(lambda: bool(next_one.xids))
        assert next_one.trouble is None and nvml.open_subscriptions == 0
