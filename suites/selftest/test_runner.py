"""The runner: plans of real children, stopped, broken, shared and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from fixtures.cells.cell import Plan
from fixtures.errors import BusyError, ConfigError
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.crash import CrashKind, CrashReport
from fixtures.evidence.exits import Exited, Signaled
from fixtures.run.environment import REPOSITORY, ChildEnvironment
from fixtures.run.events import CellFinished, CellProgress, CellStarted, Note, RunEvent
from fixtures.run.interrupt import terminate_as_interrupt
from fixtures.run.ledger import Ledger
from fixtures.run.outfolder import OutFolder
from fixtures.run.runner import node_failed, run_cell_once, run_plan, shared_run
from suites.selftest.children import cell_that
from suites.selftest.running import SOURCE, environment, is_alive, pid_in, plan_of, wait_until


def finished(events: list[RunEvent]) -> dict[str, CellRun]:
    return {e.run.cell.key.model: e.run for e in events if isinstance(e, CellFinished)}


def run_all(
    plan: Plan, out: Path, env: ChildEnvironment | None = None, *, resume: bool = False
) -> list[RunEvent]:
    return list(run_plan(plan, out, env or environment(), jobs=2, resume=resume))


def test_every_cell_is_run_and_told_of_and_written_down(tmp_path: Path) -> None:
    plan = plan_of(
        cell_that("finish", name="good"),
        cell_that("raise_error", name="bad"),
        cell_that("kill_itself", name="ugly"),
    )
    events = run_all(plan, tmp_path / "out")
    kinds = [e.kind for e in events]
    assert kinds[:3] == ["queued"] * 3 and kinds.count("started") == 3
    runs = finished(events)
    assert runs["good"].attempts[-1].exit == Exited(code=0)
    assert runs["bad"].attempts[-1].exit == Exited(code=1)
    assert runs["ugly"].attempts[-1].exit == Signaled(signo=signal.SIGKILL)
    counts = [e.done for e in events if isinstance(e, CellProgress) and e.unit == "steps"]
    assert counts == [1, 2, 3]
    contents = Ledger(tmp_path / "out/ledger.jsonl").read()
    assert sorted(run.cell.key.model for run in contents.runs) == ["bad", "good", "ugly"]
    assert Plan.read_json(tmp_path / "out/plan.json") == plan
    assert not (tmp_path / "out/.lock.json").exists()


def test_children_share_one_import_but_no_process(tmp_path: Path) -> None:
    plan = plan_of(*(cell_that("finish", name=f"m{n}") for n in range(3)))
    runs = finished(run_all(plan, tmp_path / "out")).values()
    pids = {run.observation.timings["pid"] for run in runs if run.observation}
    assert len(pids) == 3
    assert len(list((tmp_path / "out/logs").glob("forkserver-*"))) == 1


def test_cells_run_beside_each_other_and_no_more_than_asked(tmp_path: Path) -> None:
    plan = plan_of(*(cell_that("sleep_a_little", name=f"m{n}", seconds=0.5) for n in range(4)))
    under_way, most = 0, 0
    for event in run_plan(plan, tmp_path / "out", environment(), jobs=2):
        under_way += isinstance(event, CellStarted)
        most = max(most, under_way)
        under_way -= isinstance(event, CellFinished)
    assert most == 2


def test_only_a_failure_of_the_node_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def infra(folder: Path, end: object) -> CrashReport:
        return CrashReport(title="bad node", kind=CrashKind.INFRA)

    plan = plan_of(cell_that("raise_error_once", name="heals"), cell_that("raise_error", name="no"))
    runs = finished(run_all(plan, tmp_path / "as-is"))
    assert {name: len(run.attempts) for name, run in runs.items()} == {"heals": 1, "no": 1}
    assert not node_failed(runs.values())

    monkeypatch.setattr("fixtures.run.cellrun.read_failure", infra)
    events = run_all(plan, tmp_path / "infra")
    runs = finished(events)
    assert {name: len(run.attempts) for name, run in runs.items()} == {"heals": 2, "no": 3}
    assert [a.index for a in runs["no"].attempts] == [0, 1, 2]
    assert all(a.crash is not None for a in runs["no"].attempts)
    assert runs["heals"].crash is None and runs["heals"].observation is not None
    assert node_failed(runs.values()) and not node_failed([runs["heals"]])
    starts = [e.attempt for e in events if isinstance(e, CellStarted) and e.key.model == "no"]
    assert starts == [0, 1, 2]


def test_triage_that_fails_costs_one_title_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path, end: object) -> CrashReport:
        raise ValueError("no such table")

    monkeypatch.setattr("fixtures.run.cellrun.read_failure", broken)
    plan = plan_of(cell_that("raise_error", name="bad"), cell_that("finish", name="good"))
    runs = finished(run_all(plan, tmp_path / "out"))
    crash = runs["bad"].crash
    assert crash is not None and "ValueError" in crash.title and crash.kind is CrashKind.AMB
    assert runs["good"].crash is None


def test_a_dead_fork_server_is_evidence_and_the_rest_goes_on(tmp_path: Path) -> None:
    plan = plan_of(
        cell_that("kill_the_server", name="first"),
        *(cell_that("finish", name=f"m{n}") for n in "23"),
    )
    runs = finished(list(run_plan(plan, tmp_path / "out", environment(), jobs=1)))
    assert runs["first"].attempts[-1].exit == Signaled(signo=signal.SIGKILL)
    assert any("fork server died" in note for note in runs["first"].attempts[-1].notes)
    assert runs["m2"].attempts[-1].exit == runs["m3"].attempts[-1].exit == Exited(code=0)


def test_an_import_that_fails_is_every_cells_own_evidence(tmp_path: Path) -> None:
    env = environment().model_copy(update={"preload": ("suites.nothing_here",)})
    runs = finished(run_all(plan_of(cell_that("finish", name="m")), tmp_path / "out", env))
    assert runs["m"].attempts[-1].exit == Exited(code=0)  # exec'd, and the entry imports
    (log,) = (tmp_path / "out/logs").glob("forkserver-*")
    assert "suites.nothing_here" in log.read_text()


def _preloading(module: str, folder: Path) -> ChildEnvironment:
    """An environment whose server imports a module of this text."""
    folder.mkdir()
    (folder / "preloaded.py").write_text(module)
    update = {"preload": ("preloaded",), "module_path": (str(folder),)}
    return environment().model_copy(update=update)


def test_an_import_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fixtures.run.forkclient.PRELOAD_SECONDS", 0.5)
    env = _preloading("import time; time.sleep(600)", tmp_path / "modules")
    runs = finished(run_all(plan_of(cell_that("finish", name="m")), tmp_path / "out", env))
    assert runs["m"].attempts[-1].exit == Exited(code=0)


def test_a_run_can_be_stopped_while_a_server_imports(tmp_path: Path) -> None:
    code = "import os, pathlib, time\n"
    code += f"pathlib.Path({str(tmp_path)!r}, 'server.pid').write_text(str(os.getpid()))\n"
    env = _preloading(code + "time.sleep(600)", tmp_path / "modules")
    events = run_plan(plan_of(cell_that("finish")), tmp_path / "out", env, jobs=1)
    while not isinstance(next(events), CellStarted):
        pass
    server = pid_in(tmp_path / "server.pid")
    before = time.monotonic()
    events.close()
    assert time.monotonic() - before < 5
    assert not is_alive(server)
    assert Ledger(tmp_path / "out/ledger.jsonl").read().runs == ()


def test_what_is_imported_sees_the_cells_own_variables(tmp_path: Path) -> None:
    code = "import os, pathlib\n"
    code += f"pathlib.Path({str(tmp_path)!r}, 'seen').open('a').write(os.environ['SWITCH'])\n"
    env = _preloading(code, tmp_path / "modules")
    plan = plan_of(
        cell_that("finish", name="a", environment={"SWITCH": "1"}),
        cell_that("finish", name="b", environment={"SWITCH": "0"}),
        cell_that("finish", name="c", environment={"SWITCH": "1"}),
    )
    assert len(finished(run_all(plan, tmp_path / "out", env))) == 3
    assert sorted((tmp_path / "seen").read_text()) == ["0", "1"]


def test_the_second_gate_says_who_holds_the_folder(tmp_path: Path) -> None:
    plan = plan_of(cell_that("finish"))
    first = run_plan(plan, tmp_path, environment(), jobs=1)
    next(first)
    with pytest.raises(BusyError, match=rf"process {os.getpid()} .* since 20.*another output"):
        run_all(plan, tmp_path)
    first.close()
    assert finished(run_all(plan, tmp_path))


def test_a_fresh_run_removes_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    run_all(plan_of(cell_that("finish", name="old")), tmp_path)
    (tmp_path / "verdicts.json").write_text("{}")
    (tmp_path / "precious.txt").write_text("mine")
    run_all(plan_of(cell_that("finish", name="new")), tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "mine"
    assert not (tmp_path / "verdicts.json").exists()
    assert [path.name for path in (tmp_path / "cells").iterdir()] == ["new.FULL.bk0.contract"]
    assert len(Ledger(tmp_path / "ledger.jsonl").read().runs) == 1


def test_a_folder_that_may_not_be_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report/thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=r"'report'.*empty output folder"):
        run_all(plan_of(cell_that("finish")), tmp_path)
    assert (tmp_path / "report/thesis.tex").exists()


def test_links_in_an_old_run_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    run_all(plan_of(cell_that("finish")), tmp_path / "out")
    (tmp_path / "out/report").symlink_to(outside)
    run_all(plan_of(cell_that("finish")), tmp_path / "out")
    assert (outside / "file").exists() and not (tmp_path / "out/report").exists()


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_an_output_folder_that_cannot_be_is_a_config_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="output folder"):
        run_all(plan_of(cell_that("finish")), tmp_path / name)


def test_going_on_runs_only_what_is_missing(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    cells = [
        cell_that("sleep_a_little", name=f"m{n}", seconds=0.1, log=str(starts)) for n in range(3)
    ]
    plan = plan_of(*cells)
    run_all(plan, tmp_path / "out")
    ledger = tmp_path / "out/ledger.jsonl"
    first, second, third = ledger.read_text().splitlines()
    ledger.write_text(f"{first}\n{second[:50]}\n{third}\n")
    events = run_all(plan, tmp_path / "out", resume=True)
    missing = json.loads(second)["cell"]["key"]
    assert [str(e.run.cell.key) for e in events if isinstance(e, CellFinished)] == [missing]
    assert len([e for e in events if isinstance(e, Note)]) == 2
    assert len(starts.read_text().splitlines()) == 4


def test_going_on_with_another_plan_is_refused(tmp_path: Path) -> None:
    run_all(plan_of(cell_that("finish", name="one")), tmp_path)
    with pytest.raises(ConfigError, match="another plan"):
        run_all(plan_of(cell_that("finish", name="two")), tmp_path, resume=True)


def test_an_iterator_that_is_closed_ends_its_children(tmp_path: Path) -> None:
    plan = plan_of(cell_that("wait_forever", name="m1"), cell_that("wait_forever", name="m2"))
    events = run_plan(plan, tmp_path, environment(), jobs=2)
    pids: list[int] = []
    for event in events:
        if isinstance(event, CellProgress) and event.done == 1:
            folder = tmp_path / "cells" / str(event.key) / "attempt-0"
            pids.append(pid_in(folder / "waiting.pid"))
        if len(pids) == 2:
            break
    events.close()
    assert not any(is_alive(pid) for pid in pids)
    assert Ledger(tmp_path / "ledger.jsonl").read().runs == ()
    attempt = json.loads(
        (tmp_path / "cells/m1.FULL.bk0.contract/attempt-0/attempt.json").read_text()
    )
    assert attempt["exit"] == {"kind": "killed", "reason": "interrupted", "phase": "work"}


WAITING_GATE = """
import sys
from pathlib import Path
from fixtures.run.interrupt import terminate_as_interrupt
from fixtures.run.runner import run_plan
from suites.selftest.children import cell_that
from suites.selftest.running import environment, plan_of

