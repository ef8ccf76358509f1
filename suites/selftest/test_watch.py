"""`graphgate watch`: any command under the supervisor, as its users meet it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.cells.spec import PhaseEvent, ProgressEvent
from fixtures.evidence.cellrun import CellRun
from fixtures.run.activity import CommandActivity
from fixtures.run.command import KEY, CommandRequest, run_command
from fixtures.run.ledger import Ledger
from gates.verdict import Verdicts
from graphgate import cli
from suites.selftest.running import is_alive, pid_in, wait_until

PYTHON = [sys.executable, "-c"]


def watch(
    out: Path, *command: str, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "graphgate", "watch", "--out", str(out), *options, "--", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "COLUMNS": "200", "A_SECRET_TOKEN": "hush-hush"},
    )


def run_of(out: Path) -> CellRun:
    (run,) = Ledger(out / "ledger.jsonl").read().runs
    return run


def in_process(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    out: Path,
    *command: str,
    options: tuple[str, ...] = (),
) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON facts, without the time that a new Python takes to import us."""
    arguments = ["graphgate", "watch", "--json", "--out", str(out), *options, "--", *command]
    monkeypatch.setattr(sys, "argv", arguments)
    code = cli.exit_code()
    return code, json.loads(capfd.readouterr().out)


@pytest.mark.parametrize(
    ("command", "options", "code", "status", "title"),
    [
        (["true"], (), 0, "PASS", None),
        (["sh", "-c", "exit 3"], (), 11, "CRASH", "exit code 3"),
        (["sh", "-c", "kill -SEGV $$"], (), 11, "CRASH", "killed by SIGSEGV"),
        (["sh", "-c", "kill -KILL $$"], (), 11, "CRASH", "SIGKILL from outside"),
        ([*PYTHON, "raise ValueError('planted')"], (), 11, "CRASH", "planted"),
        (["sh", "-c", "sleep 60 & exit 0"], (), 10, "FAIL", None),
        (["sleep", "60"], ("--timeout", "0.5"), 12, "HANG", "hang"),
        (["no-such-command"], (), 30, "CONFIG", "No such file"),
        (["true"], ("--gpu", "64"), 20, "INFRA", "could not be started"),
        (["sh", "-c", "echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered' >&2; "
          "exit 1"], (), 20, "INFRA", "ECC"),
    ],
)  # fmt: skip
def test_every_end_has_its_status_and_its_exit_code(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: list[str],
    options: tuple[str, ...],
    code: int,
    status: str,
    title: str | None,
) -> None:
    ended, facts = in_process(capfd, monkeypatch, tmp_path, *command, options=options)
    assert (ended, facts["status"]) == (code, status)
    if title is None:
        assert facts["failure"] is None
    else:
        assert title in facts["failure"]["title"]
    verdicts = Verdicts.read_json(tmp_path / "verdicts.json")
    assert verdicts.decision.exit_code == code and verdicts.decision.allow is (code == 0)
    assert verdicts.verdicts[0].key == KEY


def test_output_passes_through_and_is_kept_and_secrets_are_not_written_down(
    tmp_path: Path,
) -> None:
    done = watch(tmp_path, "sh", "-c", "echo to-out; echo to-err >&2; pwd; echo ${#A_SECRET_TOKEN}")
    assert done.returncode == 0
    assert done.stdout == f"to-out\n{Path.cwd()}\n9\n"  # its own folder and environment
    assert "to-err\n" in done.stderr and "status     PASS" in done.stderr
    attempt = tmp_path / "cells" / str(KEY) / "attempt-0"
    assert (attempt / "stdout.log").read_text() == done.stdout
    assert (attempt / "stderr.log").read_text() == "to-err\n"
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"hush-hush" not in path.read_bytes(), path


