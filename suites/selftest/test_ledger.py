"""The ledger keeps what can be read and names what cannot."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fixtures.cells.cell import CellKey
from fixtures.evidence.cellrun import Attempt, CellRun, Observation, Provenance
from fixtures.evidence.crash import CrashKind, CrashReport
from fixtures.evidence.exits import Exited
from fixtures.run.ledger import Ledger
from suites.selftest.children import cell_that


def run_of(name: str, *, excerpt: str = "", seconds: float = 1.0) -> CellRun:
    return CellRun(
        cell=cell_that("finish", name=name),
        attempts=(Attempt(index=0, exit=Exited(code=0), phase="exit"),),
        crash=CrashReport(title="t", kind=CrashKind.REG, excerpt=excerpt) if excerpt else None,
        observation=Observation(timings={"work": seconds}),
        provenance=Provenance(vllm="0.0.0", source="toy@1"),
    )


def test_what_is_appended_comes_back_in_order(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    runs = tuple(run_of(f"m{n}") for n in range(5))
    for run in runs:
        ledger.append(run)
    assert ledger.read().runs == runs
    assert ledger.read().problems == ()


def test_no_ledger_is_an_empty_ledger(tmp_path: Path) -> None:
    contents = Ledger(tmp_path / "ledger.jsonl").read()
    assert contents.runs == () and contents.problems == ()


@given(excerpt=st.text(min_size=1), seconds=st.floats(allow_nan=False))
def test_any_text_and_figure_survive(excerpt: str, seconds: float) -> None:
    run = run_of("m", excerpt=excerpt, seconds=seconds)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.jsonl")
        ledger.append(run)
        assert ledger.read().runs == (run,)


def test_a_large_line_is_a_line(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    large = run_of("m", excerpt="x\n\u2028" * 2**21)
    ledger.append(large)
    ledger.append(run_of("n"))
    assert ledger.read().runs == (large, run_of("n"))


@given(data=st.data())
def test_damage_costs_only_the_lines_that_it_hits(data: st.DataObject) -> None:
    runs = [run_of(f"m{n}") for n in range(4)]
    lines = [run.to_json(indent=None).encode() + b"\n" for run in runs]
    whole = b"".join(lines)
    at = data.draw(st.integers(min_value=0, max_value=len(whole) - 1))
    noise = data.draw(st.binary(max_size=30))
    until = min(len(whole), at + len(noise))
    damaged = whole[:at] + noise + whole[until:]
    ends = [sum(map(len, lines[: n + 1])) for n in range(4)]
    untouched = [
        run for n, run in enumerate(runs) if ends[n] <= at or ends[n] - len(lines[n]) > until
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        path.write_bytes(damaged)
        contents = Ledger(path).read()
    assert [run for run in contents.runs if run in untouched] == untouched
    assert all(problem.line >= 1 and problem.why for problem in contents.problems)
    if len(contents.runs) < len(runs):
        assert contents.problems or b"\n" not in damaged[at - 1 : until + 1]


def test_a_line_cut_off_is_said_to_be_and_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.append(run_of("a"))
    ledger.append(run_of("b"))
    path.write_bytes(path.read_bytes()[:-20])
    (problem,) = ledger.read().problems
    assert problem.line == 2 and "cut off" in problem.why
    ledger.append(run_of("c"))
    contents = ledger.read()
    assert contents.runs == (run_of("a"), run_of("c"))
    assert [problem.line for problem in contents.problems] == [2]


def test_lines_of_an_unknown_version_or_kind_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    future = {**run_of("a").plain(), "schema_version": 99}
    more = {**run_of("b").plain(), "surprise": 1}
    path.write_text("\n".join([json.dumps(future), json.dumps(more), "", "[]", "\0", ""]))
    contents = Ledger(path).read()
    assert contents.runs == ()
    assert [problem.line for problem in contents.problems] == [1, 2, 4, 5]
    assert "version 99" in contents.problems[0].why
    assert "surprise" in contents.problems[1].why


def test_writers_beside_each_other_keep_their_lines_whole(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"

    def write(name: str) -> None:
        for _ in range(10):
            Ledger(path).append(run_of(name, excerpt="x" * 100_000))

    threads = [threading.Thread(target=write, args=(f"m{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    contents = Ledger(path).read()
    assert len(contents.runs) == 40 and contents.problems == ()


def test_the_newest_run_of_a_key_is_found(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert ledger.last_run(run_of("a").cell.key) is None
    ledger.append(run_of("a", seconds=1))
    ledger.append(run_of("b"))
    ledger.append(run_of("a", seconds=2))
    assert ledger.last_run(run_of("a").cell.key) == run_of("a", seconds=2)
    assert ledger.last_run(CellKey.parse("c.FULL.bk0.contract")) is None
