"""Triton kernels, interpreted from their source, compute what Triton's would."""

from __future__ import annotations

import types
import unittest
from typing import Any

import torch

from fixtures.child.contract.kernels import InterpretedKernel, Pointer, interpret_kernels
from fixtures.child.contract.shape import UnknownShapeError

tl: Any = None  # bound to the interpreter's own, as in a module without Triton


def add_rows(source: Any, target: Any, stride: Any, width: Any, BLOCK: Any) -> None:  # noqa: N803
    row = tl.program_id(0).to(tl.int64)
    for start in tl.range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < width
        value = tl.load(source + row * stride + column, mask=mask, other=0)
        tl.store(target + row * stride + column, tl.where(value > 2, value, -1), mask=mask)


def _follow(pointers: Any, index: Any) -> Any:
    return tl.cast(tl.load(pointers + index), tl.pointer_type(tl.int32))


def through_pointers(pointers: Any, target: Any) -> None:
    group = tl.program_id(0)
    tl.store(target + group, tl.load(_follow(pointers, group) + 1))


def unknown(source: Any) -> None:
    tl.no_such_operation(source)


def out_of_turn(target: Any) -> None:
    last = tl.num_programs(0) - 1
    if tl.program_id(0) == last:
        tl.store(target, last)


class _Wrapped:
    """What a decorator such as Triton's makes of a kernel where Triton is installed."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn


class KernelTest(unittest.TestCase):
    def test_a_modules_kernels_are_found_also_behind_a_wrapper(self) -> None:
        module = types.ModuleType(__name__)
        module.__dict__.update(out_of_turn=_Wrapped(out_of_turn), _follow=_follow, other=7)
        self.assertEqual(interpret_kernels(module), ["out_of_turn"])
        target = torch.zeros(1, dtype=torch.int32)
        module.__dict__["out_of_turn"][(3,)](target)
        self.assertEqual(target.tolist(), [2])

    def test_masked_rows_and_blocks_smaller_than_a_row(self) -> None:
        source = torch.arange(10, dtype=torch.int32).reshape(2, 5)
        target = torch.full((2, 5), 99, dtype=torch.int32)
        InterpretedKernel(add_rows)[(2,)](source, target, 5, 4, BLOCK=3)
        self.assertEqual(target.tolist(), [[-1, -1, -1, 3, 99], [5, 6, 7, 8, 99]])

    def test_addresses_in_memory_are_followed(self) -> None:
        held = [torch.tensor([1, 2], dtype=torch.int32), torch.tensor([3, 4], dtype=torch.int32)]
        pointers = torch.tensor([t.data_ptr() for t in held], dtype=torch.uint64)
        target = torch.zeros(2, dtype=torch.int64)
        InterpretedKernel(through_pointers)[(2,)](pointers, target)
        self.assertEqual(target.tolist(), [2, 4])

    def test_programs_know_their_number(self) -> None:
        target = torch.zeros(1, dtype=torch.int32)
        InterpretedKernel(out_of_turn)[(5,)](target)
        self.assertEqual(target.tolist(), [4])

    def test_what_cannot_be_interpreted_names_the_kernel(self) -> None:
        with self.assertRaisesRegex(UnknownShapeError, "unknown.*no_such_operation"):
            InterpretedKernel(unknown)[(1,)](torch.zeros(1))

    def test_pointers_add_in_elements(self) -> None:
        data = torch.arange(6, dtype=torch.int64)
        self.assertEqual((Pointer.to(data) + 3).load(), 3)
        self.assertEqual((Pointer.to(data) + 5 - 1).load(), 4)
        self.assertEqual((Pointer.to(data) + 4).load(mask=False, other=7), 7)


if __name__ == "__main__":
    unittest.main()
