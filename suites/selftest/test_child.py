"""Runs the tests of the child's own parts in the Python that children run in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fixtures.source.environment import slim_python

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(path.stem for path in (Path(__file__).parent / "child").glob("case_*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_the_parts_of_the_child(module: str) -> None:
    done = subprocess.run(
        [str(slim_python()), "-m", "unittest", "-v", f"suites.selftest.child.{module}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 0 tests" not in done.stderr
