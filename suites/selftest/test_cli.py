"""The command line as its users meet it: a process, its exit code, what it prints and writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fixtures.cells.cell import Plan
from fixtures.errors import BusyError, ConfigError, InfraError
from gates.verdict import Verdicts
from graphgate import cli

GRAPHGATE = [sys.executable, "-m", "graphgate"]
SMALL = ["--model", "llama", "--modes", "FULL", "--breakable", "off", "--vllm", "0.26.0"]


def graphgate(*arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GRAPHGATE, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env={**os.environ, "COLUMNS": "200"},
    )


def a_plan(folder: Path) -> Path:
    done = graphgate("plan", *SMALL, "--out", str(folder))
    assert done.returncode == 0, done.stderr
    return folder / "plan.json"


def test_a_verb_that_judges_no_score_waits_for_no_statistics() -> None:
    told = "import sys; import graphgate.cli; print('scipy.stats' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "code", "told"),
        [
            (["plan", "--model", "dsv5"], 30, "did you mean dsv4?"),
            (["plan", "--modes", "FUL"], 30, "--modes: unknown mode"),
            (["plan", "--sweep", "weekly"], 30, "known: nightly, pr"),
            (["plan", "--vllm", "/nowhere"], 30, "--vllm"),
            (["plan", "--vllm", "."], 30, "isn't a vLLM checkout"),
            (["plan", "--modle", "dsv4"], 30, "No such option"),
            (["plna"], 30, "No such command"),
            (["gate", "--jobs", "0"], 30, "--jobs"),
            (["gate", "--tier", "canary", "--vllm", "0.26.0"], 20, "not available here"),
            (["run", "--plan", "/nowhere/plan.json"], 30, "/nowhere/plan.json: cannot be read"),
            (["judge", "/nowhere"], 30, "/nowhere: holds no plan.json"),
            (["report", "/nowhere"], 30, "cannot be read"),
        ],
    )
    def test_a_wrong_request_has_its_code_and_a_message_without_a_traceback(
        self, arguments: list[str], code: int, told: str
    ) -> None:
        done = graphgate(*arguments)
        assert done.returncode == code, done.stderr
        assert told in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""

    def test_a_plan_with_a_key_too_many_is_refused(self, tmp_path: Path) -> None:
        path = a_plan(tmp_path)
        data = json.loads(path.read_text())
        path.write_text(json.dumps({**data, "colour": "red"}))
        done = graphgate("run", "--plan", str(path), "--out", str(tmp_path / "out"))
        assert done.returncode == 30
        assert "plan.json: colour" in done.stderr

    def test_a_plan_for_another_tree_is_refused(self, tmp_path: Path) -> None:
        path = a_plan(tmp_path)
        data = json.loads(path.read_text())
        data["source"]["identity"] = "release:0.26.0:something-else"
        path.write_text(json.dumps(data))
        done = graphgate("run", "--plan", str(path), "--out", str(tmp_path / "out"))
        assert done.returncode == 30
        assert "source.identity" in done.stderr

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (ConfigError("wrong"), 30),
            (BusyError("held"), 30),
            (InfraError("sick"), 20),
            (RuntimeError("a defect of GraphGate"), 1),
        ],
    )
    def test_each_error_has_its_exit_code(
        self,
        error: Exception,
        code: int,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def fail() -> None:
            raise error

        monkeypatch.setattr(cli, "app", fail)
        assert cli.exit_code() == code
        told = capsys.readouterr().err
        assert str(error) in told
        assert ("Traceback" in told) is (code == 1)


class TestPlan:
    def test_json_is_a_plan_and_equals_the_file(self, tmp_path: Path) -> None:
        printed = graphgate("plan", *SMALL, "--json")
        written = a_plan(tmp_path)
        assert Plan.model_validate_json(printed.stdout) == Plan.read_json(written)

    def test_text_names_the_cells_and_what_is_left_out(self) -> None:
        done = graphgate("plan", *SMALL)
        assert "llama.FULL.bk0.contract.len128" in done.stdout
        assert "not planned: canary: not available here" in done.stdout

    def test_a_shard_is_a_part(self, tmp_path: Path) -> None:
        whole = Plan.read_json(a_plan(tmp_path)).cells
        part = graphgate("plan", *SMALL, "--shard", "1/2", "--json")
        cells = Plan.model_validate_json(part.stdout).cells
        assert 0 < len(cells) < len(whole)
        assert all(cell in whole for cell in cells)


@pytest.mark.release("0.26.0")
class TestGate:
    def test_it_ends_with_the_decisions_code_and_leaves_all_files(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        done = graphgate("gate", *SMALL, "--out", str(out))
        verdicts = Verdicts.read_json(out / "verdicts.json")
        assert done.returncode == verdicts.decision.exit_code
        assert {verdict.key for verdict in verdicts.verdicts} == {
            cell.key for cell in Plan.read_json(out / "plan.json").cells
        }
        assert (out / "junit.xml").read_text().startswith("<?xml")
        assert "not available here" in done.stdout
        again = graphgate("judge", str(out))
        assert again.returncode == done.returncode

    def test_interrupted_it_leaves_evidence_and_the_missing_is_missing(
        self, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        first = subprocess.Popen(
            [*GRAPHGATE, "gate", *SMALL, "--out", str(out), "--jobs", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_for(out / "plan.json", first)
            second = graphgate("gate", *SMALL, "--out", str(out))
            first.send_signal(signal.SIGINT)
            _, told = first.communicate(timeout=60)
        finally:
            first.kill()
        assert second.returncode == 30
        assert f"is in use by process {first.pid}" in second.stderr
        assert first.returncode == 130
        assert f"graphgate judge {out}" in told
        judged = graphgate("judge", str(out))
        assert judged.returncode == 31
        assert "MISSING" in judged.stdout


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = 200) -> None:
    """Until `path` exists; the process must live as long."""
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.05)
