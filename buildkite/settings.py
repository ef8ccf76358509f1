"""The settings file: what differs between two sites that run GraphGate on Buildkite.

Owns: the types of `settings.yaml` and their checks. Must not know: plans, and how steps look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from fixtures.cells.axes import Tier
from fixtures.cells.cell import Name, Omission
from fixtures.cells.machine import Gpu, MachineProbe
from fixtures.cells.models import ModelSpec
from fixtures.cells.sweeps import Catalog, known
from fixtures.errors import ConfigError
from fixtures.schema import SCHEMA_VERSION, Record
from gates.verdict import ExitCode

DEFAULT_SETTINGS = Path(__file__).with_name("settings.yaml")

VERDICT_CODES = frozenset(ExitCode) - {ExitCode.ALLOW, ExitCode.INFRA}
"""Exit codes that say something about what is tested; a retry would only hide them."""

_UNWRITABLE = re.compile(r"(?<!\\)(?:\\\\)*\\\$")


def _is_writable(text: str) -> str:
    """`\\$` has no spelling that `buildkite-agent pipeline upload` would hand on unchanged."""
    if _UNWRITABLE.search(text):
        raise ValueError("a backslash before a dollar sign: write it with single quotes instead")
    return text


Text = Annotated[str, StringConstraints(min_length=1), AfterValidator(_is_writable)]
"""A trusted text that ends up in the pipeline: a line of shell, a queue, a path."""

Variables = dict[Annotated[str, StringConstraints(pattern="^[A-Za-z_][A-Za-z0-9_]*$")], Text]

Plugin = dict[str, Any]
"""A plugin as Buildkite writes it: one key, `name#version`, and its settings."""

SignalReason = Literal[
    "none",
    "agent_incompatible",
    "agent_refused",
    "agent_stop",
    "cancel",
    "process_run_error",
    "signature_rejected",
    "stack_error",
]


class Retry(Record):
    """A rule of `retry.automatic`: a job that ends like this is tried again, `limit` times."""

    exit_status: int | None = None
    signal: str | None = None
    signal_reason: SignalReason | None = None
    limit: int = Field(ge=0, le=10)

    @model_validator(mode="after")
    def _retries_no_verdict(self) -> Self:
        if self.exit_status in VERDICT_CODES:
            raise ValueError(f"{self.exit_status} is a verdict, and verdicts are never retried")
        if self.exit_status is None and self.signal is None and self.signal_reason is None:
            raise ValueError("this rule fits every end: name an exit_status or a signal_reason")
        return self


def _one_key_each(plugins: tuple[Plugin, ...]) -> tuple[Plugin, ...]:
    for plugin in plugins:
        if len(plugin) != 1:
            raise ValueError("a plugin is one key, name#version, with its settings below")
    return plugins


Plugins = Annotated[tuple[Plugin, ...], AfterValidator(_one_key_each)]


class Place(Record):
    """Where a step runs and how long it may take. `device` is its name in vLLM's generator."""

    queue: Text
    device: Text | None = None
    agents: dict[str, Text] = Field(default_factory=dict)
    """Agent tags beside the queue."""
    plugins: Plugins = ()
    env: Variables = Field(default_factory=dict)
    timeout_minutes: int = Field(ge=1)
    retry: tuple[Retry, ...] | None = None
    """None: the settings' own rules."""


class Lane(Place):
    """A place for the cells of one tier that need up to `gpus` GPUs, spread over shards.

    There are as many shards as make each last `target_minutes`, `jobs` cells at a time, but
    not more than `most_shards`. `concurrency` counts the group's jobs over all builds.
    """

    tier: Tier
    gpus: int = Field(default=0, ge=0)
    target_minutes: float = Field(gt=0)
    most_shards: int = Field(ge=1, le=500)
    fallback_seconds: float = Field(gt=0)
    jobs: int | None = Field(default=None, ge=1)
    concurrency: int | None = Field(default=None, ge=1)
    concurrency_group: Text | None = None

    @model_validator(mode="after")
    def _group_has_size(self) -> Self:
        if (self.concurrency is None) != (self.concurrency_group is None):
            raise ValueError("concurrency and concurrency_group need each other")
        return self


class Judge(Place):
    """The step that decides. `notify` is told of its result; a commit status shows it."""

    notify: tuple[dict[str, Any], ...] = ()


class LeftOut(Record):
    """A model's tier that the site can't run, and why, for the reader of a report."""

    tier: Tier
    model: Name
    reason: str = Field(min_length=1)

    def as_omission(self) -> Omission:
        """The same in the plan's words."""
        return Omission(tier=self.tier, model=self.model, reason=self.reason)


class PipelineKind(Record):
    """One pipeline: which sweep and tiers, and who is told of the build."""

    sweep: Name
    tiers: tuple[Tier, ...] = Field(min_length=1)
    left_out: tuple[LeftOut, ...] = ()
    pause_minutes: int = Field(ge=0, le=10_080)
    notify: tuple[dict[str, Any], ...] = ()


