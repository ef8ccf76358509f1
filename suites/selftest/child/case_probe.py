"""The probe: each hazard shows in its own column, and indices out of range are noted."""

from __future__ import annotations

import unittest

import torch

from fixtures.child.contract.probe import (
    COLUMNS,
    OPS,
    UNBOUNDED,
    WATCH,
    ProbeMetadata,
)
from fixtures.child.contract.state import metadata_facts, planned_fields, shared_state

BLOCK = 4


def metadata(query_lens: list[int], seq_lens: list[int], slots: list[int]) -> ProbeMetadata:
    starts = torch.tensor([0, *query_lens]).cumsum(0).to(torch.int32)
    rows = len(query_lens)
    return ProbeMetadata(
        num_reqs=rows,
        num_actual_tokens=sum(query_lens),
        max_query_len=max(query_lens),
        max_seq_len=max(seq_lens),
        query_start_loc=starts,
        seq_lens=torch.tensor(seq_lens, dtype=torch.int32),
        block_table=torch.arange(rows * 2, dtype=torch.int32).reshape(rows, 2),
        slot_mapping=torch.tensor(slots),
        for_capture=False,
    )


def attend(given: ProbeMetadata, keys: torch.Tensor, **scalars: int) -> list[float]:
    out = torch.zeros(given.num_actual_tokens, len(COLUMNS), dtype=torch.float64)
    longest = scalars.get("max_query_len", UNBOUNDED)
    bound = scalars.get("max_seq_len", UNBOUNDED)
    OPS.attend(
        out, 1, keys, given.block_table, given.seq_lens, given.seq_lens,
        given.query_start_loc, BLOCK, longest, bound,
    )  # fmt: skip
    values: list[float] = out[:, 1].tolist()
    return values


class ProbeTest(unittest.TestCase):
    def setUp(self) -> None:
        self.keys = torch.arange(1.0, 17.0, dtype=torch.float64)
        WATCH.take()

    def test_attention_sums_what_each_token_may_see(self) -> None:
        given = metadata([2, 1], [3, 2], [1, 2, 9])
        # Request 0 holds slots 0, 1, 2 (keys 1, 2, 3), request 1 slots 8, 9 (keys 9, 10).
        self.assertEqual(attend(given, self.keys), [1 + 4, 1 + 4 + 9, 9 + 20])

    def test_a_scalar_that_is_too_small_cuts_rows_or_context(self) -> None:
        given = metadata([2, 1], [3, 2], [1, 2, 9])
        self.assertEqual(attend(given, self.keys, max_query_len=1), [5, 0, 29])
        self.assertEqual(attend(given, self.keys, max_seq_len=1), [1, 1, 9])

    def test_an_index_out_of_range_is_noted_not_followed(self) -> None:
        given = metadata([1], [9], [0])
        attend(given, self.keys)
        (fault,) = WATCH.take()
        self.assertEqual((fault.what, fault.value, fault.limit), ("block-table column", 2, 2))

    def test_padding_slots_are_skipped_and_live_ones_written(self) -> None:
        OPS.store(self.keys, torch.tensor([50.0, 60.0], dtype=torch.float64), torch.tensor([-1, 3]))
        self.assertEqual(self.keys[:4].tolist(), [1, 2, 3, 60])
        self.assertEqual(WATCH.take(), [])
        OPS.store(self.keys, torch.tensor([5.0], dtype=torch.float64), torch.tensor([99]))
        self.assertEqual([fault.value for fault in WATCH.take()], [99])

    def test_the_state_operation_uses_the_token_before(self) -> None:
        given = metadata([2], [3], [1, 2])
        out = torch.zeros(2, len(COLUMNS), dtype=torch.float64)
        values = torch.tensor([10.0, 20.0], dtype=torch.float64)
        state = torch.arange(16.0, dtype=torch.float64)
        state[0] = 7
        OPS.convolve(
            out, 4, state, values, given.slot_mapping, given.block_table, given.seq_lens,
            given.query_start_loc, BLOCK,
        )  # fmt: skip
        self.assertEqual(out[:, 4].tolist(), [10 * 3 + 7 * 5, 20 * 3 + 10 * 5])
        self.assertEqual(state[:3].tolist(), [7, 10, 20])


class StateTest(unittest.TestCase):
    def test_a_plan_is_made_once_and_shows(self) -> None:
        given = metadata([1], [3], [2])
        self.assertEqual(planned_fields(given), ())
        plan = given.planned()
        self.assertIs(given.planned(), plan)
        self.assertEqual(planned_fields(given), ("ProbeMetadata.plan",))

    def test_sharing_is_seen_in_objects_and_in_what_they_filled(self) -> None:
        one, other = metadata([1], [3], [2]), metadata([1], [3], [2])
        self.assertEqual(shared_state(one, other), ())
        self.assertEqual(shared_state(one, one), ("ProbeMetadata",))
        other.plan = one.planned()
        self.assertEqual(shared_state(one, other), ("ProbeMetadata.plan",))
        self.assertEqual(shared_state(one, None), ())

    def test_contradictions_are_put_into_words(self) -> None:
        given = metadata([2, 1], [3, 2], [1, 2, 9])
        self.assertEqual(metadata_facts(given, 4).inconsistencies, ())
        given.max_query_len = 1
        given.seq_lens = torch.tensor([1, 2], dtype=torch.int32)
        said = " / ".join(metadata_facts(given, 2).inconsistencies)
        for words in ("a sequence of 1 tokens has a query of 2", "max_query_len 1", "of 2 blocks"):
            self.assertIn(words, said)

    def test_local_lengths_are_a_ranks_share(self) -> None:
        given = metadata([1, 1], [5, 4], [1, 9])
        self.assertIsNone(metadata_facts(given, 4).local_seq_lens_right)
        self.assertFalse(metadata_facts(given, 4, context_parallel=2).local_seq_lens_right)
        given.local_seq_lens = torch.tensor([3, 2])
        self.assertTrue(metadata_facts(given, 4, context_parallel=2).local_seq_lens_right)


if __name__ == "__main__":
    unittest.main()
