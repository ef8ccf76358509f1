"""Evidence on its way to the judge: parcels, what is refused, the schedule, the agent's calls."""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from buildkite.agent import Agent, Job
from buildkite.collect import collect, settled
from buildkite.delivery import Delivery
from buildkite.exchange import fetch, publish
from buildkite.parcel import DamagedParcelError, pack, unpack
from buildkite.settings import read_settings
from buildkite.shards import Schedule, shards_of
from buildkite.steps import DIGEST_VARIABLE
from fixtures.errors import ConfigError, InfraError
from fixtures.evidence.cellrun import Artifact, CellRun
from fixtures.run.collect import list_artifacts
from fixtures.run.ledger import Ledger
from fixtures.source.built import build_of, first_difference
from fixtures.source.installed import PYTHON_VARIABLE
from gates.evidence import read_evidence
from gates.policy import read_policy
from graphgate.shard import shard
from suites.selftest.build import SOURCE, a_cell, a_crash, a_plan, a_run, an_attempt
from suites.selftest.standin import agent as standin

KEYS = ["llama.NONE.bk0.contract", "llama.FULL.bk0.contract"]


def a_cell_folder(
    folder: Path, key: str = KEYS[1], files: dict[str, bytes] | None = None
) -> CellRun:
    """A cell's folder with one attempt of these files, and its run, which lists them."""
    attempt_dir = folder / "attempt-0"
    for name, data in (files or {"stdout.log": b"words\n", "deep/core.1": b"\0" * 5000}).items():
        path = attempt_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    artifacts, _ = list_artifacts(attempt_dir)
    (attempt_dir / "attempt.json").write_text("{}")
    attempt = an_attempt().model_copy(update={"artifacts": artifacts})
    return a_run(a_cell(key), attempts=(attempt,))


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


class TestParcel:
    def test_evidence_comes_out_as_it_went_in(self, tmp_path: Path) -> None:
        run = a_cell_folder(tmp_path / "cell")
        pack(tmp_path / "cell", tmp_path / "p.tar.gz", run)
        assert unpack(tmp_path / "p.tar.gz", tmp_path / "out") == run
        assert files_below(tmp_path / "out") == files_below(tmp_path / "cell")

    def test_names_that_a_child_chose_are_only_names(self, tmp_path: Path) -> None:
        names = ["$(id)", "*;x", "-rf", "new\nline", "ä\N{SNOWMAN}", "..x"]
        run = a_cell_folder(tmp_path / "cell", files=dict.fromkeys(names, b"data"))
        pack(tmp_path / "cell", tmp_path / "p.tar.gz", run)
        assert unpack(tmp_path / "p.tar.gz", tmp_path / "out") == run
        assert {f"attempt-0/{name}" for name in names} <= set(files_below(tmp_path / "out"))

    def test_links_and_what_is_not_listed_stay_behind(self, tmp_path: Path) -> None:
        run = a_cell_folder(tmp_path / "cell")
        (tmp_path / "secret").write_text("secret")
        (tmp_path / "cell/attempt-0/link").symlink_to(tmp_path / "secret")
        (tmp_path / "cell/attempt-0/late.log").write_text("written after the list was made")
        pack(tmp_path / "cell", tmp_path / "p.tar.gz", run)
        unpack(tmp_path / "p.tar.gz", tmp_path / "out")
        names = {Path(name).name for name in files_below(tmp_path / "out")}
        assert names == {"stdout.log", "core.1", "attempt.json"}

    @pytest.mark.parametrize(
        ("spoil", "told"),
        [
            (lambda d: (d / "stdout.log").write_bytes(b"other\n"), "another SHA-256"),
            (lambda d: (d / "stdout.log").write_bytes(b"longer than before\n"), "bytes, not 6"),
            (lambda d: (d / "stdout.log").unlink(), "is listed and not there"),
        ],
    )
    def test_a_file_that_is_another_is_found(
        self, spoil: Callable[[Path], None], told: str, tmp_path: Path
    ) -> None:
        run = a_cell_folder(tmp_path / "cell")
        spoil(tmp_path / "cell/attempt-0")
        pack(tmp_path / "cell", tmp_path / "p.tar.gz", run)
        with pytest.raises(DamagedParcelError, match=told):
            unpack(tmp_path / "p.tar.gz", tmp_path / "out")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("name", ["../../outside", "/outside", "a/../../../outside"])
    def test_nothing_is_written_outside(self, name: str, tmp_path: Path) -> None:
        data = b"data"
        listed = Artifact(path=name, bytes=4, sha256=hashlib.sha256(data).hexdigest())
        attempt = an_attempt().model_copy(update={"artifacts": (listed,)})
        run = a_run(attempts=(attempt,))
        with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as archive:
            members = {"run.json": run.to_json().encode(), f"attempt-0/{name}": data}
            for member, content in members.items():
                header = tarfile.TarInfo(member)
                header.size = len(content)
                archive.addfile(header, io.BytesIO(content))
        with pytest.raises(DamagedParcelError, match="outside of it"):
            unpack(tmp_path / "p.tar.gz", tmp_path / "deep/deep/out")
        assert not list(tmp_path.rglob("outside"))

    def test_a_link_in_the_place_of_a_file_is_refused(self, tmp_path: Path) -> None:
        run = a_cell_folder(tmp_path / "cell", files={"a": b""})
        with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as archive:
            text = run.to_json().encode()
            header = tarfile.TarInfo("run.json")
            header.size = len(text)
            archive.addfile(header, io.BytesIO(text))
            link = tarfile.TarInfo("attempt-0/a")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(link)
        with pytest.raises(DamagedParcelError, match="no regular file"):
            unpack(tmp_path / "p.tar.gz", tmp_path / "out")

    @effort(max_examples=60, deadline=None)
    @given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
    def test_damage_never_passes_for_other_evidence(
        self, at: float, bit: int, cut: bool, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("damage")
        run = a_cell_folder(folder / "cell", files={"stdout.log": b"words\n" * 50})
        pack(folder / "cell", folder / "p.tar.gz", run)
        data = bytearray((folder / "p.tar.gz").read_bytes())
        place = int(at * len(data))
        if cut:
            del data[place:]
        else:
            data[place] ^= 1 << bit
        (folder / "p.tar.gz").write_bytes(data)
        try:
            found = unpack(folder / "p.tar.gz", folder / "out")
        except DamagedParcelError:
            assert not (folder / "out").exists()
            return
        # What a gzip header says beside the data may change: the evidence may not.
        assert found == run
        assert files_below(folder / "out")["attempt-0/stdout.log"] == b"words\n" * 50


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """The stand-in, over a store of this test's."""
    program = tmp_path / "buildkite-agent"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -I -S '{standin.__file__}' \"$@\"\n")
    program.chmod(0o755)
    (tmp_path / "store").mkdir()
    monkeypatch.setenv(standin.STORE_VARIABLE, str(tmp_path / "store"))
    monkeypatch.setenv("BUILDKITE_JOB_ID", "job-1")
    return Agent(str(program), pause=0.0)


