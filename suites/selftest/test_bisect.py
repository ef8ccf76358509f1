"""Bisect: what a verdict says about a finding, and the searches over releases and commits."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from buildkite.bisect import step
from buildkite.bisect.commits import Checkout
from buildkite.bisect.hunt import Hunted, Reading, State, finding_to_hunt, read
from buildkite.bisect.outcome import Outcome, Step, report_lines
from buildkite.bisect.releases import bisect_releases, is_release, releases_between
from buildkite.bisect.search import find_border
from buildkite.bisect.step import STEP_FILE, RevisionVerdict
from fixtures.cells.assembly import assemble
from fixtures.cells.cell import CellKey, Deadlines
from fixtures.cells.sweeps import load_catalog
from fixtures.errors import ConfigError
from fixtures.source.installed import PYTHON_VARIABLE
from fixtures.source.progress import silent
from fixtures.source.resolve import resolve
from gates.verdict import Finding, Gate, Status, Verdict
from graphgate.bisect import OUTCOME_FILE, Releases, bisect
from graphgate.live import Live
from suites.selftest.build import a_crash
from suites.selftest.vllm_history import PLANTED, commit_all, git, lay_out, plant

KEY = CellKey.parse("dsv4.FULL.bk0.contract")
HUNTED = Hunted(cell=KEY, finding="audit:C")
SHARED = Finding(
    gate=Gate.AUDIT,
    check="shared-state",
    fault_class="C",
    status=Status.FAIL,
    why="it is shared [a.py: capture]",
)
LENGTH = SHARED.model_copy(update={"fault_class": "D", "check": "frozen-query-length"})
REPLAY = SHARED.model_copy(update={"gate": Gate.PARITY, "check": "replay"})
AUDITED = Finding(gate=Gate.AUDIT, check="capture", status=Status.PASS, why="in range")


def verdict(*findings: Finding, status: str | None = None) -> Verdict:
    worst = min((f.status for f in findings), key=lambda s: s.rank, default=Status.PASS)
    return Verdict(key=KEY, status=Status(status) if status else worst, findings=findings)


def lived(status: str) -> Finding:
    return Finding(gate=Gate.LIVENESS, check="completed", status=Status(status), why="it ended so")


class TestReading:
    def test_the_finding_is_bad_and_has_a_title(self) -> None:
        found = read(verdict(SHARED, LENGTH), None, HUNTED)
        assert found[:2] == (State.BAD, "audit:C shared-state [a.py: capture]")

    @pytest.mark.parametrize("name", ["audit:C", "audit:C:shared-state"])
    def test_it_is_named_shortly_or_closely(self, name: str) -> None:
        hunted = Hunted(cell=KEY, finding=name)
        assert read(verdict(SHARED), None, hunted).state is State.BAD
        other = SHARED.model_copy(update={"check": "another"})
        bad = read(verdict(other), None, hunted).state is State.BAD
        assert bad == (name == "audit:C")

    @pytest.mark.parametrize("status", ["INFRA", "CONFIG", "MISSING", "CRASH", "HANG"])
    def test_a_run_that_told_nothing_is_skipped(self, status: str) -> None:
        assert read(verdict(lived(status)), None, HUNTED).state is State.SKIP

    def test_another_gates_blocker_may_hide_it(self) -> None:
        assert read(verdict(REPLAY), None, HUNTED).state is State.SKIP
        hunted = Hunted(cell=KEY, finding="parity:D")
        assert read(verdict(REPLAY, AUDITED), None, hunted).state is State.SKIP

    def test_the_audit_that_looked_and_did_not_find_it(self) -> None:
        found = read(verdict(LENGTH, REPLAY), None, HUNTED)
        assert found.state is State.GOOD
        assert "frozen-query-length" in found.why

    @pytest.mark.parametrize(("findings", "state"), [((AUDITED,), State.GOOD), ((), State.SKIP)])
    def test_an_expected_downgrade(self, findings: tuple[Finding, ...], state: State) -> None:
        gone = lived("UNSUPPORTED")
        assert read(verdict(gone, *findings), None, HUNTED).state is state

    def test_a_crash_has_the_title_of_its_report(self) -> None:
        hunted = Hunted(cell=KEY, finding="liveness:I")
        died = lived("CRASH").model_copy(update={"fault_class": "I"})
        crash = a_crash(title="illegal memory access in gather_rows")
        assert read(verdict(died), crash, hunted).title == crash.title

    def test_a_passed_cell_is_good(self) -> None:
        assert read(verdict(AUDITED), None, HUNTED).state is State.GOOD

    def test_what_is_hunted_where_nothing_was_named(self) -> None:
        assert finding_to_hunt(verdict(AUDITED, LENGTH, SHARED)) == "audit:D:frozen-query-length"
        assert finding_to_hunt(verdict(AUDITED)) is None
        assert finding_to_hunt(verdict(lived("INFRA"))) is None

    @pytest.mark.parametrize("name", ["audit", "luck:C", "audit:Z", "audit:C; rm -rf", "a:C:$(x)"])
    def test_a_name_that_is_none(self, name: str) -> None:
        with pytest.raises(ValidationError):
            Hunted(cell=KEY, finding=name)


def stepping(states: list[State]) -> tuple[list[str], dict[str, State]]:
    names = [f"r{index}" for index in range(len(states))]
    return names, dict(zip(names, states, strict=True))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[State], State]:
    """A line of revisions with one border and any number of skips."""
    older = draw(st.sampled_from([State.GOOD, State.BAD]))
    newer = State.GOOD if older is State.BAD else State.BAD
    before, after = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    line = [older] * before + [newer] * after
    skipped = draw(st.lists(st.booleans(), min_size=len(line), max_size=len(line)))
    skipped[draw(st.integers(0, before - 1))] = False
    skipped[before + draw(st.integers(0, after - 1))] = False
    return [State.SKIP if out else state for state, out in zip(line, skipped, strict=True)], older


class TestSearch:
    @given(histories())
    def test_the_border_is_always_among_the_suspects(
        self, history: tuple[list[State], State]
    ) -> None:
        states, older = history
        names, known = stepping(states)
        asked: list[str] = []

        def test(name: str) -> Step:
            asked.append(name)
            return Step.of(name, Reading(known[name], None, "so"), 1.0)

        border = find_border(names, older, test)
        judged = [state for state in states if state is not State.SKIP]
        olds = [n for n in names if known[n] is older]
        news = [n for n in names if known[n] is not State.SKIP and known[n] is not older]
        assert judged
        assert (border.old.revision, border.new.revision) == (olds[-1], news[0])
        first, last = names.index(olds[-1]), names.index(news[0])
        assert border.suspects == tuple(names[first + 1 : last + 1])
        assert len(asked) == len(set(asked))
        skips = states.count(State.SKIP)
        assert len(asked) <= 3 + math.ceil(math.log2(len(states))) + skips

    def test_an_end_that_is_otherwise_is_an_error(self) -> None:
        names, known = stepping([State.BAD, State.BAD])
        with pytest.raises(ConfigError, match="no revision at this end is good; r1 is bad"):
            find_border(names, State.BAD, lambda n: Step.of(n, Reading(known[n], None, "so"), 1))
        names, known = stepping([State.SKIP, State.SKIP])
        with pytest.raises(ConfigError, match="skip"):
            find_border(names, State.BAD, lambda n: Step.of(n, Reading(known[n], None, "so"), 1))

    def test_the_report_says_skips_titles_and_both_findings(self) -> None:
        names = ("1.0", "1.1", "1.2", "1.3")
        readings = {
            "1.0": Reading(State.BAD, "title one", "why one"),
            "1.1": Reading(State.BAD, "title two", "why two"),
            "1.2": Reading(State.SKIP, None, "CONFIG: no such model"),
            "1.3": Reading(State.GOOD, None, "did not show"),
        }
        outcome = bisect_releases(
            names, HUNTED, repair=True, test=lambda name: Step.of(name, readings[name], 1.0)
        )
        assert not outcome.found
        text = "\n".join(report_lines(outcome))
        assert "first good revision is one of 1.2, 1.3" in text
        assert "1.1 is bad: why two" in text
        assert "skipped 1.2: CONFIG: no such model" in text
        assert "title one in 1.0, title two in 1.1" in text
        assert Outcome.model_validate_json(outcome.to_json()) == outcome


class TestReleases:
    @pytest.mark.release("0.26.0")
    @pytest.mark.release("0.33.0")
    def test_each_has_its_python_and_one_that_has_another_is_skipped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        monkeypatch.setenv(PYTHON_VARIABLE, "before")
        package = tmp_path / "vllm"
        shutil.copytree(Path(resolve("0.26.0").python_path) / "vllm", package)
        (package / "_C.abi3.so").touch()
        found = Releases(None, str(tmp_path / "python-{version}"), Live())
        key = CellKey.parse("llama.FULL.bk0.canary")
        tester = step.Tester(key, load_catalog(), tmp_path / "out", silent, lambda events, _: ())

        def why_not(release: str) -> str:
            python = tmp_path / f"python-{release}"
            python.write_text(f"""#!/bin/sh\necho '{{"package": "{package}/__init__.py"}}'\n""")
            python.chmod(0o755)
            with found.python_of(release):
                verdict = tester.test(release, lambda: found.source(release, key.tier)).verdict
            assert verdict.status is Status.INFRA
            return verdict.findings[0].why

        assert "the GPUs are hidden" in why_not("0.26.0")  # all else is there
        assert "is no build of release:0.33.0" in why_not("0.33.0")
        assert os.environ[PYTHON_VARIABLE] == "before"

    def test_those_between_two_in_their_order(self) -> None:
        known = ["0.9.0", "0.10.0", "0.9.1", "0.11.0", "0.10.0rc1", "words"]
        assert releases_between("0.9.0", "0.10.0", known) == ("0.9.0", "0.9.1", "0.10.0")
        with pytest.raises(ConfigError, match="not older"):
            releases_between("0.10.0", "0.10.0", known)

    def test_what_is_a_release(self) -> None:
        assert is_release("0.26.0")
        assert not is_release("main")


