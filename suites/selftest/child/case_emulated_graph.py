"""The emulation keeps what CUDA's stream capture means."""

from __future__ import annotations

import unittest

import torch

from fixtures.child.contract.emulated_graph import (
    NOT_PERMITTED,
    EmulatedGraph,
    emulated_capture,
    is_capturing,
)


class CaptureTest(unittest.TestCase):
    def setUp(self) -> None:
        self.graph = EmulatedGraph()
        self.source = torch.arange(4.0)

    def test_nothing_runs_during_capture_and_outputs_are_poison(self) -> None:
        written = torch.zeros(4)
        with emulated_capture(self.graph):
            result = self.source + 1
            written.add_(self.source)
        self.assertTrue(torch.isnan(result).all())
        self.assertEqual(written.tolist(), [0, 0, 0, 0])

    def test_replay_reads_what_the_tensors_hold_then(self) -> None:
        with emulated_capture(self.graph):
            result = self.source * 2
        for value in (1.0, 5.0, -3.0):
            self.source.fill_(value)
            self.graph.replay()
            self.assertEqual(result.tolist(), [2 * value] * 4)
        self.assertEqual(self.graph.replays, 3)

    def test_scalars_are_frozen(self) -> None:
        factor = 2
        with emulated_capture(self.graph):
            result = self.source * factor
        factor = 7  # too late: the graph holds the value
        self.graph.replay()
        self.assertEqual(result.tolist(), [0, 2, 4, 6])

    def test_views_are_the_same_memory_and_no_launch(self) -> None:
        buffer = torch.zeros(2, 4)
        with emulated_capture(self.graph):
            buffer[1].copy_(self.source)
        self.assertEqual(len(self.graph.launches), 1)
        self.graph.replay()
        self.assertEqual(buffer.tolist(), [[0] * 4, [0, 1, 2, 3]])

    def test_work_on_the_host_is_not_recorded(self) -> None:
        planned: list[torch.Tensor] = []
        with emulated_capture(self.graph):
            if not planned:
                planned.append(self.source + 1)
            result = planned[0] * 1
        self.source.fill_(9)
        self.graph.replay()
        self.assertEqual(result.tolist(), [10] * 4)
        already = EmulatedGraph()
        planned[0].fill_(3)
        with emulated_capture(already):
            stale = planned[0] * 1
        self.source.fill_(20)
        already.replay()
        self.assertEqual(stale.tolist(), [3] * 4)

    def test_reading_a_device_value_is_not_permitted(self) -> None:
        with self.assertRaisesRegex(RuntimeError, NOT_PERMITTED[:30]), emulated_capture(self.graph):
            self.source[0].item()
        self.assertFalse(is_capturing())

    def test_captures_do_not_nest_and_a_capture_is_not_replayed(self) -> None:
        with emulated_capture(self.graph):
            with self.assertRaises(RuntimeError):
                EmulatedGraph().capture_begin()
            with self.assertRaises(RuntimeError):
                self.graph.replay()

    def test_a_chain_of_operations_replays_in_order(self) -> None:
        total = torch.zeros(4)
        with emulated_capture(self.graph):
            doubled = self.source * 2
            total.copy_(doubled)
            total.add_(1)
        self.source.fill_(4)
        self.graph.replay()
        self.assertEqual(total.tolist(), [9] * 4)


if __name__ == "__main__":
    unittest.main()
