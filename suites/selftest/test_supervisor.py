"""What the supervisor survives: real children, each misbehaving in one way."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fixtures.cells.spec import STACKS_FILE
from fixtures.evidence.cellrun import Attempt
from fixtures.evidence.crash import CrashKind
from fixtures.evidence.exits import Exit, Exited, Killed, KillReason, NeverStarted, Signaled
from fixtures.run.cellrun import RunLimits
from fixtures.run.order import AttemptOrder
from fixtures.run.pool import LauncherPool
from fixtures.run.supervisor import supervise
from suites.selftest.children import cell_that
from suites.selftest.running import environment, is_alive, open_descriptors, pid_in, run_alone

SHORT = 0.6
"""Seconds without progress that count as a hang in these tests."""


@pytest.fixture(scope="module", params=["fork", "exec"])
def pool(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LauncherPool]:
    """Both ways to start a child; what holds for one must hold for the other."""
    pool = LauncherPool(
        environment(fork_server=request.param == "fork"), tmp_path_factory.mktemp("logs")
    )
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def fork_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LauncherPool]:
    """The quicker way, for what doesn't depend on how a child is started."""
    pool = LauncherPool(environment(), tmp_path_factory.mktemp("logs"))
    yield pool
    pool.close()


def test_a_good_child_leaves_a_whole_record(pool: LauncherPool, tmp_path: Path) -> None:
    run = run_alone(cell_that("finish"), tmp_path, pool)
    (attempt,) = run.attempts
    assert attempt.exit == Exited(code=0)
    assert attempt.phase == "exit"
    assert set(attempt.timings) == {"start", "work", "exit"}
    assert attempt.leaked_pids == () and attempt.notes == ()
    assert run.crash is None
    assert run.observation is not None
    assert run.observation.peak_rss_mib is not None
    assert run.provenance.python is not None and run.provenance.source == "toy@1"
    folder = tmp_path / "attempt-0"
    assert (folder / "stdout.log").read_text() == "said on stdout\n"
    assert (folder / "stderr.log").read_text() == "said on stderr\n"
    assert {artifact.path for artifact in attempt.artifacts} >= {"spec.json", "stdout.log"}
    assert Attempt.read_json(folder / "attempt.json") == attempt


def test_a_child_leads_a_session_of_its_own(pool: LauncherPool, tmp_path: Path) -> None:
    observation = run_alone(cell_that("finish"), tmp_path, pool).observation
    assert observation is not None
    facts = observation.timings
    assert facts["pid"] == facts["session"] == facts["group"]


@pytest.mark.parametrize(
    ("behaviour", "settings", "end"),
    [
        ("raise_error", {}, Exited(code=1)),
        ("leave_with_code", {"code": 7}, Exited(code=7)),
        ("leave_at_once", {}, Exited(code=0)),
        ("abort", {}, Signaled(signo=signal.SIGABRT)),
        ("crash_in_c", {}, Signaled(signo=signal.SIGSEGV)),
        ("overflow_the_stack", {}, Signaled(signo=signal.SIGSEGV)),
        ("kill_itself", {}, Signaled(signo=signal.SIGKILL)),
    ],
)
def test_every_way_to_die_is_told_apart(
    pool: LauncherPool, tmp_path: Path, behaviour: str, settings: dict[str, Any], end: Exit
) -> None:
    run = run_alone(cell_that(behaviour, **settings), tmp_path, pool)
    assert run.attempts[-1].exit == end
    assert run.attempts[-1].phase == "work"
    assert run.crash is not None and run.crash == run.attempts[-1].crash
    assert run.observation is None


def test_a_traceback_is_kept_and_gives_the_title(fork_pool: LauncherPool, tmp_path: Path) -> None:
    run = run_alone(cell_that("raise_error"), tmp_path, fork_pool)
    assert "the planted failure" in (tmp_path / "attempt-0/stderr.log").read_text()
    assert run.crash is not None and "the planted failure" in run.crash.title