def graphgate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "graphgate", "bisect", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
    )


class TestCommits:
    """`git bisect run` over a tree with the landmarks of vLLM, whose verdicts lie there already."""

    @pytest.fixture
    def repository(self, tmp_path: Path) -> Path:
        root = tmp_path / "vllm; touch $(x)"
        landmarks = ("vllm/__init__.py", "vllm/v1/worker/gpu/cudagraph_utils.py")
        for name in landmarks:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()
        (root / "vllm/_version.py").write_text("__version__ = version = '0.33.0'\n")
        # A tree that would take the command over, were its folder on Python's path.
        (root / "graphgate.py").write_text("raise SystemExit('taken over')\n")
        (root / "json.py").write_text("raise SystemExit('taken over')\n")
        git(root.parent, "init", "--quiet", "--initial-branch", "main", str(root))
        for number in range(5):
            (root / "vllm" / "number.py").write_text(f"{number}\n")
            commit_all(root, f"change {number}; $(touch sprung) `touch sprung`")
        return root

    def judged(self, root: Path, out: Path, states: str) -> list[str]:
        """Leaves a verdict for each commit: b(ad), g(ood), s(kip)."""
        kinds = {"b": (SHARED,), "g": (AUDITED,), "s": (lived("CRASH"),)}
        commits = git(root, "rev-list", "--reverse", "main").split()
        catalog = load_catalog()
        source = resolve(str(root))
        cell = assemble(
            KEY, catalog.model("dsv4"), catalog.canary_engine, Deadlines(), source.version
        )
        for commit, kind in zip(commits, states, strict=True):
            here = source.model_copy(update={"identity": f"commit:{commit}"})
            tested = RevisionVerdict(
                revision=commit, source=here, cell=cell, verdict=verdict(*kinds[kind]), seconds=1
            )
            folder = out / "steps" / commit
            folder.mkdir(parents=True)
            (folder / STEP_FILE).write_text(tested.to_json())
        return commits

    def hunt(self, root: Path, out: Path, good: str, bad: str) -> tuple[int, Outcome]:
        with pytest.raises(typer.Exit) as ended:
            bisect(good=good, bad=bad, cell=str(KEY), checkout=root, out=out)
        return ended.value.exit_code, Outcome.read_json(out / OUTCOME_FILE)

    def test_a_break_is_found_and_the_checkout_is_left_alone(
        self, repository: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        commits = self.judged(repository, out, "gggbb")
        (repository / "vllm" / "number.py").write_text("edited\n")
        code, outcome = self.hunt(repository, out, commits[0], "main")
        assert code == 0
        assert not outcome.repair
        assert outcome.hunted.finding == "audit:C:shared-state"
        assert (outcome.old.revision, outcome.new.revision) == (commits[2], commits[3])
        assert "it is shared" in outcome.new.why
        assert git(repository, "symbolic-ref", "HEAD") == "refs/heads/main"
        assert (repository / "vllm" / "number.py").read_text() == "edited\n"
        assert len(git(repository, "worktree", "list").splitlines()) == 1
        assert git(repository, "for-each-ref", "refs/bisect") == ""
        assert not list(tmp_path.rglob("sprung"))

    def test_a_repair_behind_commits_that_cannot_be_judged(
        self, repository: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        commits = self.judged(repository, out, "bbssg")
        code, outcome = self.hunt(repository, out, "main", commits[0])
        assert code == 31
        assert outcome.repair
        assert outcome.suspects == tuple(commits[2:5])
        assert outcome.old.revision == commits[1]
        assert outcome.new.revision == commits[4]

    def test_ends_that_are_wrong(self, repository: Path, tmp_path: Path) -> None:
        commits = self.judged(repository, tmp_path / "out", "ggggg")
        for finding, told in ((None, "nothing that blocks"), ("audit:C", "is good, not bad")):
            with pytest.raises(ConfigError, match=told):
                bisect(
                    good=commits[0],
                    bad="main",
                    cell=str(KEY),
                    finding=finding,
                    checkout=repository,
                    out=tmp_path / "out",
                )
        with pytest.raises(ConfigError, match="no commit"):
            Checkout(repository, "--upload-pack=x", "main")
        with pytest.raises(ConfigError, match="ancestor"):
            Checkout(repository, "main", "main")
        assert len(git(repository, "worktree", "list").splitlines()) == 1

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({"good": "1.0", "bad": "0.9", "cell": "nonsense"}, "no cell key"),
            ({"good": "1.0", "bad": "0.9", "cell": "dsv4.FULL.bk0.contract.none"}, "variant"),
            ({"good": "main", "bad": "0.9", "cell": str(KEY)}, "no release"),
            ({"good": "1.0", "bad": "0.9", "cell": str(KEY), "finding": "x:C"}, "no finding"),
            ({"good": "1.0", "cell": str(KEY)}, "--bad"),
        ],
    )
    def test_wrong_requests(self, arguments: dict[str, str], told: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=told):
            bisect(**arguments, releases="0.9", out=tmp_path / "out")  # type: ignore[arg-type]


