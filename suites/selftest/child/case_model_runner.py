"""Which model runner a worker has, told by the release's own classes."""

from __future__ import annotations

import unittest

from fixtures.child.canary.extension import runner_of


def a_class(module: str, *bases: type) -> type:
    return type("GPUModelRunner", bases, {"__module__": module})


class ModelRunnerTest(unittest.TestCase):
    def test_runners_are_told_apart_by_where_they_come_from(self) -> None:
        old = a_class("vllm.v1.worker.gpu_model_runner")
        new = a_class("vllm.v1.worker.gpu.model_runner")
        self.assertEqual((runner_of(old), runner_of(new)), ("V1", "V2"))
        self.assertEqual(runner_of(a_class("elsewhere", new)), "V2", "one that builds on it")
        self.assertEqual(runner_of(a_class("elsewhere")), "GPUModelRunner")


if __name__ == "__main__":
    unittest.main()
