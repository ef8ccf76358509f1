"""The verbs `affected` and `pr`, and the check of pull requests on a history of real releases."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from buildkite.affected.record import Affected
from buildkite.selection import Selection
from buildkite.settings import read_settings
from buildkite.steps import DRIFT, SELECTION, bootstrap_of
from fixtures.cells.sweeps import load_catalog
from fixtures.errors import ConfigError
from fixtures.source.resolve import resolve
from gates.drift import ContractRecord, Drift
from gates.verdict import Verdicts
from graphgate.affected import affected as affected_verb
from graphgate.pr import pr
from suites.selftest.build import a_cell, a_plan
from suites.selftest.vllm_history import PLANTED, git, vllm_history

NAMES = load_catalog().sweep("pr").models


@pytest.mark.release("0.33.0")
class TestVerbs:
    @pytest.fixture
    def changed(self, tmp_path: Path) -> Path:
        path = tmp_path / "changed"
        path.write_text("docs/a.md\nvllm/models/inkling/nvidia/model.py\n")
        return path

    def test_it_tells_and_writes_the_cells_of_a_plan(
        self, changed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source = resolve("0.33.0")
        plan = a_plan(*(a_cell(f"{name}.FULL.bk0.contract") for name in NAMES), source=source)
        (tmp_path / "plan.json").write_text(plan.to_json())
        out = tmp_path / "selection.json"
        planned = tmp_path / "plan.json"
        affected_verb(vllm="0.33.0", changed=str(changed), plan_file=planned, out=out, as_json=True)
        told = json.loads(capsys.readouterr().out)
        assert set(told["models"]) == {"inkling"}
        assert told["files"][0]["models"] == []
        (cell,) = Selection.read_json(out).cells
        assert str(cell.key) == "inkling.FULL.bk0.contract"
        assert "the model's own files" in cell.why
        affected_verb(vllm="0.33.0", changed=str(changed))
        assert "documentation" in capsys.readouterr().out

    def test_it_is_told_once_what_changed(self, changed: Path) -> None:
        for base, listed in (("main", str(changed)), (None, None)):
            with pytest.raises(ConfigError, match="exactly one"):
                affected_verb(vllm="0.33.0", base=base, changed=listed)
        with pytest.raises(ConfigError, match="git can't compare"):
            affected_verb(vllm="0.33.0", base="main")

    def test_a_change_of_no_relevance_passes_and_says_why(
        self, changed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        changed.write_text("docs/a.md\n")
        out = tmp_path / "out"
        pr(vllm="0.33.0", changed=str(changed), out=out)
        assert "none can affect a model: documentation (1)" in capsys.readouterr().out
        assert json.loads((out / "status.json").read_text())["state"] == "success"
        assert (out / "comment.md").read_text().startswith("<!-- graphgate -->")
        assert not (out / "verdicts.json").exists()


def graphgate(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "graphgate", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
        env={**os.environ, **variables},
    )


CHECKED = {
    "docs": ("--model", "all"),
    "own": ("--model", "inkling", "--modes", "PIECEWISE", "--breakable", "on"),
    "s1": ("--model", "llama", "--modes", "PIECEWISE", "--breakable", "off"),
    "s2": ("--model", "dsv4", "--modes", "FULL", "--breakable", "off"),
    "s3": ("--model", "inkling", "--modes", "PIECEWISE", "--breakable", "on"),
    "s4": ("--model", "dsv4", "--modes", "PIECEWISE", "--breakable", "on"),
}
"""By branch: the cells that are judged of those that are affected, to keep the test short."""

SEEN: dict[str, tuple[str, str, str]] = {
    "s1": (
        "non-breakable PIECEWISE: metadata at capture is now",
        "audit:E eager-inputs",
        "llama.PIECEWISE.bk0.contract.len128",
    ),
    "s2": (
        "FULL: warm-up shares state with capture is now 'yes'",
        "audit:C shared-state",
        "dsv4.FULL.bk0.contract",
    ),
    "s3": (
        "breakable PIECEWISE: metadata at capture is now 'shared",
        "audit:C shared-state",
        "inkling.PIECEWISE.bk1.contract",
    ),
    "s4": (
        "breakable replay, metadata-reading operation inside the graph is now 'wrong'",
        "parity:F replay",
        "dsv4.PIECEWISE.bk1.contract",
    ),
}
"""By planted change: a row that drifts, and a rule that blocks a cell."""


@pytest.mark.releases
@pytest.mark.release("0.26.0")
@pytest.mark.release("0.27.0")
class TestRealHistory:
    @pytest.fixture(scope="class")
    def repository(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return vllm_history(tmp_path_factory.mktemp("history") / "vllm")

    @pytest.fixture(scope="class")
    def record(self, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        path = tmp_path_factory.mktemp("record") / "base.json"
        git(repository, "checkout", "--quiet", "main")
        assert graphgate("drift", "--vllm", str(repository), "--record", str(path)).returncode == 0
        assert ContractRecord.read_json(path).rows
        return path

    def check(
        self, branch: str, repository: Path, record: Path, out: Path
    ) -> tuple[int, Affected, dict[str, set[str]]]:
        """Exit code, what is affected, and by `gate:CLASS check` the cells that it blocks."""
        git(repository, "checkout", "--quiet", branch)
        # S2 has the merge base's contract recorded again, from a working tree of its own.
        known = () if branch == "s2" else ("--base-record", str(record))
        where = ("--vllm", str(repository), "--base", "main", *known)
        tier = ("--tier", "contract", "--out", str(out))
        done = graphgate("pr", *where, *CHECKED[branch], *tier)
        assert (out / "affected.json").exists(), done.stderr
        found = Affected.read_json(out / "affected.json")
        blocking: dict[str, set[str]] = {}
        if (out / "verdicts.json").exists():
            for verdict in Verdicts.read_json(out / "verdicts.json").verdicts:
                for one in verdict.findings:
                    if one.status.blocks:
                        name = f"{one.identity} {one.check}"
                        blocking.setdefault(name, set()).add(str(verdict.key))
        return done.returncode, found, blocking

    def test_a_docs_change(self, repository: Path, record: Path, tmp_path: Path) -> None:
        code, found, _ = self.check("docs", repository, record, tmp_path)
        assert (code, found.models, found.drift) == (0, (), ())

    def test_a_change_in_a_model(self, repository: Path, record: Path, tmp_path: Path) -> None:
        _, found, _ = self.check("own", repository, record, tmp_path)
        assert (found.models, found.drift) == (("inkling",), ())

    @pytest.mark.parametrize("branch", list(SEEN))
    def test_a_planted_change(
        self, branch: str, repository: Path, record: Path, tmp_path: Path
    ) -> None:
        code, found, blocking = self.check(branch, repository, record, tmp_path)
        assert (code, found.models) == (10, NAMES)
        assert [file.path for file in found.files] == [PLANTED[branch].file]
        drift, rule, key = SEEN[branch]
        assert any(row.startswith(drift) for row in found.drift)
        assert key in blocking[rule]

    def test_the_plan_step_of_a_build(self, repository: Path, tmp_path: Path) -> None:
        """The shipped commands on a clone whose target branch has gone on, as text of a build."""
        git(repository, "checkout", "--quiet", "main")
        git(tmp_path, "clone", "--quiet", "--branch", "s2", str(repository), "vllm")
        (step,) = (s for s in bootstrap_of(read_settings())["steps"] if "plan-pr" in s["key"])
        *_, affected, plan = (shlex.split(line)[1:] for line in step["commands"])
        swap = {"vllm": str(tmp_path / "vllm"), SELECTION: str(tmp_path / "s"), "--upload": ""}
        swap |= {DRIFT: str(tmp_path / "drift.json")}
        first, second = ([swap.get(w, w) for w in words] for words in (affected, plan))
        branch = {"BUILDKITE_PULL_REQUEST_BASE_BRANCH": "main"}
        assert graphgate(*first, **branch).returncode == 0
        chosen = Selection.read_json(tmp_path / "s")
        assert chosen.drift == Drift.read_json(tmp_path / "drift.json")
        assert set(chosen.hardware_tiers_due) == set(NAMES)
        done = graphgate(*filter(None, second))
        assert done.returncode == 0, done.stderr
        keys = [step["key"] for step in yaml.safe_load(done.stdout)["steps"]]
        assert keys == ["graphgate-contract", "graphgate-canary", "graphgate-judge"]
