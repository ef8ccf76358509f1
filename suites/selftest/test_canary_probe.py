"""The canary's probe around the real capture code of releases, on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suites.selftest.running import under_emulation

ROOT = Path(__file__).resolve().parents[2]


def counts(release: str, *arguments: str) -> dict[str, Any]:
    """What the probe counted while a manager of the release captured and replayed."""
    printed = under_emulation(release, "probe_under_emulation", *arguments)
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def by_size(found: dict[str, Any], mode: str) -> dict[int, dict[str, Any]]:
    return {use["tokens"]: use for use in found["uses"] if use["mode"] == mode}


@pytest.mark.parametrize("release", ["0.33.0", pytest.param("0.26.0", marks=pytest.mark.releases)])
def test_every_graph_that_can_be_chosen_is_seen_captured_and_replayed(release: str) -> None:
    found = counts(release, "FULL_AND_PIECEWISE", "0")
    full, pieces = by_size(found, "FULL"), by_size(found, "PIECEWISE")
    assert sorted(full) == sorted(pieces) == [1, 2, 4, 8, 16]
    assert all(use["graphs"] == 1 and use["replays"] > 0 for use in full.values())
    assert all(use["graphs"] == 2 for use in pieces.values()), "one graph a compiled piece"
    # One token alone is a decode: its FULL graph comes first, so no batch gets this one.
    assert [size for size, use in pieces.items() if not use["reachable"]] == [1]
    assert [size for size, use in pieces.items() if not use["replays"]] == [1]
    assert found["eager"] == {"17": 1}, "the one step past the largest size"


def test_breakable_graphs_are_counted_with_their_breaks() -> None:
    pieces = by_size(counts("0.33.0", "PIECEWISE", "1"), "PIECEWISE")
    assert all(use["graphs"] == use["eager_breaks"] + 1 for use in pieces.values())
    assert all(use["eager_breaks"] and use["replays"] for use in pieces.values())


def test_graphs_made_while_serving_and_replays_left_out_show_in_the_counts() -> None:
    late = counts("0.33.0", "PIECEWISE", "1", "late-capture")
    assert late["before"] == 0 < sum(use["graphs"] for use in late["uses"])
    never = by_size(counts("0.33.0", "PIECEWISE", "1", "piecewise-captures-nothing"), "PIECEWISE")
    assert not any(use["graphs"] or use["replays"] for use in never.values())


@pytest.mark.parametrize(
    ("drafted", "owners"),
    [("1", {"target", "draft-prefill"}), ("2", {"target", "draft-prefill", "draft-decode"})],
)
def test_graphs_of_later_drafts_count_only_where_there_are_later_drafts(
    drafted: str, owners: set[str]
) -> None:
    found = counts("0.33.0", "FULL_DECODE_ONLY", "0", "", drafted)
    assert {use["owner"] for use in found["uses"]} == owners
    empty = {use["owner"] for use in found["uses"] if not use["graphs"]}
    assert empty == owners & {"draft-decode"}, "what ought to be captured and is not, shows"