class Fleet(Record):
    """A node of the lanes with GPUs, for planning on a machine that is none."""

    gpu: str
    capability: tuple[int, int]
    """Compute capability, as (major, minor)."""
    memory_gib: float = Field(gt=0)
    gpus: int = Field(ge=1)
    compiled: bool = False
    """Whether the vLLM under test is installed there with its compiled extensions, also where
    the plan names a release or a checkout. A shard looks before it runs (build_of)."""

    def as_machine(self) -> MachineProbe:
        """The probe that such a node would give."""
        card = Gpu(
            uuid="GPU-of-the-fleet",
            name=self.gpu,
            memory_gib=self.memory_gib,
            capability=self.capability,
        )
        return MachineProbe(gpus=(card,) * self.gpus)


class ChangedTree(Record):
    """A pull request's vLLM: its checkout, and the branch of `remote` that it goes into.

    `base_variable` is the variable of a build that names the branch. The text in it is a
    stranger's: it is read by `graphgate affected`, and no shell sees it.
    """

    checkout: Text
    base_variable: Annotated[str, StringConstraints(pattern="^[A-Z_][A-Z0-9_]*$")]
    remote: Annotated[str, StringConstraints(pattern=r"^[\w.][\w.-]*$")] = "origin"


class Checkpoint(Record):
    """Weights: a folder on the nodes or a hub id, and which state of it."""

    checkpoint: Text
    revision: Text | None = None


class Settings(Record):
    """The whole file."""

    schema_version: int = SCHEMA_VERSION
    name: Name
    graphgate: tuple[Text, ...] = Field(min_length=1)
    setup: tuple[Text, ...] = ()
    env: Variables = Field(default_factory=dict)
    images: dict[Name, Text] = Field(default_factory=dict)
    plugins: dict[Name, Plugins] = Field(default_factory=dict)
    """Named for use through anchors; nothing reads them from here."""
    fleet: Fleet
    changed_tree: ChangedTree | None = None
    checkpoints: dict[Name, Checkpoint] = Field(default_factory=dict)
    history: Text | None = None
    retry: tuple[Retry, ...]
    soft_fail: tuple[int, ...] = ()
    lanes: dict[Name, Lane] = Field(min_length=1)
    plan: Place
    judge: Judge
    pipelines: dict[Literal["nightly", "pr"], PipelineKind] = Field(min_length=1)
    source_file_dependencies: tuple[Text, ...] = ()

    @field_validator("soft_fail")
    @classmethod
    def _softens_no_verdict(cls, codes: tuple[int, ...]) -> tuple[int, ...]:
        verdicts = sorted(VERDICT_CODES & set(codes))
        if verdicts:
            raise ValueError(f"{verdicts[0]} is a verdict, and verdicts never fail softly")
        return codes

    @model_validator(mode="after")
    def _every_tier_has_a_lane(self) -> Self:
        have = {lane.tier for lane in self.lanes.values()}
        for name, kind in self.pipelines.items():
            for tier in kind.tiers:
                if tier not in have:
                    raise ValueError(f"pipelines.{name} asks for {tier}, which has no lane")
        return self

    @model_validator(mode="after")
    def _pull_requests_have_a_tree(self) -> Self:
        if "pr" in self.pipelines and self.changed_tree is None:
            raise ValueError("pipelines.pr needs changed_tree: where the checkout lies")
        return self

    def catalog_of(self, pipeline: str, catalog: Catalog) -> Catalog:
        """`catalog` with these checkpoints, and without what the pipeline leaves out.

        Raises:
            ConfigError: a model that is named is not there or does not run on the tier.
        """
        models = dict(catalog.models)
        for name, given in self.checkpoints.items():
            spec = _with_tier(models, name, Tier.SCORE, f"checkpoints.{name}")
            if spec.score is not None:
                score = spec.score.model_copy(update=given.model_dump(exclude_none=True))
                models[name] = spec.model_copy(update={"score": score})
        for one in self.pipeline(pipeline).left_out:
            spec = _with_tier(models, one.model, one.tier, f"pipelines.{pipeline}.left_out")
            models[one.model] = spec.model_copy(update={one.tier.value: None})
        return catalog.model_copy(update={"models": models})

    def pipeline(self, name: str) -> PipelineKind:
        """The pipeline of that name.

        Raises:
            ConfigError: there is none.
        """
        names: Iterable[str] = self.pipelines
        known(name, names, "pipeline", "pipelines")
        return {str(key): kind for key, kind in self.pipelines.items()}[name]


def _with_tier(models: Mapping[str, ModelSpec], name: str, tier: Tier, key: str) -> ModelSpec:
    spec = models[known(name, models, "model", key)]
    if not spec.has(tier):
        raise ConfigError(
            f"{name} has no section for the {tier} tier",
            source="the pipeline's settings",
            key=key,
            remedy="remove this, or add the section to the model's file",
        )
    return spec


def read_settings(path: Path = DEFAULT_SETTINGS) -> Settings:
    """The settings that the file holds.

    Raises:
        ConfigError: it is missing or not valid; the message names the key.
    """
    return Settings.read_yaml(path)