@pytest.mark.parametrize("behaviour", ["wait_forever", "wait_deaf"])
def test_no_progress_is_a_hang_with_stacks(
    pool: LauncherPool, tmp_path: Path, behaviour: str
) -> None:
    run = run_alone(cell_that(behaviour, deadline=SHORT), tmp_path, pool)
    assert run.attempts[-1].exit == Killed(reason=KillReason.NO_PROGRESS, phase="work")
    assert "wait_forever" in (tmp_path / "attempt-0" / STACKS_FILE).read_text()
    assert not is_alive(pid_in(tmp_path / "attempt-0/waiting.pid"))


@pytest.mark.parametrize("behaviour", ["wait_with_heartbeat", "wait_while_chatting"])
def test_neither_heartbeat_nor_chatter_is_progress(
    fork_pool: LauncherPool, tmp_path: Path, behaviour: str
) -> None:
    run = run_alone(cell_that(behaviour, deadline=SHORT), tmp_path, fork_pool)
    assert run.attempts[-1].exit == Killed(reason=KillReason.NO_PROGRESS, phase="work")


def test_slow_progress_is_no_hang(fork_pool: LauncherPool, tmp_path: Path) -> None:
    cell = cell_that("sleep_a_little", seconds=SHORT * 3, deadline=SHORT)
    assert run_alone(cell, tmp_path, fork_pool).attempts[-1].exit == Exited(code=0)


def test_a_hang_ends_helpers_too(pool: LauncherPool, tmp_path: Path) -> None:
    run = run_alone(cell_that("wait_with_helpers", deadline=SHORT), tmp_path, pool)
    assert isinstance(run.attempts[-1].exit, Killed)
    assert not is_alive(pid_in(tmp_path / "attempt-0/helper.pid"))
    assert run.attempts[-1].leaked_pids == ()


def test_a_hang_after_the_record_is_in_the_exit_phase(
    fork_pool: LauncherPool, tmp_path: Path
) -> None:
    run = run_alone(cell_that("hang_at_exit", deadline=SHORT), tmp_path, fork_pool)
    assert run.attempts[-1].exit == Killed(reason=KillReason.NO_PROGRESS, phase="exit")
    assert run.crash is not None


