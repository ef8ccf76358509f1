"""Attention state: walked by attributes, compared without holding it, wound back to what it was."""

from __future__ import annotations

import gc
import unittest
from dataclasses import dataclass, field
from typing import Any

import torch

from fixtures.child.audit.state import Identities, Snapshot, shared_objects
from fixtures.child.audit.warmth import Warmth, state_audit
from fixtures.evidence.contract import Descriptor

DESC = Descriptor(mode="FULL", num_tokens=4)


class Sched:
    """Planned on first use; not a dataclass, and it grows an attribute when it is used."""

    def __init__(self) -> None:
        self.plan: torch.Tensor | None = None
        self.ready = False


@dataclass(frozen=True)
class Metadata:
    """A layer's metadata, frozen as some backends' are."""

    lens: torch.Tensor
    longest: int = 1
    sched: Sched = field(default_factory=Sched)
    parts: list[Any] = field(default_factory=lambda: [None])
    lazy: torch.Tensor | None = None


def use(metadata: Metadata) -> None:
    """What a first forward pass does to it."""
    metadata.sched.plan = torch.ones(3)
    metadata.sched.ready = True
    metadata.sched.__dict__["extra"] = 5
    metadata.parts[0] = torch.ones(1)
    object.__setattr__(metadata, "lazy", torch.ones(2))


def warmth_of(metadata: Metadata) -> Warmth:
    before = Snapshot({"layers.0": metadata, "layers.1": metadata})
    use(metadata)
    return Warmth(before, Snapshot({"layers.0": metadata}))


class StateTest(unittest.TestCase):
    def test_filled_fields_are_named_and_winding_back_empties_them(self) -> None:
        metadata = Metadata(torch.zeros(4))
        before = Snapshot({"layers.0": metadata})
        use(metadata)
        after = Snapshot({"layers.0": metadata})
        filled = {str(entry.name) for entry in after.filled_since(before)}
        self.assertEqual(filled, {"plan", "ready", "extra", "0", "lazy"})
        before.wind_back()
        self.assertIsNone(metadata.sched.plan)
        self.assertIs(metadata.sched.ready, False)
        self.assertFalse(hasattr(metadata.sched, "extra"))
        self.assertIsNone(metadata.lazy)
        self.assertEqual(metadata.parts, [None])
        after.wind_back()
        self.assertTrue(metadata.sched.ready)
        self.assertEqual(metadata.parts[0].item(), 1.0)

    def test_fresh_metadata_is_found_empty_and_reused_metadata_filled(self) -> None:
        first = Metadata(torch.zeros(4))
        warmth = warmth_of(first)
        fresh = state_audit(DESC, "", warmth, Snapshot({"layers.0": Metadata(torch.zeros(4))}))
        self.assertEqual({f.at_capture for f in fresh.lazy if f.name != "extra"}, {"empty"})
        self.assertEqual(fresh.shared, ())
        reused = state_audit(DESC, "", warmth, Snapshot({"layers.0": first}))
        self.assertEqual({f.at_capture for f in reused.lazy}, {"warmup"})
        self.assertEqual(
            {one.type.rpartition(".")[2] for one in reused.shared}, {"Metadata", "Sched"}
        )

    def test_new_metadata_around_an_old_plan_is_found(self) -> None:
        first = Metadata(torch.zeros(4))
        warmth = warmth_of(first)
        mixed = Metadata(torch.zeros(4), sched=first.sched)
        found = state_audit(DESC, "", warmth, Snapshot({"layers.0": mixed}))
        stale = {f.name for f in found.lazy if f.at_capture == "warmup"}
        self.assertEqual(stale, {"plan", "ready", "extra"})
        self.assertEqual([one.type.rpartition(".")[2] for one in found.shared], ["Sched"])

    def test_what_is_kept_of_a_warm_up_holds_none_of_it(self) -> None:
        first = Metadata(torch.zeros(4))
        known = Identities(Snapshot({"layers.0": first}))
        self.assertIn(first, known)
        del first
        gc.collect()
        other = Snapshot({"layers.0": Metadata(torch.zeros(4))})
        self.assertEqual(list(shared_objects(known, other)), [])

    def test_host_integers_are_told_by_field_and_ending_walks_are_told(self) -> None:
        loop = Metadata(torch.zeros(1), longest=7)
        loop.parts.append(loop)
        snapshot = Snapshot([{"a": loop}, {"b": Metadata(torch.zeros(1), longest=3)}])
        self.assertEqual(snapshot.scalars()["longest"], 7)
        self.assertTrue(snapshot.complete)
        self.assertEqual(len(snapshot.backends), 1)
        self.assertEqual(Snapshot(None).entries, [])
