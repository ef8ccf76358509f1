"""The canary tier as pytest items: one per cell and gate, with the gate's verdicts.

`pytest suites/hopper -k "dsv4 and FULL" -n 4` on a node with a Hopper GPU and an installed vLLM;
on a machine without such a GPU one skipped item that says so. A Hopper node that can't run the
tier, for want of kernels or a driver that works, is an error: to skip would look like a pass.
"""

from __future__ import annotations

import pytest

from fixtures.cells.axes import Tier
from fixtures.cells.cell import CellKey
from fixtures.errors import GraphGateError
from gates.verdict import Gate
from suites.items import add_items, check
from suites.session import NoHopperError, tier_plan


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item per planned cell and gate; a request that is wrong ends the session."""
    vllm, sweep = metafunc.config.getoption("--vllm"), metafunc.config.getoption("--sweep")
    try:
        planned = tier_plan(Tier.CANARY, vllm, sweep)
    except NoHopperError as error:
        skipped = pytest.param(None, None, id="no-node", marks=pytest.mark.skip(reason=str(error)))
        metafunc.parametrize(("key", "gate"), [skipped])
        return
    except GraphGateError as error:
        raise pytest.UsageError(str(error)) from error
    add_items(metafunc, Tier.CANARY, planned)


def test_hopper(key: CellKey, gate: Gate, pytestconfig: pytest.Config) -> None:
    check(key, gate, pytestconfig)
