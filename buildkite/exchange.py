"""The schedule on its way from the step that plans to those that go by it.

Owns: its name among the artefacts, and that what is read is what was planned. Must not know:
what it says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from buildkite.agent import Agent
from buildkite.shards import Schedule, digest_of
from buildkite.steps import DIGEST_VARIABLE
from fixtures.errors import ConfigError, InfraError

_META_DATA = "graphgate-schedule"
_DIGEST = re.compile(r"^[0-9a-f]{64}$")


def publish(schedule: Schedule, agent: Agent) -> str:
    """Store the schedule in the build, and say its digest."""
    data = schedule.to_json(indent=None).encode()
    digest = digest_of(data)
    with TemporaryDirectory() as root:
        path = Path(root, _path(digest))
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        agent.upload(Path(root), _path(digest))
    agent.set_meta_data(_META_DATA, digest)
    return digest


def fetch(agent: Agent, environment: Mapping[str, str]) -> Schedule:
    """The schedule whose digest the step's environment states, else the build's meta-data.

    A generated pipeline states it, and no later step can change what a pipeline says.

    Raises:
        ConfigError: no schedule was published in this build.
        InfraError: it can't be fetched, or is another file than was published.
    """
    digest = environment.get(DIGEST_VARIABLE) or agent.meta_data(_META_DATA)
    if not _DIGEST.match(digest):
        raise ConfigError(
            "this build has no schedule",
            source=DIGEST_VARIABLE,
            remedy="let a step run `graphgate pipeline NAME --upload` first",
        )
    with TemporaryDirectory() as root:
        path = Path(root, _path(digest))
        if not agent.download(_path(digest), Path(root)) or not path.is_file():
            raise InfraError(f"the build's artefact {_path(digest)} is not there")
        if digest_of(path.read_bytes()) != digest:
            raise InfraError(f"the build's artefact {_path(digest)} is another file")
        return Schedule.read_json(path)


def _path(digest: str) -> str:
    return f"graphgate-schedule/{digest}.json"