def a_schedule() -> Schedule:
    made = a_plan(*(a_cell(key) for key in KEYS))
    settings = read_settings()
    return Schedule(
        pipeline="nightly", settings=settings, plan=made, shards=shards_of(made, settings, {})
    )


class TestCollect:
    """One shard of two cells."""

    def delivered(self, tmp_path: Path, agent: Agent, *runs: str, retry: int = 0) -> None:
        """Run these cells into a folder, and send them as a job of the shard."""
        job = Job(id=f"job-{retry + 1}", retry=retry)
        out = tmp_path / f"run-{retry}"
        for key in runs:
            run = a_cell_folder(out / "cells" / key, key)
            Ledger(out / "ledger.jsonl").append(run)
        Delivery(agent, "graphgate", a_schedule().shards[0], job, out).rest()
        assert not list((out / "cells").glob("[!.]*"))

    def downloaded(self, tmp_path: Path, agent: Agent) -> Path:
        assert agent.download("graphgate/shards/**/*.tar.gz", tmp_path / "downloads")
        return tmp_path / "downloads"

    def test_a_shards_evidence_is_laid_out_to_be_judged(self, tmp_path: Path, agent: Agent) -> None:
        self.delivered(tmp_path, agent, *KEYS)
        downloads = self.downloaded(tmp_path, agent)
        found = collect(a_schedule(), downloads, tmp_path / "shards")
        assert found.notes == () and len(found.folders) == 1
        evidence = read_evidence(found.folders, read_policy())
        assert set(evidence.runs) == set(KEYS) and evidence.notes == ()
        assert settled(a_schedule(), downloads, tmp_path / "again") == set(KEYS)

    def test_a_shard_that_sent_nothing_is_there_with_its_plan(self, tmp_path: Path) -> None:
        found = collect(a_schedule(), tmp_path / "nothing", tmp_path / "shards")
        evidence = read_evidence(found.folders, read_policy())
        assert len(evidence.plan.cells) == 2 and not evidence.runs
        assert "no ledger.jsonl" in evidence.notes[0]

    def test_a_damaged_parcel_does_not_count(self, tmp_path: Path, agent: Agent) -> None:
        self.delivered(tmp_path, agent, *KEYS)
        downloads = self.downloaded(tmp_path, agent)
        (parcel,) = downloads.rglob(f"{KEYS[1]}.tar.gz")
        parcel.write_bytes(parcel.read_bytes()[: parcel.stat().st_size // 2])
        found = collect(a_schedule(), downloads, tmp_path / "shards")
        assert len(found.notes) == 1 and KEYS[1] in found.notes[0]
        assert set(read_evidence(found.folders, read_policy()).runs) == {KEYS[0]}

    def test_a_strangers_parcel_is_left_out(self, tmp_path: Path, agent: Agent) -> None:
        self.delivered(tmp_path, agent, *KEYS)
        downloads = self.downloaded(tmp_path, agent)
        (parcel,) = downloads.rglob(f"{KEYS[1]}.tar.gz")
        for name in ("graphgate/shards/contract-7/try0-x", "graphgate/shards/contract-0/$(id)"):
            (downloads / name).mkdir(parents=True)
            (downloads / name / parcel.name).write_bytes(parcel.read_bytes())
        other = parcel.with_name("dsv4.FULL.bk0.contract.tar.gz")
        other.write_bytes(parcel.read_bytes())
        found = collect(a_schedule(), downloads, tmp_path / "shards")
        assert len(found.notes) == 3 and all("left out" in note for note in found.notes)

    def test_a_parcel_under_another_cells_name_does_not_count(
        self, tmp_path: Path, agent: Agent
    ) -> None:
        self.delivered(tmp_path, agent, KEYS[0])
        downloads = self.downloaded(tmp_path, agent)
        (parcel,) = downloads.rglob(f"{KEYS[0]}.tar.gz")
        parcel.rename(parcel.with_name(f"{KEYS[1]}.tar.gz"))
        found = collect(a_schedule(), downloads, tmp_path / "shards")
        assert f"it holds a run of {KEYS[0]}" in found.notes[0]

    def test_what_a_node_failed_at_is_not_settled(self, tmp_path: Path, agent: Agent) -> None:
        failed = a_run(
            a_cell(KEYS[1]),
            attempts=(an_attempt(crash=a_crash("INFRA")),),
            observation=None,
            crash=a_crash("INFRA"),
        )
        out = tmp_path / "run"
        for run in (a_cell_folder(out / "cells" / KEYS[0], KEYS[0]), failed):
            (out / "cells" / str(run.cell.key)).mkdir(parents=True, exist_ok=True)
            Ledger(out / "ledger.jsonl").append(run)
        Delivery(agent, "graphgate", a_schedule().shards[0], Job(id="job-1"), out).rest()
        downloads = self.downloaded(tmp_path, agent)
        assert settled(a_schedule(), downloads, tmp_path / "shards") == {KEYS[0]}


class TestDelivery:
    def test_what_could_not_be_stored_stays(
        self, tmp_path: Path, agent: Agent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out = tmp_path / "out"
        run = a_cell_folder(out / "cells" / KEYS[1])
        Ledger(out / "ledger.jsonl").append(run)
        shard = a_schedule().shards[0]
        broken = Delivery(Agent("/bin/false", pause=0.0), "graphgate", shard, Job(id="j"), out)
        with pytest.raises(InfraError, match="could not be stored"):
            broken.rest()
        assert (out / "cells" / KEYS[1] / "attempt-0/stdout.log").exists()
        Delivery(agent, "graphgate", shard, Job(id="j"), out).rest()
        assert len(list((tmp_path / "store").rglob(f"{KEYS[1]}.tar.gz"))) == 1


class TestNode:
    """A node that is not what the settings declare."""

    def test_why_a_shard_could_not_run_is_told_in_the_build(
        self, tmp_path: Path, agent: Agent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        monkeypatch.setenv("BUILDKITE_AGENT_NAME", "node-1")
        made = a_plan(a_cell("llama.FULL.bk0.canary"))
        settings = read_settings()
        shards = shards_of(made, settings, {})
        schedule = Schedule(pipeline="pr", settings=settings, plan=made, shards=shards)
        monkeypatch.setenv(DIGEST_VARIABLE, publish(schedule, agent))
        with pytest.raises(InfraError, match="shows 0 GPUs"):
            shard("canary", tmp_path / "out")
        told = (tmp_path / "store/annotations/graphgate-canary-0.warning.md").read_text()
        assert "INFRA in canary-0, try 0" in told and "its lane needs 1" in told
        assert (tmp_path / "store/paused/node-1").exists()

    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        for root in ("tree", "installed"):
            (tmp_path / root / "vllm/v1").mkdir(parents=True)
            for name in ("__init__.py", "v1/worker.py"):
                (tmp_path / root / "vllm" / name).write_text(f"# {name}\n")
        (tmp_path / "installed/vllm/_version.py").write_text("version = '1'\n")
        (tmp_path / "tree/vllm/_version.py").write_text("version = '2'\n")
        return tmp_path / "tree"

    def test_a_build_is_known_by_its_python_files(
        self, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        installed = tmp_path / "installed"
        python = tmp_path / "python"
        python.write_text(f"""#!/bin/sh\necho '{{"package": "{installed}/vllm/__init__.py"}}'\n""")
        python.chmod(0o755)
        monkeypatch.setenv(PYTHON_VARIABLE, str(python))
        source = SOURCE.model_copy(update={"kind": "checkout", "python_path": str(tree)})
        with pytest.raises(InfraError, match="has no compiled vLLM"):
            build_of(source)
        (installed / "vllm/_C.abi3.so").touch()
        built = build_of(source)
        assert (built.identity, built.request) == (source.identity, source.request)
        assert (built.compiled, built.python_path) == (True, str(installed))
        assert build_of(built) == built
        (tree / "vllm/v1/worker.py").write_text("# edited\n")
        with pytest.raises(InfraError, match=r"no build of .*: vllm/v1/worker\.py is not the same"):
            build_of(source)

    def test_a_file_that_the_build_lacks(self, tree: Path, tmp_path: Path) -> None:
        assert first_difference(tree, tmp_path / "installed") is None
        (tree / "vllm/v1/new.py").touch()
        assert first_difference(tree, tmp_path / "installed") == "vllm/v1/new.py"


class TestExchange:
    def test_the_schedule_that_is_read_is_the_one_that_was_published(self, agent: Agent) -> None:
        digest = publish(a_schedule(), agent)
        assert fetch(agent, {DIGEST_VARIABLE: digest}) == a_schedule()
        assert fetch(agent, {}) == a_schedule()  # by the build's meta-data

    def test_another_file_under_its_name_is_refused(self, agent: Agent, tmp_path: Path) -> None:
        digest = publish(a_schedule(), agent)
        (path,) = (tmp_path / "store").rglob(f"{digest}.json")
        path.write_text(path.read_text().replace("FULL", "NONE"))
        with pytest.raises(InfraError, match="is another file"):
            fetch(agent, {DIGEST_VARIABLE: digest})

    @pytest.mark.parametrize("digest", ["", "../../etc/passwd", "0" * 63, "*"])
    def test_what_is_no_digest_is_refused(self, digest: str, agent: Agent) -> None:
        with pytest.raises(ConfigError, match="has no schedule"):
            fetch(agent, {DIGEST_VARIABLE: digest})


class TestAgent:
    def test_a_job_needs_buildkites_variables(self) -> None:
        assert Job.of({"BUILDKITE_JOB_ID": "0193-ab"}) == Job(id="0193-ab", parallel=0, retry=0)
        for wrong in ({}, {"BUILDKITE_JOB_ID": "../x"}):
            with pytest.raises(ConfigError, match="no job of Buildkite's"):
                Job.of(wrong)

    def test_a_missing_agent_is_an_infra_error(self, tmp_path: Path) -> None:
        with pytest.raises(InfraError, match="can't be started"):
            Agent("/nowhere/buildkite-agent").meta_data("x")

    def test_no_artefact_is_no_error(self, agent: Agent, tmp_path: Path) -> None:
        assert agent.download("nothing/*", tmp_path / "into") is False

    def test_a_call_that_fails_is_tried_three_times(self, tmp_path: Path) -> None:
        program = tmp_path / "agent"
        program.write_text(f"#!/bin/sh\necho x >> '{tmp_path}/calls'\necho why >&2\nexit 1\n")
        program.chmod(0o755)
        with pytest.raises(InfraError, match="meta-data get failed: why"):
            Agent(str(program), pause=0.0).meta_data("x")
        assert (tmp_path / "calls").read_text().count("x") == 3
