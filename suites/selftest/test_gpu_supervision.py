"""Cores and cells on GPUs: the GPU's part of supervision, without a GPU."""

from __future__ import annotations

import json
import lzma
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.cells.cell import Cell, Requirements
from fixtures.cells.spec import STACKS_FILE
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.crash import CrashKind
from fixtures.evidence.exits import Killed, KillReason, NeverStarted
from fixtures.run.attempt import Surroundings
from fixtures.run.cellrun import RunLimits, Watcher, run_cell
from fixtures.run.environment import inherited
from fixtures.run.gpu.coredump import (
    CORE_PREFIX,
    PIPE_PREFIX,
    coredump_variables,
    is_whole,
    remove_pipes,
    trigger_cores,
)
from fixtures.run.gpu.node import GpuNode, GpuSession
from fixtures.run.gpu.nvml import Nvml
from fixtures.run.pool import LauncherPool
from gates.liveness import judge_liveness
from gates.policy import read_policy
from gates.verdict import Status
from suites.selftest import running
from suites.selftest.children import cell_that
from suites.selftest.nvml_replay import ReplayedNvml, recorded, with_values
from suites.selftest.running import SOURCE, wait_until

IDLE = recorded("h200", "idle")
CORE = Path(__file__).parent / "corpus/cores/hang"

DRIVER = """
import os, pathlib, sys, time
pipe, core = sys.argv[1:3]
os.mkfifo(pipe)
with open(pipe, "rb") as words:  # blocks until somebody writes
    words.read(int(sys.argv[3]))
whole = pathlib.Path(sys.argv[4]).read_bytes()
with open(core, "wb", buffering=0) as file:
    for at in range(0, len(whole), len(whole) // 4 + 1):
        file.write(whole[at : at + len(whole) // 4 + 1])
        time.sleep(0.2)
os.abort()
"""
"""Stands in for a process whose driver serves a pipe: it answers with the core it is given."""


@pytest.fixture(scope="module")
def stored_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (packed,) = CORE.glob("*.xz")
    path = tmp_path_factory.mktemp("core") / "stored"
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return path


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LauncherPool]:
    pool = LauncherPool(running.environment(fork_server=False), tmp_path_factory.mktemp("logs"))
    yield pool
    pool.close()


def serving(folder: Path, core: Path, *, words: int = 1) -> subprocess.Popen[bytes]:
    """A process like a driver's, whose pipe and core bear its own number."""
    script = f"import os, sys; pid = os.getpid(); f = {str(folder)!r}\n"
    script += f"sys.argv[1:] = [f'{{f}}/{PIPE_PREFIX}{{pid}}', f'{{f}}/{CORE_PREFIX}{{pid}}', "
    script += f"'{words}', {str(core)!r}]\n"
    process = subprocess.Popen([sys.executable, "-c", script + DRIVER])
    wait_until((folder / f"{PIPE_PREFIX}{process.pid}").exists)
    return process