out, fork = Path(sys.argv[1]), sys.argv[2] == "fork"
plan = plan_of(cell_that("finish", name="done"), cell_that("wait_with_helpers", name="waits"))
with terminate_as_interrupt():
    for event in run_plan(plan, out, environment(fork_server=fork), jobs=1):
        pass
"""


@pytest.mark.parametrize(
    ("fork", "signo"),
    [
        ("fork", signal.SIGINT),
        ("fork", signal.SIGKILL),
        ("exec", signal.SIGTERM),
        ("exec", signal.SIGKILL),
    ],
)
def test_a_gate_that_is_ended_leaves_evidence_and_no_child(
    tmp_path: Path, fork: str, signo: signal.Signals
) -> None:
    out = tmp_path / "out"
    gate = subprocess.Popen(
        [sys.executable, "-c", WAITING_GATE, str(out), fork],
        cwd=REPOSITORY,
        stderr=subprocess.DEVNULL,
    )
    attempt = out / "cells/waits.FULL.bk0.contract/attempt-0"
    pid_in(attempt / "waiting.pid")
    helper = pid_in(attempt / "helper.pid")
    tree = {process.pid for process in psutil.Process(gate.pid).children(recursive=True)}
    assert helper in tree
    if fork == "exec" and signo == signal.SIGKILL:
        tree.remove(helper)  # nobody is left who could end it: that takes a fork server
    gate.send_signal(signo)
    gate.wait(20)
    wait_until(lambda: not any(is_alive(pid) for pid in tree))
    if is_alive(helper):
        os.kill(helper, signal.SIGKILL)
    contents = Ledger(out / "ledger.jsonl").read()
    assert [run.cell.key.model for run in contents.runs] == ["done"]
    assert contents.problems == ()
    assert "work" in (attempt / "events.jsonl").read_text()
    with OutFolder(out).held():
        pass  # the folder is free again


def test_a_full_disk_stops_the_run_and_keeps_the_evidence(tmp_path: Path) -> None:
    """A real one, of 3 MiB, in a mount namespace of its own."""
    script = f"""
