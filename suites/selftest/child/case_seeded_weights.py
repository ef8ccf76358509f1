"""Seeded weights: equal in every process, sane for every type, alive where it matters."""

from __future__ import annotations

import subprocess
import sys
import unittest

import torch

from fixtures.child.canary.weights import fill

_SUM_IN_ANOTHER_PROCESS = """
import torch
from fixtures.child.canary.weights import fill
tensor = torch.empty(64, 32, dtype=torch.bfloat16)
fill("model.layers.0.mlp.down_proj.weight", tensor)
print(tensor.double().sum().item())
"""


def filled(name: str, *shape: int, dtype: torch.dtype, experts: int = 0) -> torch.Tensor:
    tensor = torch.empty(shape, dtype=dtype)
    fill(name, tensor, experts)
    return tensor


class SeededWeightsTest(unittest.TestCase):
    def test_another_process_draws_the_same(self) -> None:
        mine = filled("model.layers.0.mlp.down_proj.weight", 64, 32, dtype=torch.bfloat16)
        done = subprocess.run(
            [sys.executable, "-c", _SUM_IN_ANOTHER_PROCESS],
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual(float(done.stdout), mine.double().sum().item())

    def test_each_parameter_has_numbers_of_its_own(self) -> None:
        one = filled("model.layers.0.mlp.up.weight", 8, 8, dtype=torch.float32)
        other = filled("model.layers.1.mlp.up.weight", 8, 8, dtype=torch.float32)
        self.assertFalse(torch.equal(one, other))

    def test_a_matrix_keeps_the_size_of_what_it_maps(self) -> None:
        weight = filled("model.layers.0.attn.wq.weight", 512, 1024, dtype=torch.bfloat16)
        mapped = torch.randn(256, 1024) @ weight.float().T
        self.assertAlmostEqual(mapped.std().item(), 1.0, delta=0.05)

    def test_quantised_weights_times_their_scale_are_no_louder_than_others(self) -> None:
        weight = filled("layer.weight", 256, 4096, dtype=torch.float8_e4m3fn)
        scale = filled("layer.weight_scale_inv", 2, 32, dtype=torch.float32)
        mapped = torch.randn(64, 4096) @ (weight.float() * scale[0, 0]).T
        self.assertAlmostEqual(mapped.std().item(), 1.0, delta=0.1)
        self.assertGreater((weight.float() != 0).float().mean().item(), 0.9)

    def test_scales_of_one_byte_are_exponents_of_the_same_size(self) -> None:
        packed = filled("experts.w13_weight_scale", 4, 8, dtype=torch.uint8)
        self.assertEqual(set(packed.flatten().tolist()), {121})
        typed = filled("experts.w13_weight_scale", 4, 8, dtype=torch.float8_e8m0fnu)
        self.assertEqual(set(typed.float().flatten().tolist()), {1 / 64})

    def test_packed_weights_use_every_pattern(self) -> None:
        packed = filled("experts.w13_weight", 64, 64, dtype=torch.uint8)
        self.assertGreater(packed.unique().numel(), 240)

    def test_a_table_of_experts_names_each_at_most_once_a_row(self) -> None:
        table = filled("ffn.gate.tid2eid", 500, 6, dtype=torch.int32, experts=16)
        self.assertTrue(((table >= 0) & (table < 16)).all())
        self.assertTrue(all(len(set(row)) == 6 for row in table.tolist()))
        self.assertEqual(table.unique().numel(), 16)

    def test_norms_are_near_one_and_gains_are_one(self) -> None:
        norm = filled("model.layers.0.attn_norm.weight", 4096, dtype=torch.bfloat16).float()
        self.assertAlmostEqual(norm.mean().item(), 1.0, delta=0.02)
        self.assertGreater(norm.std().item(), 0.05)
        self.assertEqual(filled("mlp.global_scale", 1, dtype=torch.float32).item(), 1.0)

    def test_every_value_is_finite_and_scalars_and_slices_are_filled(self) -> None:
        base = torch.full((16, 32), float("nan"))
        fill("layer.weight", base[:, ::2])
        self.assertTrue(base[:, ::2].isfinite().all())
        self.assertTrue(base[:, 1::2].isnan().all())
        scalar = torch.full((), float("nan"))
        fill("layer.bias", scalar)
        self.assertTrue(scalar.isfinite())


if __name__ == "__main__":
    unittest.main()