@pytest.mark.parametrize("disguise", ["plain", "no-environment", "daemon", "forked-daemon"])
def test_a_process_left_behind_is_found_and_ended(
    pool: LauncherPool, tmp_path: Path, disguise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fixtures.run.supervisor._LEAK_GRACE_SECONDS", 0.2)
    run = run_alone(cell_that("leave_a_helper", disguise=disguise), tmp_path, pool)
    assert run.observation is not None
    helper = int(run.observation.timings["helper"])
    assert run.attempts[-1].leaked_pids == (helper,)
    assert not is_alive(helper)


def test_a_helper_that_ends_by_itself_is_no_leak(fork_pool: LauncherPool, tmp_path: Path) -> None:
    run = run_alone(cell_that("leave_a_quick_helper"), tmp_path, fork_pool)
    assert run.attempts[-1].leaked_pids == ()


def test_a_log_without_newlines_is_capped_and_kills_nobody(
    fork_pool: LauncherPool, tmp_path: Path
) -> None:
    limit = 2**20
    cell = cell_that("flood", mib=100)
    run = run_alone(cell, tmp_path, fork_pool, RunLimits(log_bytes=limit))
    assert run.attempts[-1].exit == Exited(code=0)
    log = (tmp_path / "attempt-0/stderr.log").read_bytes()
    assert log.startswith(b"first word") and log.endswith(b"last word")
    assert limit // 2 < len(log) < limit + 100
    assert any("dropped" in note for note in run.attempts[-1].notes)
    assert not list((tmp_path / "attempt-0").glob("*.tail*"))


def test_a_child_without_streams_goes_on(pool: LauncherPool, tmp_path: Path) -> None:
    run = run_alone(cell_that("close_streams"), tmp_path, pool)
    assert run.attempts[-1].exit == Exited(code=0) and run.observation is not None


@pytest.mark.parametrize(
    "what", ["truncated", "other-type", "other-version", "binary", "link", "pipe", "folder"]
)
def test_a_false_record_is_no_record(fork_pool: LauncherPool, tmp_path: Path, what: str) -> None:
    run = run_alone(cell_that("lie", what=what), tmp_path / "a/b", fork_pool)
    assert run.attempts[-1].exit == Exited(code=0)
    assert run.observation is None
    assert run.crash is not None and run.crash.kind is CrashKind.REG
    assert any("observation.json" in note for note in run.attempts[-1].notes)


def test_events_that_are_none_are_counted_and_passed_over(
    fork_pool: LauncherPool, tmp_path: Path
) -> None:
    run = run_alone(cell_that("babble"), tmp_path, fork_pool)
    assert run.attempts[-1].exit == Exited(code=0)
    assert run.attempts[-1].phase == "exit"
    assert any("6 line(s)" in note for note in run.attempts[-1].notes)


def test_peak_memory_is_known_of_the_dead(fork_pool: LauncherPool, tmp_path: Path) -> None:
    run = run_alone(cell_that("use_memory"), tmp_path, fork_pool)
    assert run.attempts[-1].exit == Exited(code=3)
    assert run.attempts[-1].peak_rss_mib is not None
    assert 200 < run.attempts[-1].peak_rss_mib < 600


def test_a_python_that_is_not_there_never_starts(tmp_path: Path) -> None:
    nowhere = environment(fork_server=False).model_copy(update={"python": "/no/python"})
    run = run_alone(cell_that("finish"), tmp_path, LauncherPool(nowhere, tmp_path))
    end = run.attempts[-1].exit
    assert isinstance(end, NeverStarted) and end.errno == 2 and "/no/python" in end.why
    assert run.crash is not None


def test_an_entry_that_is_not_there_is_a_crash_with_a_traceback(tmp_path: Path) -> None:
    pool = LauncherPool(environment(fork_server=False, entry="suites.nothing:f"), tmp_path)
    run = run_alone(cell_that("finish"), tmp_path / "cell", pool)
    assert run.attempts[-1].exit == Exited(code=1)
    assert run.attempts[-1].phase == "start"
    assert run.crash is not None and "suites.nothing" in run.crash.title


def test_secrets_stay_behind_and_settings_arrive(
    pool: LauncherPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hush")
    monkeypatch.setenv("NVIDIA_API_KEY", "hush")
    monkeypatch.setenv("VLLM_USE_BREAKABLE_CUDAGRAPH", "inherited")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    cell = cell_that("show_environment", environment={"VLLM_USE_V2_MODEL_RUNNER": "1"})
    run_alone(cell, tmp_path, pool)
    seen = json.loads((tmp_path / "attempt-0/environment.json").read_text())
    assert seen["VLLM_USE_V2_MODEL_RUNNER"] == "1"
    assert seen["CUDA_VISIBLE_DEVICES"] == "3"
    assert seen["OMP_NUM_THREADS"] == "1"
    assert "VLLM_USE_BREAKABLE_CUDAGRAPH" not in seen
    written = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"hush" not in written


def test_nothing_is_left_open(pool: LauncherPool, tmp_path: Path) -> None:
    run_alone(cell_that("finish"), tmp_path / "first", pool)
    before = open_descriptors()
    for behaviour in ("finish", "kill_itself", "close_streams"):
        run_alone(cell_that(behaviour), tmp_path / behaviour, pool)
    assert open_descriptors() == before


def test_evidence_that_cannot_be_written_ends_the_child(
    fork_pool: LauncherPool, tmp_path: Path
) -> None:
    """/dev/full answers every write with ENOSPC, as a full disk does."""
    cell = cell_that("fill_the_disk")
    launcher, variables = fork_pool.launcher_for(cell)
    (tmp_path / "stdout.log").symlink_to("/dev/full")
    order = AttemptOrder(cell, "0.0.0", 0, tmp_path, variables)
    before = set(psutil.process_iter())
    with pytest.raises(OSError, match="No space left"):
        supervise(launcher, order, lambda phase, event: None, threading.Event())
    assert "work" in (tmp_path / "events.jsonl").read_text()
    assert not _cells_running_in(tmp_path, before)


def _cells_running_in(folder: Path, known: set[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in set(psutil.process_iter()) - known:
        with contextlib.suppress(psutil.Error):
            found += [process] if process.cwd() == str(folder) else []
    return found
