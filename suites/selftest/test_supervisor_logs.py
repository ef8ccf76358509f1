"""The capped log and the hang watch, over all inputs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.cells.cell import Deadlines
from fixtures.cells.spec import AboutEvent, Phase, PhaseEvent, ProgressEvent
from fixtures.run.environment import ChildEnvironment, child_variables, inherited
from fixtures.run.logs import CappedLog
from fixtures.run.progress import EventTail, ProgressWatch
from suites.selftest.children import cell_that

CHUNKS = st.lists(st.binary(max_size=40), max_size=30)


@given(chunks=CHUNKS, limit=st.integers(min_value=4, max_value=200))
def test_a_capped_log_is_head_and_tail_of_what_was_written(chunks: list[bytes], limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.log"
        log = CappedLog(path, limit)
        for chunk in chunks:
            log.write(chunk)
            assert sum(file.stat().st_size for file in path.parent.iterdir()) <= limit
        log.close()
        assert list(path.parent.iterdir()) == [path]
        kept = path.read_bytes()
    whole = b"".join(chunks)
    if not log.dropped:
        assert kept == whole
        return
    notice = f"\n[graphgate: {log.dropped} bytes left out here]\n".encode()
    head, found, tail = kept.partition(notice)
    assert found
    assert head == whole[: limit // 2]
    assert tail == whole[limit // 2 + log.dropped :]
    assert len(tail) > limit // 4 - 1


def test_a_log_that_lost_its_writer_is_readable(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "x.log", 40)
    log.write(bytes(range(100)))
    assert (tmp_path / "x.log").read_bytes() == bytes(range(20))
    assert (tmp_path / "x.log.tail0").exists() and (tmp_path / "x.log.tail1").exists()


@given(done=st.lists(st.integers(min_value=-5, max_value=5), max_size=20))
def test_only_a_count_that_grows_is_progress(done: list[int]) -> None:
    watch = ProgressWatch(Deadlines())
    most = -1
    for count in done:
        assert watch.take(ProgressEvent(t=0, done=count)) == (count > most)
        most = max(most, count)


def test_phases_only_move_forward() -> None:
    watch = ProgressWatch(Deadlines())
    taken = [
        watch.take(PhaseEvent(t=0, phase=phase))
        for phase in (Phase.START, Phase.WORK, Phase.START, Phase.WORK, Phase.EXIT, Phase.WORK)
    ]
    assert taken == [False, True, False, False, True, False]
    assert watch.phase is Phase.EXIT
    assert list(watch.timings()) == ["start", "work", "exit"]


def test_endless_new_units_are_no_progress_for_ever() -> None:
    watch = ProgressWatch(Deadlines())
    taken = [watch.take(ProgressEvent(t=0, done=1, unit=str(n))) for n in range(2000)]
    assert taken[0] and not taken[-1]


def test_what_a_child_runs_on_is_no_progress() -> None:
    watch = ProgressWatch(Deadlines())
    assert not watch.take(AboutEvent(t=0, python="3.11.7", torch="2.13.0"))
    assert watch.about is not None and watch.about.torch == "2.13.0"


@given(cuts=st.lists(st.integers(min_value=0, max_value=400), max_size=6))
def test_events_are_read_once_however_they_are_cut(cuts: list[int]) -> None:
    events = [ProgressEvent(t=n, done=n, unit="é") for n in range(5)]
    data = b"".join(event.to_json(indent=None).encode() + b"\n" for event in events)
    seen: list[object] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        tail = EventTail(path)
        for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
            with path.open("ab") as file:
                file.write(data[start:end])
            seen += tail.poll()
    assert seen == events
    assert tail.unreadable == 0


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "CUDA_SECRET", "NVIDIA_API_KEY", "NCCL_AUTH_TOKEN", "CUDA_PASSWORDS", "AWS_KEY"],
)
def test_secrets_are_not_inherited(name: str) -> None:
    assert inherited({name: "x", "HOME": "/h"}) == {"HOME": "/h"}


def test_a_switch_of_the_shell_is_not_inherited_and_a_cells_own_wins() -> None:
    cell = cell_that("finish", environment={"OMP_NUM_THREADS": "2", "PYTHONPATH": "/evil"})
    environment = ChildEnvironment(
        python="python", module_path=("/tree",), variables={"A": "environment"}
    )
    shell = {"VLLM_USE_V2_MODEL_RUNNER": "0", "A": "shell", "NCCL_DEBUG": "INFO"}
    variables = child_variables(shell, environment, cell)
    assert "VLLM_USE_V2_MODEL_RUNNER" not in variables
    assert variables["A"] == "environment"
    assert variables["NCCL_DEBUG"] == "INFO"
    assert variables["OMP_NUM_THREADS"] == "2"
    assert variables["PYTHONPATH"].endswith(":/tree")
