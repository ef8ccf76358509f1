"""The command line of GraphGate as the stand-in night's jobs call it.

Everything is the real thing but three: what is tested is a recorded plan's vLLM, the plan is
that plan, and cells are answered by suites/selftest/standin/children.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest.mock import patch

from fixtures.cells.cell import Plan, Source
from fixtures.run.environment import ChildEnvironment
from graphgate import cli
from suites.selftest.standin.children import ENTRY

PLAN_VARIABLE = "STANDIN_PLAN"


def _plan(*_: object) -> Plan:
    return Plan.read_json(Path(os.environ[PLAN_VARIABLE]))


def _source(*_: object) -> Source:
    return _plan().source


def _environment(*_: object) -> ChildEnvironment:
    module = ENTRY.partition(":")[0]
    return ChildEnvironment(python=sys.executable, entry=ENTRY, preload=(module,))


def main() -> None:
    """Run the command line with the three replaced."""
    replaced = {
        "graphgate.pipeline.plan_for_fleet": _plan,
        "graphgate.pipeline.resolve": _source,
        "graphgate.shard.same_source": _source,
        "graphgate.shard.plan_environment": _environment,
    }
    for name, replacement in replaced.items():
        patch(name, replacement).start()
    cli.main()


if __name__ == "__main__":
    main()
