"""Recorded reference scores: what a model reached, where and how, on disk as YAML.

Owns: the files of gates/references/ and the choice of a reference that applies. Must not know:
how a score is tested against it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from fixtures.cells.cell import Name
from fixtures.errors import ConfigError
from fixtures.evidence.samples import Sha256, TaskName
from fixtures.schema import Record

Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class Origin(Record):
    """Where a reference comes from. Every field is needed: a figure without it proves nothing."""

    commit: Text
    """What was tested: the identity of the vLLM, as evidence is compared by."""
    vllm: Text
    driver: Text
    """The driver's version, or `none: CPU`."""
    gpu: Text
    checkpoint: Text
    revision: str | None = None
    recorded: date
    cells: tuple[Text, ...] = Field(min_length=1)


class Reference(Record):
    """A score that others are held to: `right` of `n` answers to `questions` questions.

    It applies to answers of the same protocol to the same documents, and to no others. `invalid`
    requests, unparsable or never returned, are not among the `n`. A score is blocked when it lies
    surely below the reference less `margin`.
    """

    task: TaskName
    protocol: Sha256
    documents: Sha256
    questions: int = Field(gt=0)
    right: int = Field(ge=0)
    n: int = Field(gt=0)
    invalid: int = Field(default=0, ge=0)
    margin: float = Field(gt=0, lt=1, allow_inf_nan=False)
    margin_why: Text
    origin: Origin

    @model_validator(mode="after")
    def _is_a_score(self) -> Self:
        if self.right > self.n or self.n + self.invalid < self.questions:
            raise ValueError(
                f"{self.right} right of {self.n} answers, {self.invalid} more invalid, "
                f"to {self.questions} questions"
            )
        return self

    @property
    def score(self) -> float:
        """The share of right answers."""
        return self.right / self.n

    @property
    def floor(self) -> float:
        """The score below which a cell is blocked, if it is surely below."""
        return max(0.0, self.score - self.margin)


class Published(Record):
    """A figure that others state without saying how it was measured: shown, never compared."""

    task: TaskName
    score: float = Field(ge=0, le=1, allow_inf_nan=False)
    state: Literal["healthy", "sick"]
    source: Text
    missing: Text
    """What keeps it from being a reference."""


class References(Record):
    """One file of gates/references/."""

    schema_version: Literal[1]
    model: Name
    references: tuple[Reference, ...] = ()
    published: tuple[Published, ...] = ()

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        keys = [(one.task, one.protocol, one.documents) for one in self.references]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"two references of {key[0]} have one protocol and documents")
        return self

    def of(self, task: str) -> tuple[Reference, ...]:
        """All references of a task, whatever their protocol."""
        return tuple(one for one in self.references if one.task == task)


def read_references(folder: Path) -> tuple[References, ...]:
    """Every file of references in `folder`; none where there is no such folder.

    Raises:
        ConfigError: a file does not fit, or is not named after its model.
    """
    return tuple(_read(path) for path in sorted(folder.glob("*.yaml")))


def _read(path: Path) -> References:
    file = References.read_yaml(path)
    if file.model != path.stem:
        raise ConfigError(
            f"holds references of {file.model!r}",
            source=path,
            key="model",
            remedy="name the file after its model",
        )
    return file


def references_of(model: str, files: Iterable[References]) -> References:
    """The references of a model; an empty file's where it has none."""
    for file in files:
        if file.model == model:
            return file
    return References(schema_version=1, model=model)