BORDERS = [
    ("dsv4.FULL.bk0.contract", "audit:C", "0.21.0", "0.22.0"),
    ("llama.FULL.bk0.contract.len128", "audit:E", "0.26.0", "0.27.0"),
    ("llama.FULL.bk0.contract", "audit:D", "0.30.0", "0.31.0"),
]


@pytest.mark.releases
@pytest.mark.parametrize(("cell", "finding", "bad", "good"), BORDERS)
def test_the_borders_of_the_releases(
    cell: str, finding: str, bad: str, good: str, tmp_path: Path
) -> None:
    ends = ("--bad", "0.20.0", "--good", "0.33.0")
    done = graphgate(
        *ends, "--cell", cell, "--finding", finding, "--out", str(tmp_path / "out"), "--json"
    )
    assert done.returncode == 0, done.stderr
    outcome = Outcome.model_validate(json.loads(done.stdout))
    assert outcome.repair
    assert (outcome.old.revision, outcome.new.revision) == (bad, good)
    assert outcome.suspects == (good,)
    assert len(outcome.steps) <= 7


@pytest.mark.releases
def test_a_planted_break_among_the_commits_of_a_checkout(tmp_path: Path) -> None:
    root = tmp_path / "vllm"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch", "main")
    lay_out("0.26.0", root)
    commits = [commit_all(root, "vLLM 0.26.0")]
    for number in range(6):
        if number == 3:
            plant(root, PLANTED["s2"])
        (root / "vllm" / "notes.py").write_text(f"NUMBER = {number}\n")
        commits.append(commit_all(root, f"change {number}"))
    done = graphgate(
        *("--good", commits[0], "--bad", "main", "--cell", str(KEY), "--checkout", str(root)),
        *("--finding", "audit:C", "--out", str(tmp_path / "out"), "--json"),
    )
    assert done.returncode == 0, done.stderr
    outcome = Outcome.model_validate(json.loads(done.stdout))
    assert (outcome.old.revision, outcome.new.revision) == (commits[3], commits[4])
    assert outcome.new.subject == "change 3"
