"""Mistakes behind a graph's back, planted into releases' own code: what becomes of the buffer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from suites.selftest.running import under_emulation

_FAR = 64 << 20

RELEASES = [
    pytest.param("0.26.0"),
    pytest.param("0.27.0", marks=pytest.mark.releases),
    pytest.param("0.33.0", marks=pytest.mark.releases),
]


@pytest.mark.parametrize("release", RELEASES)
def test_captured_lengths_are_freed_moved_or_no_longer_written(release: str) -> None:
    printed = under_emulation(release, "moving_under_emulation")
    found: dict[str, dict[str, Any]] = json.loads(printed.splitlines()[-1])
    assert all(one["signatures"] and one["passes"] == 10 for one in found.values())
    freed, moved, unrefreshed = found["freed"], found["moved"], found["unrefreshed"]
    assert (freed["alive"], freed["storage"]) == (0, _FAR), "copies of their own, all freed"
    assert not freed["moved"]
    assert moved["moved"], "steps write elsewhere than to what was captured"
    assert moved["equal"], "but nothing else changed"
    assert unrefreshed["elsewhere"], "the lengths of a step are not written to the buffer"
    assert unrefreshed["current"] == ["NONE"], "graphs read what no step wrote"
    for one in found.values():
        assert one["sampled"] == ["NONE", "FULL"], "the sampler counts by a step's own lengths"
    assert not (unrefreshed["moved"] or moved["elsewhere"] or freed["elsewhere"])
