"""Forks a process as vLLM forks its engine's, and lets both load vLLM's plugins.

Usage: python -m suites.selftest.child.forked_engine; the probe's folder is in the environment.
"""

from __future__ import annotations

import multiprocessing
import sys

from fixtures.child.canary import cell


def main() -> int:
    """Exit code of the forked process."""
    sys.path.append(str(cell.METADATA))
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    core = multiprocessing.get_context("fork").Process(
        target=load_general_plugins, name="EngineCore"
    )
    core.start()
    core.join()
    return core.exitcode or 0


if __name__ == "__main__":
    sys.exit(main())
