"""The table of what a changed path can affect, as data: core.yaml.

Owns: the table's types and which rule fits a path. Must not know: trees, git, imports.
"""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from fixtures.cells.cell import Name
from fixtures.cells.sweeps import known
from fixtures.schema import Record

DEFAULT_TABLE = Path(__file__).with_name("core.yaml")

Pattern = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^/]")]
Module = Annotated[str, StringConstraints(pattern=r"^\w+(\.\w+)*$")]


class Effect(StrEnum):
    """How far a changed path reaches."""

    NOTHING = "nothing"
    MODELS = "models"
    IMPORTS = "imports"
    EVERYTHING = "everything"


class Rule(Record):
    """What a change of these paths affects. A path that ends in `/` is a folder."""

    paths: tuple[Pattern, ...] = Field(min_length=1)
    affects: Effect
    models: tuple[Name, ...] = ()
    needs_hardware: bool = False
    why: str = Field(min_length=1)

    @model_validator(mode="after")
    def _names_models_or_not(self) -> Self:
        if bool(self.models) != (self.affects is Effect.MODELS):
            raise ValueError("`models` goes with `affects: models`, and with nothing else")
        return self

    def fits(self, path: str) -> bool:
        """Whether this rule is about `path`, which is relative to the tree's root."""
        return any(
            path.startswith(pattern) if pattern.endswith("/") else fnmatchcase(path, pattern)
            for pattern in self.paths
        )


class Table(Record):
    """The file core.yaml."""

    schema_version: Literal[1]
    rules: tuple[Rule, ...]
    capture: tuple[Module, ...]
    """Modules from which every model's imports are followed too."""
    deferred_from: tuple[Module, ...]
    """Packages and modules whose imports inside of functions are followed."""
    packages_of_models: tuple[Module, ...]
    """Packages below which a package or module per model lies."""

    def rule(self, path: str) -> Rule | None:
        """The first rule that fits `path`, or None."""
        return next((rule for rule in self.rules if rule.fits(path)), None)


def read_table(models: tuple[str, ...], path: Path = DEFAULT_TABLE) -> Table:
    """The table in the YAML file at `path`.

    Args:
        models: every name that a rule may use.
        path: the file.

    Raises:
        ConfigError: the file is missing, is not valid, or names a model that there isn't.
    """
    table = Table.read_yaml(path)
    for number, rule in enumerate(table.rules):
        for name in rule.models:
            known(name, models, "model", f"{path}: rules.{number}.models")
    return table
