"""Steps before their replays on a CPU: pads and addresses, of graphs and of pieces."""

from __future__ import annotations

import unittest
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fixtures.child.audit.parts import Costs, Part
from fixtures.child.audit.recorder import CaptureRecorder
from fixtures.child.audit.replay import ReplayRecorder
from fixtures.evidence.audit import Trace
from fixtures.evidence.contract import Descriptor

PIECES = Descriptor(mode="PIECEWISE", num_tokens=4)
BLOCK = 16


class State:
    """A model state that prepares nothing."""

    def prepare_attn(
        self,
        input_batch: Any,
        cudagraph_mode: Any,
        slot_mappings: torch.Tensor,
        for_capture: bool = False,
    ) -> dict[str, Any]:
        """Metadata without a field."""
        return {}


def batch(requests: int, padded: int) -> Any:
    """A decode step of so many requests."""
    scheduled: Any = np.ones(requests, dtype=np.int32)
    counts = {"num_reqs": requests, "num_tokens": requests, "num_tokens_after_padding": padded}
    return SimpleNamespace(num_scheduled_tokens=scheduled, **counts)


class ReplayTest(unittest.TestCase):
    def setUp(self) -> None:
        costs = Costs(frozenset({Part.REPLAY}))
        captures = CaptureRecorder(costs)
        captures.traces = [Trace(kind="graph", descriptor=PIECES, nodes=())]
        self.costs, self.replays = costs, ReplayRecorder(costs, captures)
        self.manager, self.state = object(), State()
        self.runner = SimpleNamespace(
            cudagraph_manager=self.manager,
            model_state=self.state,
            block_tables=SimpleNamespace(block_sizes=[BLOCK]),
        )
        self.replays.begin(self.runner)

    def step(self, mode: str, slots: list[int], requests: int = 3) -> None:
        mapping = torch.tensor([slots])
        mode_of = SimpleNamespace(name=mode)
        self.state.prepare_attn(batch(requests, len(slots)), mode_of, slot_mappings=mapping)

    def test_a_live_slot_in_a_pad_row_of_pieces_is_counted_and_unusual(self) -> None:
        self.step("PIECEWISE", [16, 17, 18, -1])
        self.replays.before_pieces(self.manager)
        self.assertFalse(self.replays.unusual)
        self.step("PIECEWISE", [16, 17, 18, 40])
        self.replays.before_pieces(self.manager)
        self.assertTrue(self.replays.unusual)
        self.assertEqual([one.pad_slots for one in self.replays.replays], [0, 1])
        self.assertEqual({one.descriptor for one in self.replays.replays}, {PIECES})
        self.assertEqual(self.costs.told(), ())

    def test_eager_steps_other_managers_and_sizes_without_pieces_are_left_out(self) -> None:
        self.step("NONE", [16, 17, 18, 40])
        self.replays.before_pieces(self.manager)
        self.step("PIECEWISE", [16, 17, 18, 40])
        self.replays.before_pieces(object())
        self.step("PIECEWISE", [16, 17, 40], requests=2)
        self.replays.before_pieces(self.manager)
        self.replays.before_pieces(self.manager)
        self.assertEqual(self.replays.replays, [])
        self.assertEqual(self.costs.told(), ())

    def test_the_first_replays_of_a_size_are_enough(self) -> None:
        for _ in range(20):
            self.step("PIECEWISE", [16, 17, 18, -1])
            self.replays.before_pieces(self.manager)
        self.assertEqual(len(self.replays.replays), 8)
