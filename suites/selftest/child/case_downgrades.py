"""vLLM's words on downgrades: heard once each, whatever else is logged."""

from __future__ import annotations

import logging
import unittest

from fixtures.child.canary import downgrades

TOLD = "CUDAGraphMode.FULL is not supported; setting cudagraph_mode=FULL_DECODE_ONLY"


class DowngradesTest(unittest.TestCase):
    def test_only_lines_about_graph_modes_are_kept_and_each_once(self) -> None:
        downgrades.listen()
        downgrades.listen()
        log = logging.getLogger("vllm.config.compilation")
        log.setLevel(logging.INFO)
        log.warning("CUDAGraphMode.%s is not supported;\n setting cudagraph_mode=%s", "FULL", "X")
        for _ in range(3):
            log.warning("%s", TOLD)
        log.info("Cudagraph mode %s is not compatible.Overriding to NONE.", "PIECEWISE")
        log.info("Capturing CUDA graphs (PIECEWISE)")
        log.warning("a line that %d can't be formatted", "setting cudagraph_mode=")
        self.assertEqual(
            downgrades.heard(),
            (
                "CUDAGraphMode.FULL is not supported; setting cudagraph_mode=X",
                TOLD,
                "Cudagraph mode PIECEWISE is not compatible.Overriding to NONE.",
            ),
        )


if __name__ == "__main__":
    unittest.main()
