"""What makes canary cells cheap, and the measurement of what they cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.cells.cell import Cell
from fixtures.child.canary.clock import Stopwatch
from fixtures.child.canary.kept import KeptKernels
from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import Attempt, Observation
from fixtures.evidence.exits import Exited
from suites.bench.cost import cost_of
from suites.bench.packing import ALONE, PACKED, RESULT, CellTime, Packing, Pass, chosen, measure
from suites.selftest.build import a_cell, a_plan, a_run
from suites.selftest.children import cell_that
from suites.selftest.running import environment, plan_of

FOREVER = float("inf")


class TestKeptKernels:
    """`disk` is any dictionary: what it holds is what earlier processes left."""

    def test_a_kernel_of_an_earlier_process_is_not_compiled_again(self) -> None:
        disk: dict[Any, Any] = {}
        KeptKernels(lambda: disk)[1, 2] = "compiled"
        later = KeptKernels(lambda: disk)
        assert (1, 2) in later
        assert later[1, 2] == "compiled"
        assert (2, 2) not in later

    def test_the_disk_is_opened_at_the_first_use_and_once(self) -> None:
        opened: list[dict[Any, Any]] = []

        def open_disk() -> dict[Any, Any]:
            opened.append({})
            return opened[-1]

        kernels = KeptKernels(open_disk)
        assert not opened
        assert 1 not in kernels
        kernels[1] = "compiled"
        assert len(opened) == 1

    def test_a_kernel_in_memory_is_not_looked_for_on_disk(self) -> None:
        disk = BrokenDisk(only_reads=True)
        kernels = KeptKernels(lambda: disk)
        kernels[1] = "compiled"
        assert 1 in kernels
        assert disk.asked == 0

    @pytest.mark.parametrize("only_reads", [True, False])
    def test_a_disk_that_fails_costs_a_compilation_and_is_left_alone(
        self, only_reads: bool, capsys: pytest.CaptureFixture[str]
    ) -> None:
        disk = BrokenDisk(only_reads=only_reads)
        kernels = KeptKernels(lambda: disk)
        assert 1 not in kernels
        kernels[1] = "compiled"
        assert kernels[1] == "compiled"
        assert 2 not in kernels
        assert disk.asked == 1
        assert "truncated" in capsys.readouterr().err


class BrokenDisk(dict[Any, Any]):
    """Fails when it is asked for a kernel, and unless `only_reads` when given one."""

    def __init__(self, *, only_reads: bool) -> None:
        super().__init__()
        self.asked = 0
        self._only_reads = only_reads

    def __contains__(self, key: object) -> bool:
        self.asked += 1
        raise RuntimeError("truncated")

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self._only_reads:
            raise RuntimeError("truncated")
        super().__setitem__(key, value)


class TestStopwatch:
    @pytest.fixture
    def ticks(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
        now = [0.0]
        monkeypatch.setattr(time, "perf_counter", lambda: now[0])
        yield now

    def test_blocks_add_up_and_what_is_somebody_elses_is_left_out(self, ticks: list[float]) -> None:
        watch = Stopwatch()
        with watch:
            ticks[0] = 1.0
            with watch.paused:
                ticks[0] = 11.0
                with watch:  # a block within somebody else's: a replay within a run
                    ticks[0] = 11.5
                ticks[0] = 20.0
            ticks[0] = 20.25
        assert watch.seconds == pytest.approx(1.75)

    def test_an_error_ends_the_block(self, ticks: list[float]) -> None:
        watch = Stopwatch()
        with pytest.raises(ValueError, match="the engine's"), watch, watch.paused:
            ticks[0] = 5.0
            raise ValueError("the engine's")
        assert watch.seconds == pytest.approx(0.0)


TIMINGS = {"import": 5.0, "engine": 20.0, "workload": 12.0, "serving": 11.0, "shutdown": 2.0}


class TestCost:
    def cost(self, tmp_path: Path, timings: dict[str, float]) -> Any:
        attempt = Attempt(
            index=0,
            exit=Exited(code=0),
            phase="exit",
            timings={"start": 26.0, "work": 13.5, "exit": 0.5},
        )
        cell = a_cell("llama.FULL.bk0.canary")
        run = a_run(cell, attempts=(attempt,), observation=Observation(timings=timings))
        return cost_of(run, tmp_path)

    def test_what_vllm_did_not_take_is_our_own(self, tmp_path: Path) -> None:
        clocks = {**TIMINGS, "child": 39.5, "probe": 0.4, "loader": 1.5}
        cost = self.cost(tmp_path, clocks)
        assert cost.exit == 0.5
        assert cost.own == pytest.approx(40 - 0.5 - 38 + 0.4)
        assert cost.share == pytest.approx(1.9 / 40)
        assert cost.share_with_exit == pytest.approx(2.4 / 40)
        assert cost.loader == 1.5
        assert cost.audit == 0.0

    def test_libraries_that_vllm_needs_too_are_not_our_own(self, tmp_path: Path) -> None:
        cost = self.cost(tmp_path, {**TIMINGS, "child": 39.5, "libraries": 0.3})
        assert cost.own == pytest.approx(40 - 0.5 - 38 - 0.3)

    def test_older_evidence_tells_no_share(self, tmp_path: Path) -> None:
        cost = self.cost(tmp_path, TIMINGS)
        assert cost.total == 40.0
        assert cost.own is None
        assert cost.share_with_audit is None
        assert cost.share_with_exit is None

    def test_a_cell_without_a_completion_record_has_no_cost(self, tmp_path: Path) -> None:
        assert cost_of(a_run(observation=None), tmp_path) is None


class TestPacking:
    def cells(self) -> tuple[Cell, ...]:
        return tuple(cell_that("finish", name=name) for name in ("one", "two", "three"))

    def test_the_same_cells_run_packed_and_then_one_by_one(self, tmp_path: Path) -> None:
        told: list[str] = []
        passes: list[tuple[str, int | None]] = [(PACKED, 3), (ALONE, 1)]
        result = measure(
            plan_of(*self.cells()), environment(), tmp_path, passes, FOREVER, told.append
        )
        assert [one.name for one in result.passes] == [PACKED, ALONE]
        for one in result.passes:
            assert len(one.cells) == result.cells == 3
            assert all(cell.completed and cell.held >= cell.attempt >= 0 for cell in one.cells)
        assert result.ratio is not None
        assert result.ratio > 0
        assert len(told) == 6
        assert Packing.read_json(tmp_path / RESULT) == result
        assert (tmp_path / "one-by-one" / "ledger.jsonl").is_file(), (
            "evidence of every pass is kept"
        )

    def test_a_limit_ends_it_and_what_ran_is_kept(self, tmp_path: Path) -> None:
        long = cell_that("sleep_a_little", name="long", seconds=60.0)
        began = time.monotonic()
        result = measure(
            plan_of(*self.cells(), long),
            environment(),
            tmp_path,
            [(PACKED, 1), (ALONE, 1)],
            began + 3.0,
            print,
        )
        assert time.monotonic() - began < 30
        (cut,) = result.passes
        assert [cell.cell for cell in cut.cells] == [str(cell.key) for cell in self.cells()]
        assert result.ratio is None
        assert Packing.read_json(tmp_path / RESULT) == result

    @pytest.mark.parametrize(("alone", "ratio"), [(2, 3.0), (1, 1.5)])
    def test_the_ratio_is_of_wall_clocks_and_at_least_that_if_cut_off(
        self, alone: int, ratio: float
    ) -> None:
        cell = CellTime(cell="c", completed=True, held=10.0, attempt=9.0)
        packed = Pass(name=PACKED, cells=(cell, cell), wall=10.0)
        one_by_one = Pass(name=ALONE, cells=(cell,) * alone, wall=15.0 * alone)
        result = Packing(vllm="0.26.0", cells=2, passes=(packed, one_by_one))
        assert result.ratio == pytest.approx(ratio)
        cut = packed.model_copy(update={"cells": (cell,)})
        assert result.model_copy(update={"passes": (cut, one_by_one)}).ratio is None

    def test_cells_are_chosen_by_patterns_that_fit_something(self) -> None:
        keys = ("llama.NONE.bk0.canary", "llama.FULL.bk1.canary", "dsv4.NONE.bk0.canary")
        plan = a_plan(*(a_cell(key) for key in keys))
        some = chosen(plan, ["llama.*", "*.NONE.bk0"])
        assert {str(cell.key) for cell in some.cells} == set(keys)
        assert [str(cell.key) for cell in chosen(plan, ["llama.FULL.bk1"]).cells] == [keys[1]]
        with pytest.raises(ConfigError, match="inkling"):
            chosen(plan, ["inkling.*"])