def test_a_hang_shows_where_it_was_and_takes_its_tree_along(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    script = (
        "import subprocess, sys, time\n"
        "def planted_wait():\n"
        "    helper = subprocess.Popen(['sleep', '600'], env={}, start_new_session=True)\n"
        f"    open({str(pids)!r}, 'w').write(str(helper.pid))\n"
        "    time.sleep(600)\n"
        "planted_wait()"
    )
    out = tmp_path / "out"
    code, facts = in_process(capfd, monkeypatch, out, *PYTHON, script, options=("--timeout", "1.5"))
    assert code == 12
    assert "planted_wait" in (Path(facts["evidence"]) / "stacks.txt").read_text()
    assert not is_alive(pid_in(pids))
    assert "planted_wait" in "".join(run_of(out).attempts[0].crash.host_stacks)  # type: ignore[union-attr]


def test_a_core_that_the_command_leaves_names_the_failure(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    core = Path(__file__).parent / "corpus/cores/illegal/core.cudacore.xz"
    script = (
        "import lzma, os, pathlib\n"
        f"core = lzma.decompress(pathlib.Path({str(core)!r}).read_bytes())\n"
        f"folder = {str(tmp_path / 'out')!r} + '/cells/{KEY}/attempt-0'\n"
        "pathlib.Path(folder, f'cuda_coredump_{os.getpid()}').write_bytes(core)\n"
        "os.abort()"
    )
    code, facts = in_process(capfd, monkeypatch, tmp_path / "out", *PYTHON, script)
    assert code == 11
    assert facts["failure"]["title"] == "illegal address in wild_store"
    assert facts["failure"]["kernel"] == "wild_store"


def test_a_killed_watcher_leaves_no_orphan_and_readable_evidence(tmp_path: Path) -> None:
    pids, out = tmp_path / "pids", tmp_path / "out"
    command = ["sh", "-c", f"echo begun; echo -n $$ > {pids}; exec sleep 600"]
    arguments = [sys.executable, "-m", "graphgate", "watch", "--out", str(out), "--", *command]
    watcher = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = pid_in(pids)
    watcher.kill()
    watcher.wait()
    wait_until(lambda: not is_alive(pid))
    assert (out / "cells" / str(KEY) / "attempt-0/stdout.log").read_text() == "begun\n"
    assert watch(out, "true").returncode == 0  # the folder is free and known as ours


def test_an_interruption_ends_the_command_and_says_where_its_evidence_is(tmp_path: Path) -> None:
    pids, out = tmp_path / "pids", tmp_path / "out"
    command = ["sh", "-c", f"echo -n $$ > {pids}; exec sleep 600"]
    arguments = [sys.executable, "-m", "graphgate", "watch", "--out", str(out), "--", *command]
    watcher = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    pid = pid_in(pids)
    watcher.send_signal(signal.SIGTERM)
    _, told = watcher.communicate(timeout=60)
    assert watcher.returncode == 130 and str(out) in told
    assert not is_alive(pid)


def test_a_file_of_seen_titles_that_is_none_is_a_wrong_request(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bad = tmp_path / "seen.json"
    bad.write_text('{"titles": [{"titel": 1}]}')
    arguments = ["--seen", str(bad), "--out", str(tmp_path / "out"), "--", "true"]
    monkeypatch.setattr(sys, "argv", ["graphgate", "watch", *arguments])
    assert cli.exit_code() == 30
    assert "seen.json" in capfd.readouterr().err


def test_a_folder_of_somebody_elses_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells/precious").write_text("as it was")
    monkeypatch.setattr(sys, "argv", ["graphgate", "watch", "--out", str(tmp_path), "--", "true"])
    assert cli.exit_code() == 30
    assert (tmp_path / "cells/precious").read_text() == "as it was"


def test_a_command_runs_from_python_too(tmp_path: Path) -> None:
    from fixtures.run.attempt import Surroundings

    request = CommandRequest(command=("sh", "-c", "exit 0"), timeout=10)
    run = run_command(request, tmp_path, CommandActivity(), os.environ, Surroundings())
    assert run.crash is None and run.observation is not None
    assert run == run_of(tmp_path)


class TestProgress:
    """What keeps a command alive, and what doesn't."""

    @pytest.mark.parametrize(
        ("script", "code"),
        [
            ("for i in range(8): print(i, flush=True); time.sleep(0.3)", 0),
            ("for i in range(8): subprocess.run(['sleep', '0.3'])", 0),
            ("for i in range(8): open('/dev/zero','rb').read(1 << 21); time.sleep(0.3)", 0),
            ("while True: pass", 12),
            ("while True: print('No available shared memory broadcast block found'); "
             "time.sleep(0.1)", 12),
        ],
        ids=["says something", "starts processes", "reads", "spins", "says that it waits"],
    )  # fmt: skip
    def test_what_counts(
        self,
        capfd: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        script: str,
        code: int,
    ) -> None:
        script = f"import subprocess, time\n{script}"
        ended, _ = in_process(
            capfd, monkeypatch, tmp_path, *PYTHON, script, options=("--timeout", "2")
        )
        assert ended == code

    @given(st.lists(st.binary(max_size=60), max_size=20))
    def test_counts_never_go_back_whatever_is_written(self, chunks: list[bytes]) -> None:
        activity, last = CommandActivity(), -1
        for chunk in chunks:
            activity.hear("stdout.log", chunk)
            said = [
                event
                for event in activity.events(lambda: [])
                if isinstance(event, ProgressEvent) and event.unit == "bytes said"
            ]
            assert said[0].done >= last
            last = said[0].done

    def test_a_command_is_at_work_from_its_first_moment(self) -> None:
        events = list(CommandActivity().events(lambda: [psutil.Process()]))
        assert isinstance(events[0], PhaseEvent) and events[0].phase == "work"
        assert sum(isinstance(event, PhaseEvent) for event in events) == 1

    def test_processes_are_looked_at_only_now_and_then(self) -> None:
        now, looks = [0.0], []
        activity = CommandActivity(clock=lambda: now[0])
        for _ in range(50):
            list(activity.events(lambda: looks.append(1) or []))  # type: ignore[func-returns-value]
            now[0] += 0.1
        assert 4 <= len(looks) <= 6

    def test_a_reader_that_goes_away_costs_the_echo_and_not_the_command(
        self, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        script = "import time\nfor i in range(20): print('line', i, flush=True); time.sleep(0.02)"
        arguments = [sys.executable, "-m", "graphgate", "watch", "--out", str(out), "--"]
        watcher = subprocess.Popen(
            [*arguments, *PYTHON, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert watcher.stdout is not None
        watcher.stdout.close()
        assert watcher.wait(60) == 0
        log = out / "cells" / str(KEY) / "attempt-0/stdout.log"
        assert log.read_text().endswith("line 19\n")
