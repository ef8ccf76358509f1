"""The contract tier as pytest items: one per cell and gate, with the gate's verdicts.

`pytest suites/contract -k "dsv4 and FULL" -n 2 --vllm 0.26.0`
"""

from __future__ import annotations

import pytest

from fixtures.cells.axes import Tier
from fixtures.cells.cell import CellKey
from fixtures.errors import GraphGateError
from gates.verdict import Gate
from suites.items import add_items, check
from suites.session import tier_plan


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item per planned cell and gate; a request that is wrong ends the session."""
    vllm, sweep = metafunc.config.getoption("--vllm"), metafunc.config.getoption("--sweep")
    try:
        planned = tier_plan(Tier.CONTRACT, vllm, sweep)
    except GraphGateError as error:
        raise pytest.UsageError(str(error)) from error
    add_items(metafunc, Tier.CONTRACT, planned)


def test_contract(key: CellKey, gate: Gate, pytestconfig: pytest.Config) -> None:
    check(key, gate, pytestconfig)
