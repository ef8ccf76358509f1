"""Which models a change can affect, and why each.

Owns: the record, and which cells of a plan it asks for. Must not know: how it came about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from buildkite.selection import SelectedCell, Selection, selected
from fixtures.cells.cell import Name, Omission, Plan
from fixtures.errors import ConfigError
from fixtures.schema import SCHEMA_VERSION, Record
from gates.drift import Drift


class FileEffect(Record):
    """What one changed file can affect, and why."""

    path: str
    models: tuple[Name, ...]
    why: str
    chain: tuple[str, ...] = ()
    """Imports from a root of the first model to the file's module, where they are the reason."""
    needs_hardware: bool = False

    @property
    def told(self) -> str:
        """Why, in words."""
        return f"{self.why} {' > '.join(self.chain)}" if self.chain else self.why


class Affected(Record):
    """What all changed files together can affect.

    `source` is the identity of the tree; `base` the commit that it was compared with.
    """

    schema_version: int = SCHEMA_VERSION
    source: str
    base: str | None
    files: tuple[FileEffect, ...]
    every_model: tuple[Name, ...]
    """All models that there are, in the order in which they are planned."""
    drift: tuple[str, ...] = ()
    """What changed in the capture contract, in words: it asks for every model."""

    @property
    def models(self) -> tuple[str, ...]:
        """The models that something affects."""
        if self.drift:
            return self.every_model
        hit = {name for file in self.files for name in file.models}
        return tuple(name for name in self.every_model if name in hit)

    @property
    def hardware_due(self) -> tuple[str, ...]:
        """The models that a GPU must judge: the contract drifts, or can't show such a change."""
        if self.drift:
            return self.every_model
        hit = {name for file in self.files if file.needs_hardware for name in file.models}
        return tuple(name for name in self.every_model if name in hit)

    @property
    def harmless(self) -> tuple[FileEffect, ...]:
        """The changed files that affect no model."""
        return tuple(file for file in self.files if not file.models)

    @property
    def why(self) -> str:
        """The whole in a sentence."""
        since = f" since {self.base[:12]}" if self.base else ""
        changed = f"{_files(len(self.files))} changed{since}"
        if not self.files:
            return f"nothing changed{since}"
        if not self.models:
            return f"{changed}; none can affect a model: {self._kinds()}"
        if self.drift:
            return f"{changed}; the capture contract drifts, which asks for every model"
        return f"{changed}, which can affect {', '.join(self.models)}"

    def reason(self, model: str) -> str:
        """Why `model` is affected, in a line: the contract's drift, or the most telling file."""
        hits = [file for file in self.files if model in file.models]
        if not hits:
            return f"the capture contract changed: {self.drift[0]}"
        first = min(hits, key=lambda file: (bool(file.chain), len(file.models), file.path))
        more = f" (and {len(hits) - 1} more)" if len(hits) > 1 else ""
        return f"{first.path}: {first.told}{more}"

    def with_drift(self, changes: Iterable[str]) -> Affected:
        """The same after the capture contracts were compared."""
        return self.model_copy(update={"drift": tuple(changes)})

    def selection(self, plan: Plan, drift: Drift | None = None) -> Selection:
        """The cells of `plan` to run, each with its reason; `drift` where it was compared.

        Raises:
            ConfigError: the plan is about another tree.
        """
        if plan.source.identity != self.source:
            raise ConfigError(
                f"is about {plan.source.identity}, the changes about {self.source}",
                source="--plan",
                key="source",
                remedy="plan the tree that is compared",
            )
        told = {name: self.reason(name) for name in self.models}
        cells = tuple(
            SelectedCell(key=cell.key, why=told[cell.key.model])
            for cell in plan.cells
            if cell.key.model in told
        )
        planned = sorted({(cell.key.tier, cell.key.model) for cell in plan.cells})
        return Selection(
            why=self.why,
            cells=cells,
            left_out=tuple(
                Omission(tier=tier, model=name, reason="no changed file can affect it")
                for tier, name in planned
                if name not in self.models
            ),
            hardware_tiers_due=self.hardware_due,
            drift=drift,
        )

    def narrowed(self, plan: Plan) -> Plan:
        """`plan` without the models that no change can affect, which become omissions."""
        return selected(plan, self.selection(plan))

    def _kinds(self) -> str:
        counts = Counter(file.why for file in self.files)
        return "; ".join(f"{why} ({count})" for why, count in counts.most_common())


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
