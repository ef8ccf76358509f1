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
from fixtures.evidence.audit import Kernel, Node, Trace
from fixtures.evidence.contract import Descriptor

PIECES = Descriptor(mode="PIECEWISE", num_tokens=4)
BLOCK = 16
OnDevice: Any = type("OnDevice", (torch.Tensor,), {"is_cuda": True})
"""A tensor of the host that says it is on a device."""


class Lengths:
    """A layer's metadata."""

    def __init__(self) -> None:
        self.lens = torch.zeros(4).as_subclass(OnDevice)


class Model:
    """The model's manager."""


class Draft:
    """A draft's manager."""


class State:
    """A model state that prepares what it is told to."""

    metadata: Any = None

    def prepare_attn(
        self,
        input_batch: Any,
        cudagraph_mode: Any,
        slot_mappings: torch.Tensor,
        for_capture: bool = False,
    ) -> dict[str, Any]:
        """Metadata of one layer, or of none."""
        return {"layer": self.metadata} if self.metadata else {}


def batch(requests: int, padded: int) -> Any:
    """A decode step of so many requests."""
    scheduled: Any = np.ones(requests, dtype=np.int32)
    counts = {"num_reqs": requests, "num_tokens": requests, "num_tokens_after_padding": padded}
    return SimpleNamespace(num_scheduled_tokens=scheduled, **counts)


class ReplayTest(unittest.TestCase):
    def setUp(self) -> None:
        costs = Costs(frozenset({Part.REPLAY}))
        captures = CaptureRecorder(costs)
        captures.traces = [Trace(kind="graph", descriptor=PIECES, owner="Model", nodes=())]
        self.costs, self.captures = costs, captures
        self.replays = ReplayRecorder(costs, captures)
        self.manager, self.state = Model(), State()
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
        self.replays.before_pieces(Draft())
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

    def captured(self, owner: str, metadata: Lengths) -> int:
        """A graph of the owner that reads the lengths; their address."""
        address = int(metadata.lens.data_ptr())
        path = f"{__name__}.Lengths.lens"
        self.captures.captured[owner, PIECES] = {path: address}
        node = Node(kind="kernel", kernel=0, arguments=address.to_bytes(8, "little").hex())
        trace = Trace(kind="graph", descriptor=PIECES, owner=owner, nodes=(node,))
        self.captures.traces.append(trace)
        return address

    def test_a_step_of_the_model_is_not_held_against_its_draft_s_captures(self) -> None:
        reader: Any = SimpleNamespace(kernels=(Kernel(name="attend", parameters=((0, 8),)),))
        self.captures.reader = reader
        own, drafts = Lengths(), Lengths()
        places = [self.captured("Model", own), self.captured("Draft", drafts)]
        for metadata in (own, drafts):
            self.state.metadata = metadata
            self.step("PIECEWISE", [16, 17, 18, -1])
            self.replays.before_pieces(self.manager)
        first, second = self.replays.replays
        self.assertEqual(first.moved, ())
        self.assertEqual([[one.captured, one.live] for one in second.moved], [places])
        self.assertEqual(self.costs.told(), ())

    def test_a_runner_without_a_model_state_is_said_not_to_be_looked_at(self) -> None:
        costs = Costs(frozenset({Part.REPLAY}))
        ReplayRecorder(costs, CaptureRecorder(costs)).begin(SimpleNamespace())
        (note,) = costs.told()
        self.assertIn("not looked at", note)
