"""Wires the stages into pytest: the options of the suites that run cells."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that say what is tested, by the names of the command line."""
    group = parser.getgroup("graphgate")
    group.addoption(
        "--vllm", help="a release (0.26.0), a checkout's folder, or installed (see graphgate plan)"
    )
    group.addoption("--sweep", default="pr", help="a file of suites/sweeps/, by name")
    group.addoption(
        "--graphgate-out",
        type=Path,
        default=Path("out/pytest"),
        help="the folder for evidence; what an earlier run left there is removed",
    )