import sys
from pathlib import Path
from fixtures.errors import InfraError
from fixtures.run.runner import run_plan
from fixtures.run.ledger import Ledger
from suites.selftest.children import cell_that
from suites.selftest.running import environment, plan_of
out = Path({str(tmp_path)!r}) / "out"
cells = [cell_that("finish", name="a"), cell_that("fill_the_disk", name="b"),
         cell_that("finish", name="c")]
try:
    list(run_plan(plan_of(*cells), out, environment(), jobs=1))
except InfraError as error:
    print(error)
print([run.cell.key.model for run in Ledger(out / "ledger.jsonl").read().runs])
print(len((out / "cells/b.FULL.bk0.contract/attempt-0/stdout.log").read_bytes()) > 2**20)
"""
    mount = f'mount -t tmpfs -o size=3m none "{tmp_path}" && exec "$0" -c "$1"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, sys.executable, script]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if "InfraError" not in done.stdout + done.stderr and "mount" in done.stderr:
        pytest.skip("this machine doesn't let us mount a file system")
    said, runs, kept = done.stdout.splitlines()
    assert "the disk is full" in said
    assert runs == "['a']"
    assert kept == "True"


def test_a_cell_shared_by_processes_is_run_once(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    cell = cell_that("sleep_a_little", seconds=0.3, log=str(starts))
    plan = plan_of(cell)
    script = f"""
