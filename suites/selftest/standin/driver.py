"""A small Buildkite on one machine: it runs the steps of a pipeline as the real one would.

Owns: dependencies, parallel jobs, agents and their queues, retries, soft failures, concurrency
groups, artifact_paths and commit statuses. Must not know: what a step does.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from suites.selftest.standin.agent import RETRIED_MARK, STORE_VARIABLE
from suites.selftest.standin.interpolation import interpolated

Step = dict[str, Any]
_LOST = -1


@dataclass
class JobRecord:
    """A job that ran: where, how it ended, and whether another took its place."""

    id: str
    step: str
    index: int
    retry: int
    agent: str
    exit_status: int = 0
    retried: bool = False
    log: str = ""


@dataclass
class Build:
    """One build: its memory, its agents by queue, and what became of its steps.

    Args:
        folder: working directories and the stand-in agent's store.
        programs: a folder of programs that jobs find first.
        agents: names of agents by queue; one runs a job at a time, the first free one is taken.
        environment: added to every job's.
    """

    folder: Path
    programs: Path
    agents: dict[str, list[str]]
    environment: dict[str, str] = field(default_factory=dict)
    jobs: list[JobRecord] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    """By step: passed, soft_failed, failed, or not_run (a dependency failed)."""
    statuses: dict[str, str] = field(default_factory=dict)
    """Commit statuses by context: success or failure."""

    def __post_init__(self) -> None:
        (self.store / "artifacts").mkdir(parents=True)
        self._busy: set[str] = set()
        self._lost: set[str] = set()
        self._groups: dict[str, int] = {}
        self._free = threading.Condition()
        self._numbers = itertools.count(1)

    @property
    def store(self) -> Path:
        """What the stand-in agent keeps of this build."""
        return self.folder / "store"

    def of(self, step: str) -> list[JobRecord]:
        """The jobs of a step, in the order in which they began."""
        return sorted((job for job in self.jobs if job.step == step), key=lambda job: job.id)

    def run(self, pipeline: Step) -> None:
        """Run the steps of a pipeline, then those that they uploaded, until none is left."""
        seen = 0
        waiting = [pipeline]
        while waiting:
            self._run_steps(waiting.pop())
            uploads = sorted((self.store / "uploads").glob("*.yml"))
            waiting += [yaml.safe_load(path.read_text()) for path in uploads[seen:]]
            seen = len(uploads)

    def _run_steps(self, raw: Step) -> None:
        pipeline = interpolated(raw, os.environ)
        variables = {name: str(value) for name, value in pipeline.get("env", {}).items()}
        left = list(pipeline["steps"])
        with ThreadPoolExecutor(max_workers=16) as pool:
            while left:
                ready = [step for step in left if self._is_ready(step, left)]
                assert ready, f"steps wait for each other: {[step['key'] for step in left]}"
                list(pool.map(lambda step: self._run_step(step, variables), ready))
                left = [step for step in left if step not in ready]

    @staticmethod
    def _is_ready(step: Step, left: list[Step]) -> bool:
        pending = {other["key"] for other in left}
        return not pending & set(step.get("depends_on", ()))

    def _run_step(self, step: Step, variables: dict[str, str]) -> None:
        key = step["key"]
        before = [self.states[other] for other in step.get("depends_on", ())]
        if set(before) & {"failed", "not_run"} and not step.get("allow_dependency_failure"):
            self.states[key] = "not_run"
            return
        count = int(step.get("parallelism", 1))
        with ThreadPoolExecutor(max_workers=count) as pool:
            # Agents are given to jobs in their order, as Buildkite does.
            running = [
                pool.submit(self._run_to_the_end, step, n, variables, self._acquire(step))
                for n in range(count)
            ]
            ends = [job.result() for job in running]
        soft = {rule["exit_status"] for rule in step.get("soft_fail") or ()}
        hard = [code for code in ends if code and code not in soft]
        self.states[key] = "failed" if hard else "soft_failed" if any(ends) else "passed"
        for notice in step.get("notify", ()):
            if "github_commit_status" in notice:
                context = notice["github_commit_status"]["context"]
                self.statuses[context] = "failure" if hard else "success"

    def _run_to_the_end(self, step: Step, index: int, variables: dict[str, str], agent: str) -> int:
        """The exit status of the last job, after all retries that the rules allow."""
        for retry in itertools.count():
            job = self._run_job(step, index, retry, variables, agent)
            if not _is_retried(step, job.exit_status, retry):
                return job.exit_status
            job.retried = True
            mark = self.store / "artifacts" / job.id / RETRIED_MARK
            mark.parent.mkdir(exist_ok=True)
            mark.touch()
            agent = self._acquire(step)
        raise AssertionError("unreachable")

    def _run_job(
        self, step: Step, index: int, retry: int, variables: dict[str, str], agent: str
    ) -> JobRecord:
        try:
            job = JobRecord(f"job-{next(self._numbers):04}", step["key"], index, retry, agent)
            self.jobs.append(job)
            self._execute(step, job, variables)
            return job
        finally:
            self._release(step, agent)

    def _execute(self, step: Step, job: JobRecord, variables: dict[str, str]) -> None:
        home = self.folder / "agents" / job.agent
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            **self.environment,
            **variables,
            **{name: str(value) for name, value in step.get("env", {}).items()},
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "TMPDIR": str(home / "tmp"),
            STORE_VARIABLE: str(self.store),
            "BUILDKITE_JOB_ID": job.id,
            "BUILDKITE_RETRY_COUNT": str(job.retry),
            "BUILDKITE_PARALLEL_JOB": str(job.index),
            "BUILDKITE_PARALLEL_JOB_COUNT": str(step.get("parallelism", 1)),
            "BUILDKITE_AGENT_NAME": job.agent,
            "BUILDKITE_AGENT_ACCESS_TOKEN": "the agent's own secret",
        }
        done = subprocess.run(
            ["bash", "-e", "-c", "\n".join(step["commands"])],  # noqa: S607 - as an agent does
            cwd=home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=60 * step.get("timeout_in_minutes", 10),
        )
        job.log = done.stdout
        job.exit_status = done.returncode if done.returncode >= 0 else _LOST
        if job.exit_status == _LOST:
            self._lost.add(job.agent)
        else:
            self._upload(step, job, home)

    def _upload(self, step: Step, job: JobRecord, home: Path) -> None:
        """What Buildkite's own artifact_paths finds after the command, however that ended."""
        for pattern in step.get("artifact_paths", ()):
            for path in (path for path in home.glob(pattern) if path.is_file()):
                target = self.store / "artifacts" / job.id / path.relative_to(home)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())

    def _acquire(self, step: Step) -> str:
        queue, group = step["agents"]["queue"], step.get("concurrency_group")
        with self._free:
            while True:
                paused = {path.name for path in (self.store / "paused").glob("*")}
                out = self._busy | self._lost | paused
                free = [agent for agent in self.agents[queue] if agent not in out]
                full = group and self._groups.get(group, 0) >= step["concurrency"]
                if free and not full:
                    self._busy.add(free[0])
                    if group:
                        self._groups[group] = self._groups.get(group, 0) + 1
                    return free[0]
                assert self._free.wait(120), f"no agent of {queue} became free"

    def _release(self, step: Step, agent: str) -> None:
        with self._free:
            self._busy.remove(agent)
            if group := step.get("concurrency_group"):
                self._groups[group] -= 1
            self._free.notify_all()


def _is_retried(step: Step, exit_status: int, retry: int) -> bool:
    rules = step.get("retry", {}).get("automatic", ())
    fitting = [rule for rule in rules if rule.get("exit_status") == exit_status]
    return bool(fitting) and retry < fitting[0]["limit"]