class TestCores:
    def test_a_child_is_told_to_write_its_core_into_its_folder_without_memory(
        self, tmp_path: Path
    ) -> None:
        told = coredump_variables(tmp_path)
        assert told["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] == "1"
        assert told["CUDA_ENABLE_USER_TRIGGERED_COREDUMP"] == "1"
        assert Path(told["CUDA_COREDUMP_FILE"]).parent == tmp_path
        assert told["CUDA_COREDUMP_PIPE"].endswith("%p")
        assert "skip_global_memory" in told["CUDA_COREDUMP_GENERATION_FLAGS"]

    def test_cores_asked_for_in_somebodys_shell_are_not_a_childs(self) -> None:
        shell = {"CUDA_COREDUMP_FILE": "/elsewhere", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1"}
        assert inherited({**shell, "CUDA_HOME": "/cuda"}) == {"CUDA_HOME": "/cuda"}

    def test_a_folder_that_the_driver_would_misread_gets_none(self, tmp_path: Path) -> None:
        assert coredump_variables(tmp_path / "100%h") == {}

    def test_a_word_into_the_pipe_brings_a_whole_core(
        self, tmp_path: Path, stored_core: Path
    ) -> None:
        process = serving(tmp_path, stored_core)
        turns: list[int] = []
        told = trigger_cores(tmp_path, [process.pid, 1], meanwhile=lambda: turns.append(1))
        assert told.pids == (process.pid,) and told.notes == ()
        assert (tmp_path / f"{CORE_PREFIX}{process.pid}").read_bytes() == stored_core.read_bytes()
        assert turns
        assert process.wait(10) == -signal.SIGABRT

    def test_a_driver_that_waits_for_more_words_gets_more(
        self, tmp_path: Path, stored_core: Path
    ) -> None:
        process = serving(tmp_path, stored_core, words=4096)
        assert trigger_cores(tmp_path, [process.pid]).notes == ()
        process.wait(10)

    def test_a_pipe_that_nobody_reads_blocks_nobody(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / f"{PIPE_PREFIX}77")
        began = time.monotonic()
        told = trigger_cores(tmp_path, [77])
        assert told.pids == () and "process 77" in told.notes[0]
        assert time.monotonic() - began < 1

    def test_a_core_that_never_comes_is_waited_for_only_so_long(self, tmp_path: Path) -> None:
        pipe = tmp_path / f"{PIPE_PREFIX}77"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        (tmp_path / f"{CORE_PREFIX}77").write_bytes(b"\x7fELF, and no more")
        told = trigger_cores(tmp_path, [77], seconds=0.8)
        os.close(reader)
        assert told.pids == (77,) and "no whole GPU core" in told.notes[0]

    @pytest.mark.parametrize("disguise", ["file", "link"])
    def test_what_is_no_pipe_is_not_written_to(self, tmp_path: Path, disguise: str) -> None:
        precious = tmp_path / "precious"
        precious.write_text("as it was")
        pipe = tmp_path / f"{PIPE_PREFIX}77"
        if disguise == "link":
            pipe.symlink_to(precious)
        else:
            precious.rename(pipe)
        told = trigger_cores(tmp_path, [77])
        assert told.pids == () and told.notes
        assert pipe.read_text() == "as it was"

    def test_only_the_pipes_of_the_attempt_are_spoken_to(
        self, tmp_path: Path, stored_core: Path
    ) -> None:
        process = serving(tmp_path, stored_core)
        assert trigger_cores(tmp_path, [1, 2]).pids == ()
        assert process.poll() is None
        process.kill()
        process.wait()

    def test_a_core_is_whole_with_its_last_header_and_not_before(
        self, tmp_path: Path, stored_core: Path
    ) -> None:
        whole = stored_core.read_bytes()
        cut = tmp_path / "cut"
        for size in (0, 10, 64, len(whole) // 2, len(whole) - 1):
            cut.write_bytes(whole[:size])
            assert not is_whole(cut), size
        cut.write_bytes(whole)
        assert is_whole(cut)
        assert not is_whole(tmp_path / "absent")

    @given(
        start=st.integers(0, 2**64 - 1) | st.sampled_from([0, 64, 2**63 - 33, 2**63, 2**64 - 1]),
        entry=st.integers(0, 2**16 - 1),
        count=st.integers(0, 2**16 - 1) | st.just(0),
        rest=st.binary(max_size=200),
    )
    def test_a_header_that_lies_is_no_whole_core_and_no_error(
        self, start: int, entry: int, count: int, rest: bytes
    ) -> None:
        header = struct.pack(
            "<16sHHIQQQIHHHHHH", b"\x7fELF", 4, 190, 1, 0, 0, start, 0, 64, 0, 0, entry, count, 0
        )
        with NamedTemporaryFile() as file:
            file.write(header + rest)
            file.flush()
            promised = start + entry * count
            told = is_whole(Path(file.name))
            assert not told or promised <= 64 + len(rest)

    def test_pipes_are_taken_out_of_the_evidence_and_nothing_else(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / f"{PIPE_PREFIX}1")
        (tmp_path / f"{PIPE_PREFIX}2").write_text("a file of that name")
        remove_pipes(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [f"{PIPE_PREFIX}2"]


def gpu_cell(
    behaviour: str,
    *,
    deadline: float = 20.0,
    environment: dict[str, str] | None = None,
    **settings: str,
) -> Cell:
    cell = cell_that(behaviour, deadline=deadline, environment=environment, **settings)
    return cell.model_copy(update={"requirements": Requirements(gpus=1)})


def run_on(
    nvml: Nvml, cell: Cell, folder: Path, pool: LauncherPool, *, retries: int = 2
) -> CellRun:
    """The run of one cell on a node with the GPUs of `nvml`."""
    node = GpuNode(nvml, nvml.gpus(), folder / "locks")
    return run_cell(
        cell,
        SOURCE,
        folder / "cell",
        pool,
        limits=RunLimits(retries=retries),
        watcher=Watcher(started=lambda index: None, progressed=lambda phase, event: None),
        stop=threading.Event(),
        surroundings=Surroundings(open_node=lambda: node),
    )


class TestCells:
    def test_a_cell_sees_its_gpu_and_the_record_tells_of_it(
        self, tmp_path: Path, pool: LauncherPool
    ) -> None:
        run = run_on(
            ReplayedNvml({"GPU-one": [IDLE]}), gpu_cell("show_environment"), tmp_path, pool
        )
        (attempt,) = run.attempts
        assert attempt.gpu == "GPU-one" and attempt.xids == () and run.crash is None
        assert run.provenance.sm_count == 132 and run.provenance.mig is False
        assert run.provenance.driver == IDLE.values["driver"]
        assert run.provenance.gpu == "NVIDIA H200"
        variables = json.loads((tmp_path / "cell/attempt-0/environment.json").read_text())
        assert variables["CUDA_VISIBLE_DEVICES"] == "0"
        assert variables["CUDA_COREDUMP_FILE"].startswith(str(tmp_path / "cell/attempt-0"))

    def test_a_cells_own_settings_win_over_the_cores(
        self, tmp_path: Path, pool: LauncherPool
    ) -> None:
        cell = gpu_cell("show_environment", environment={"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "0"})
        run_on(ReplayedNvml({"GPU-one": [IDLE]}), cell, tmp_path, pool)
        variables = json.loads((tmp_path / "cell/attempt-0/environment.json").read_text())
        assert variables["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] == "0"

    def test_a_hardware_xid_makes_a_crash_the_nodes_and_the_next_try_takes_another_gpu(
        self, tmp_path: Path, pool: LauncherPool
    ) -> None:
        nvml = ReplayedNvml({"GPU-one": [IDLE], "GPU-two": [IDLE]}, xids=[("GPU-one", 79)])
        run = run_on(nvml, gpu_cell("raise_error_once"), tmp_path, pool)
        first, second = run.attempts
        assert first.crash is not None and first.crash.kind is CrashKind.INFRA
        assert first.crash.title == "hardware Xid 79"
        assert any("the planted failure" in line for line in first.crash.secondary)
        assert first.quarantine == ("hardware Xid 79",)
        assert (first.gpu, second.gpu) == ("GPU-one", "GPU-two")
        assert second.quarantine == () and run.crash is None

    def test_a_busy_gpu_is_named_once_and_left_where_there_is_another(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pool: LauncherPool
    ) -> None:
        at_once = partialmethod(GpuSession.require, settle_seconds=0.0)
        monkeypatch.setattr(GpuSession, "require", at_once)
        others = {"total_mib": 143_771, "used_mib": 142_000}
        busy = with_values(IDLE, memory=others, processes=[{"pid": 8435, "memory_mib": 142_000}])
        cell = gpu_cell("finish")
        needs = cell.requirements.model_copy(update={"gpu_memory_gib": 8.0})
        cell = cell.model_copy(update={"requirements": needs})
        run = run_on(ReplayedNvml({"GPU-one": [busy], "GPU-two": [IDLE]}), cell, tmp_path, pool)
        first, second = run.attempts
        assert (first.gpu, second.gpu, run.crash) == ("GPU-one", "GPU-two", None)
        assert first.crash is not None
        assert first.crash.title == "could not be started: NVIDIA H200 is busy"
        assert first.crash.kind is CrashKind.INFRA
        only = run_on(ReplayedNvml({"GPU-one": [busy]}), cell, tmp_path, pool)
        (finding,) = judge_liveness(only, None, read_policy())
        assert finding.status is Status.INFRA
        assert finding.why.startswith("the child could not be started: NVIDIA H200 is busy (1.7 of")
        assert "processes 8435" in finding.why and finding.why.endswith("(after 3 attempts)")

    def test_an_application_xid_is_no_reason_to_try_again(
        self, tmp_path: Path, pool: LauncherPool
    ) -> None:
        nvml = ReplayedNvml({"GPU-one": [IDLE], "GPU-two": [IDLE]}, xids=[("GPU-one", 31)])
        run = run_on(nvml, gpu_cell("raise_error"), tmp_path, pool)
        (attempt,) = run.attempts
        assert [xid.code for xid in attempt.xids] == [31] and attempt.quarantine == ()
        assert run.crash is not None and run.crash.kind is CrashKind.REG

    def test_a_node_without_what_is_asked_for_is_an_attempt_that_never_started(
        self, tmp_path: Path, pool: LauncherPool
    ) -> None:
        cell = gpu_cell("finish")
        cell = cell.model_copy(update={"requirements": Requirements(gpus=4)})
        run = run_on(ReplayedNvml({"GPU-one": [IDLE]}), cell, tmp_path, pool, retries=0)
        (attempt,) = run.attempts
        assert isinstance(attempt.exit, NeverStarted) and "4 GPU(s)" in attempt.exit.why
        assert run.crash is not None and run.crash.kind is CrashKind.INFRA

    def test_a_hung_child_leaves_stacks_and_a_core_and_the_kernel_is_named(
        self, tmp_path: Path, pool: LauncherPool, stored_core: Path
    ) -> None:
        cell = gpu_cell("wait_as_a_driver", deadline=1.0, core=str(stored_core))
        run = run_on(ReplayedNvml({"GPU-one": [IDLE]}), cell, tmp_path, pool)
        (attempt,) = run.attempts
        assert attempt.exit == Killed(reason=KillReason.NO_PROGRESS, phase="work")
        assert run.crash is not None and run.crash.title == "hang in spin"
        assert run.crash.kind is CrashKind.REG and "core" in run.crash.sources
        folder = tmp_path / "cell/attempt-0"
        assert (folder / STACKS_FILE).read_text().strip()
        names = {artifact.path for artifact in attempt.artifacts}
        assert any(name.startswith(CORE_PREFIX) for name in names)
        assert not list(folder.glob(f"{PIPE_PREFIX}*"))