from pathlib import Path
from fixtures.cells.cell import Plan
from fixtures.run.runner import run_cell_once
from suites.selftest.running import environment
out = Path({str(tmp_path)!r}) / "out"
plan = Plan.read_json(out / "plan.json")
print(run_cell_once(plan, plan.cells[0].key, out, environment()).to_json(indent=None))
"""
    with shared_run(plan, tmp_path / "out"), ThreadPoolExecutor() as workers:
        outputs = list(
            workers.map(
                lambda _: (
                    subprocess.run(
                        [sys.executable, "-c", script],
                        cwd=REPOSITORY,
                        stdout=subprocess.PIPE,
                        check=True,
                    ).stdout
                ),
                range(3),
            )
        )
    runs = [CellRun.model_validate_json(output) for output in outputs]
    assert runs[0] == runs[1] == runs[2]
    assert len(starts.read_text().splitlines()) == 1


def test_a_cell_of_other_sources_is_run_again(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    cell = cell_that("sleep_a_little", seconds=0.1, log=str(starts))
    edited = SOURCE.model_copy(update={"identity": "toy@2"})
    with shared_run(plan_of(cell), tmp_path / "out"):
        for plan in (plan_of(cell), plan_of(cell), plan_of(cell, source=edited)):
            run = run_cell_once(plan, cell.key, tmp_path / "out", environment())
            assert run.provenance.source == plan.source.identity
    assert len(starts.read_text().splitlines()) == 2


def test_a_cell_that_is_not_planned_is_a_config_error(tmp_path: Path) -> None:
    plan = plan_of(cell_that("finish", name="here"))
    with pytest.raises(ConfigError, match="not in the plan"):
        run_cell_once(plan, cell_that("finish", name="there").key, tmp_path, environment())


def test_sigterm_interrupts() -> None:
    with pytest.raises(KeyboardInterrupt), terminate_as_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(5)


def test_a_plan_without_cells_is_an_empty_run(tmp_path: Path) -> None:
    assert run_all(plan_of(), tmp_path) == []
    assert OutFolder(tmp_path).ledger.read().runs == ()
