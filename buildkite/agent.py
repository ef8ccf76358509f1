"""`buildkite-agent`, the program through which a job talks to its build.

Owns: the calls, their repetition and their errors. Must not know: what is sent.

Every text goes as one argument or on standard input; no shell is involved.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from fixtures.cells.cell import Name
from fixtures.errors import ConfigError, InfraError
from fixtures.schema import Record

_TRIES = 3
_PATIENCE = 1800.0
"""Seconds for one call; a core of many GB takes its time."""
_NOTHING = "no artifacts found"


class Job(Record):
    """Which job this process is in. `parallel` and `retry` count from 0."""

    id: Name
    parallel: int = 0
    retry: int = 0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """The job that Buildkite's variables describe.

        Raises:
            ConfigError: they aren't there, or aren't Buildkite's.
        """
        try:
            return cls(
                id=environment["BUILDKITE_JOB_ID"],
                parallel=int(environment.get("BUILDKITE_PARALLEL_JOB") or 0),
                retry=int(environment.get("BUILDKITE_RETRY_COUNT") or 0),
            )
        except (KeyError, ValueError) as error:
            raise ConfigError(
                "this is no job of Buildkite's",
                source="BUILDKITE_JOB_ID, BUILDKITE_PARALLEL_JOB, BUILDKITE_RETRY_COUNT",
                remedy="run this verb in a step of a pipeline that `graphgate pipeline` made",
            ) from error


class Agent:
    """Calls `program`; a call that fails is repeated after `pause` seconds, then twice that.

    All methods raise InfraError where the agent can't be used.
    """

    def __init__(self, program: str = "buildkite-agent", *, pause: float = 2.0) -> None:
        self._program = program
        self._pause = pause

    def upload(self, root: Path, path: str) -> None:
        """Store the file `path`, relative to `root`, as an artefact of that path."""
        self._call("artifact", "upload", path, cwd=root)

    def download(self, query: str, into: Path) -> bool:
        """Fetch every artefact that fits, retried jobs' included. False: there is none."""
        into.mkdir(parents=True, exist_ok=True)
        arguments = ("artifact", "download", "--include-retried-jobs", query, ".")
        return self._call(*arguments, cwd=into, nothing_is_fine=True) is not None

    def annotate(self, text: str, *, style: str, context: str) -> None:
        """Show Markdown on the build's page, in place of an earlier one of this context."""
        self._call("annotate", "--style", style, "--context", context, text=text)

    def set_meta_data(self, key: str, value: str) -> None:
        """Keep a value for the build's later steps."""
        self._call("meta-data", "set", key, text=value)

    def meta_data(self, key: str) -> str:
        """The value that a step of this build has set, or an empty text."""
        return (self._call("meta-data", "get", key, "--default", "") or "").strip()

    def upload_pipeline(self, path: Path) -> None:
        """Add the steps in a YAML file to the build."""
        self._call("pipeline", "upload", str(path))

    def pause(self, minutes: int, note: str) -> None:
        """Let this agent take no job for a while."""
        self._call("pause", "--timeout-in-minutes", str(minutes), "--note", note)

    def _call(
        self,
        *arguments: str,
        cwd: Path | None = None,
        text: str | None = None,
        nothing_is_fine: bool = False,
    ) -> str | None:
        """What the agent prints; None: it found no artefact, where that is fine."""
        complaint = ""
        for number in range(_TRIES):
            time.sleep(self._pause * number)
            done = self._once(arguments, cwd, text)
            if done.returncode == 0:
                return done.stdout
            complaint = done.stderr.strip()
            if nothing_is_fine and _NOTHING in complaint.casefold():
                return None
        last = complaint.splitlines()[-1] if complaint else "it says nothing"
        raise InfraError(f"{self._program} {' '.join(arguments[:2])} failed: {last[:500]}")

    def _once(
        self, arguments: tuple[str, ...], cwd: Path | None, text: str | None
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [self._program, *arguments],
                cwd=cwd,
                input=text,
                stdin=None if text is not None else subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PATIENCE,
                check=False,
                env=os.environ.copy(),
            )
        except OSError as error:
            raise InfraError(f"{self._program} can't be started: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise InfraError(f"{self._program} {arguments[0]} did not end") from error
