"""The policy: which rules of judgement can be set, read from `policy.yaml`.

Owns: the settings that gates and the decision read, and their validation.
Must not know: evidence, or how a gate uses a setting.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from fixtures.cells.axes import Tier
from fixtures.cells.cell import Name
from fixtures.errors import ConfigError
from fixtures.schema import Record
from gates.parity.rules import ParityRules
from gates.scores.references import References, read_references
from gates.scores.rules import ScoreRules

DEFAULT_POLICY = Path(__file__).with_name("policy.yaml")
REFERENCES = "references"
"""The folder of recorded scores beside a policy; without one, the shipped folder counts."""


class DriftPolicy(Record):
    """What a changed capture contract asks for before a merge."""

    tiers_due: dict[Name, tuple[Tier, ...]]
    """Sweep -> the tiers that each model of the plan must have been judged at."""

    @model_validator(mode="after")
    def _only_hardware_tiers(self) -> DriftPolicy:
        for sweep, tiers in self.tiers_due.items():
            if Tier.CONTRACT in tiers:
                raise ValueError(f"sweep {sweep}: the contract tier needs no hardware")
        return self


class XidPolicy(Record):
    """NVIDIA's Xid numbers by what they say (https://docs.nvidia.com/deploy/xid-errors)."""

    hardware: frozenset[int]
    """Memory, NVLink, bus or GSP: the node is sick and nothing measured on it counts."""
    application: frozenset[int]
    """A fault of the code that ran."""

    @model_validator(mode="after")
    def _one_meaning_each(self) -> XidPolicy:
        both = sorted(self.hardware & self.application)
        if both:
            raise ValueError(f"Xid {both[0]} is listed as hardware and as application")
        return self


class GpuPolicy(Record):
    """What may be left on a GPU when its lease returns."""

    memory_left_mib: int = Field(default=256, ge=0)
    """Above what was in use before. Drivers keep a little; an engine leaves gigabytes."""


class Policy(Record):
    """All settings of judgement. What is no setting is a rule in the code."""

    schema_version: Literal[1]
    drift: DriftPolicy
    xids: XidPolicy
    gpu: GpuPolicy = GpuPolicy()
    parity: ParityRules = ParityRules()
    scores: ScoreRules = ScoreRules()
    references: tuple[References, ...] = Field(default=(), exclude=True)
    """Recorded scores, which have files of their own."""


def read_policy(path: Path = DEFAULT_POLICY) -> Policy:
    """The policy that the YAML file at `path` holds, with the recorded scores beside it.

    Raises:
        ConfigError: a file is missing, is not YAML, or does not fit its type.
    """
    policy = Policy.read_yaml(path)
    if policy.references:
        raise ConfigError(
            "recorded scores have a folder of their own",
            source=path,
            key=REFERENCES,
            remedy=f"move them into {REFERENCES}/ beside this file",
        )
    own = path.parent / REFERENCES
    folder = own if own.is_dir() else DEFAULT_POLICY.with_name(REFERENCES)
    return policy.model_copy(update={"references": read_references(folder)})
