"""A whole nightly on one machine: real plan, real children, real judge, stand-in Buildkite."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from buildkite.collect import collect
from buildkite.shards import Schedule
from gates.verdict import Status, Verdicts
from suites.selftest.standin.driver import Build
from suites.selftest.standin.night import build_in

REGRESSION = "llama.FULL.bk0.contract"
KILLER = "llama.FULL.bk1.contract.spec3"
LOST = "llama.FULL.bk0.contract.lora"
AGENTS = ["sick-1", "node-2", "node-3", "node-4", "node-5", "node-6"]
JUDGE = "graphgate-judge"
LANE = "graphgate-contract"


def verdicts_of(build: Build) -> Verdicts:
    (judge,) = build.of(JUDGE)
    return Verdicts.read_json(build.store / "artifacts" / judge.id / "verdicts.json")


def schedule_of(build: Build) -> Schedule:
    (path,) = build.store.glob("artifacts/*/graphgate-schedule/*.json")
    return Schedule.read_json(path)


def parcels(build: Build) -> list[tuple[str, str]]:
    """Job and file name of every parcel."""
    return sorted(
        (path.parent.name, path.name.removesuffix(".tar.gz"))
        for path in build.store.glob("artifacts/*/graphgate/shards/*/*/*.tar.gz")
    )


def sent_by(build: Build, job: str) -> set[str]:
    """Keys of the finished cells whose evidence a job sent."""
    keys = {key for sender, key in parcels(build) if sender == job}
    return {key for key in keys if key != "logs" and not key.endswith(".unfinished")}


def bad_night(folder: Path) -> Build:
    parts = {KILLER: "kill-runner", LOST: "lose-agent-once"}
    return build_in(folder, AGENTS, regressions=(REGRESSION,), parts=parts)


def lost_cells(build: Build) -> set[str]:
    """The killer, and what its shard had still to do."""
    shard = next(s for s in schedule_of(build).shards if KILLER in map(str, s.cells))
    planned = [str(cell.key) for cell in schedule_of(build).part(shard.cells).cells]
    return set(planned[planned.index(KILLER) :])


def story_of(build: Build) -> str:
    """What the judge decided, without what depends on chance: which job ran what where."""
    verdicts = verdicts_of(build)
    told = {
        "decision": verdicts.decision.plain(),
        "statuses": {str(verdict.key): verdict.status for verdict in verdicts.verdicts},
        "findings": {
            str(verdict.key): [finding.why for finding in verdict.findings]
            for verdict in verdicts.verdicts
        },
        "status": build.statuses,
        "steps": build.states,
    }
    return json.dumps(told, sort_keys=True, default=str)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return bad_night(tmp_path_factory.mktemp("night"))


class TestABadNight:
    """Four shards: a sick node, a killed runner, a lost agent, and one regression."""

    def test_the_sick_nodes_shard_is_run_again_on_another_node(self, build: Build) -> None:
        (sick,) = (job for job in build.of(LANE) if job.agent == "sick-1")
        assert sick.exit_status == 20 and sick.retried
        (again,) = (job for job in build.of(LANE) if job.retry and job.index == sick.index)
        assert again.agent != "sick-1" and again.exit_status == 0
        assert (build.store / "paused/sick-1").exists()

    def test_a_lost_agents_shard_goes_on_elsewhere_where_it_was(self, build: Build) -> None:
        (lost,) = (job for job in build.of(LANE) if job.exit_status == -1)
        (again,) = (job for job in build.of(LANE) if job.retry and job.index == lost.index)
        assert again.agent != lost.agent and again.exit_status == 0
        by_job = {
            job: {k for j, k in parcels(build) if j == job} - {"logs"} for job, _ in parcels(build)
        }
        first, second = by_job[f"try0-{lost.id}"], by_job[f"try1-{again.id}"]
        shard = schedule_of(build).of_lane("contract")[lost.index]
        assert first and LOST in second and not first & second
        assert first | second == {str(key) for key in shard.cells}

    def test_a_killed_runner_is_not_retried(self, build: Build) -> None:
        jobs = build.of(LANE)
        (killed,) = (job for job in jobs if job.exit_status == 137)
        assert not killed.retried and killed.retry == 0
        assert len(lost_cells(build)) == 3
        codes = Counter(job.exit_status for job in jobs)
        assert codes == {0: 3, 20: 1, 137: 1, -1: 1}

    def test_the_decision_names_the_regression_before_what_is_missing(self, build: Build) -> None:
        decision = verdicts_of(build).decision
        assert not decision.allow and decision.exit_code == 10
        blockers = {str(blocker.key): blocker.status for blocker in decision.blockers}
        missing = dict.fromkeys(lost_cells(build), Status.MISSING)
        assert blockers == {**missing, REGRESSION: Status.FAIL}

    def test_all_other_cells_pass(self, build: Build) -> None:
        counts = Counter(verdict.status for verdict in verdicts_of(build).verdicts)
        lost = len(lost_cells(build))
        assert counts == {Status.FAIL: 1, Status.MISSING: lost, Status.PASS: 19 - lost}

    def test_the_judge_ran_although_a_shard_failed_and_its_status_is_red(
        self, build: Build
    ) -> None:
        assert build.states[LANE] == "failed" and build.states[JUDGE] == "failed"
        (judge,) = build.of(JUDGE)
        assert judge.exit_status == 10 and not judge.retried
        assert build.statuses == {"graphgate": "failure"}
        assert (build.store / "meta-data/graphgate-decision").read_text() == "10"

    def test_the_annotation_is_an_error_that_names_them(self, build: Build) -> None:
        text = (build.store / "annotations/graphgate.error.md").read_text()
        assert "merge BLOCKED" in text and REGRESSION in text and KILLER in text

    def test_reports_are_among_the_artefacts(self, build: Build) -> None:
        (judge,) = build.of(JUDGE)
        folder = build.store / "artifacts" / judge.id
        assert {"junit.xml", "report/index.html", "annotation.md", "ledger.jsonl"} <= {
            str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
        }

    def test_no_evidence_is_lost(self, build: Build, tmp_path: Path) -> None:
        """Every finished cell's, the sick node's too, and what the killed cell left."""
        sent = parcels(build)
        (sick,) = (job for job in build.of(LANE) if job.agent == "sick-1")
        of_the_sick = {key for job, key in sent if job == f"try0-{sick.id}"}
        shard = schedule_of(build).of_lane("contract")[sick.index]
        assert of_the_sick == {str(key) for key in shard.cells} | {"logs"}
        finished = {str(c.key) for c in schedule_of(build).plan.cells} - lost_cells(build)
        assert finished <= {key for _, key in sent}
        assert f"{KILLER}.unfinished" in {key for _, key in sent}
        downloads = tmp_path / "downloads"
        for path in build.store.glob("artifacts/*/graphgate/shards/*/*/*.tar.gz"):
            target = downloads / path.relative_to(build.store / "artifacts").relative_to(
                path.relative_to(build.store / "artifacts").parts[0]
            )
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
        found = collect(schedule_of(build), downloads, tmp_path / "shards")
        assert found.notes == ()
        cores = list((tmp_path / "shards").glob("*/cells/*/attempt-0/core.1234"))
        assert {path.parent.parent.name for path in cores} == finished

    def test_a_cell_sees_nothing_of_buildkites(self, build: Build, tmp_path: Path) -> None:
        variables = {
            name
            for path in (build.folder / "agents").rglob("judge/shards/*/cells/*/*/variables.txt")
            for name in path.read_text().splitlines()
        }
        assert "PATH" in variables
        assert not [name for name in variables if "BUILDKITE" in name or "TOKEN" in name]


@pytest.mark.nights
def test_a_night_without_a_fault_is_green(tmp_path: Path) -> None:
    build = build_in(tmp_path, AGENTS[1:])
    assert verdicts_of(build).decision.allow
    assert set(build.states.values()) == {"passed"} and len(build.of(LANE)) == 4
    assert build.statuses == {"graphgate": "success"}
    assert list((build.store / "annotations").glob("graphgate.success.md"))


@pytest.mark.nights
def test_ten_nights_decide_the_same(tmp_path: Path) -> None:
    stories = {story_of(bad_night(tmp_path / str(number))) for number in range(10)}
    assert len(stories) == 1
