"""From changed files to what they affect: the table first, then the imports of the tree.

Owns: what each file can affect, erring to more. Must not know: git, plans, how a result is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath

from buildkite.affected.changes import ChangedFile, Changes
from buildkite.affected.graph import PACKAGE, Reach, Tree, module_of
from buildkite.affected.record import Affected, FileEffect
from buildkite.affected.table import Effect, Rule, Table
from fixtures.cells.cell import Source
from fixtures.cells.models import ModelSpec


def select(
    changes: Changes, source: Source, table: Table, models: Mapping[str, ModelSpec]
) -> Affected:
    """What `changes` of the tree that `source` is can affect.

    The tree's imports are only read where the table says that they decide.

    Args:
        changes: paths relative to the tree's root.
        source: the tree with the changes.
        table: whose rules name no other model.
        models: every model by name, in the order in which they are planned.
    """
    found = _Effects(changes, Path(source.python_path), table, models)
    return Affected(
        source=source.identity,
        base=changes.base,
        files=tuple(found.of(file) for file in changes.files),
        every_model=tuple(models),
    )


class _Effects:
    def __init__(
        self, changes: Changes, root: Path, table: Table, models: Mapping[str, ModelSpec]
    ) -> None:
        self._changes, self._root, self._table, self._models = changes, root, table, models

    def of(self, file: ChangedFile) -> FileEffect:
        """The effect of one changed file."""
        rule = self._table.rule(file.path)
        if rule is not None and rule.affects is Effect.NOTHING:
            return FileEffect(path=file.path, models=(), why=rule.why)
        if file.special:
            return self._everything(file, "it is or was a link or a submodule")
        if rule is None:
            return self._everything(file, "no rule says what this path affects")
        if rule.affects is Effect.EVERYTHING:
            return self._everything(file, rule.why, needs_hardware=rule.needs_hardware)
        if rule.affects is Effect.MODELS:
            return self._own(file, rule)
        return self._imported(file)

    def _everything(
        self, file: ChangedFile, why: str, *, needs_hardware: bool = False
    ) -> FileEffect:
        return FileEffect(
            path=file.path, models=tuple(self._models), why=why, needs_hardware=needs_hardware
        )

    def _own(self, file: ChangedFile, rule: Rule) -> FileEffect:
        """A model's own file: that model, and whatever other model imports it."""
        others = self._imported(file)
        hit = {*rule.models, *others.models}
        models = tuple(name for name in self._models if name in hit)
        if set(models) == set(rule.models):
            return FileEffect(path=file.path, models=models, why=rule.why)
        return others.model_copy(update={"models": models})

    def _imported(self, file: ChangedFile) -> FileEffect:
        module = module_of(file.path)
        if module is not None and (why := self._unreadable(module)):
            return self._everything(file, why)
        chains = {name: self._chain(file.path, module, name) for name in self._models}
        hit = tuple(name for name in self._models if chains[name])
        if hit:
            return FileEffect(path=file.path, models=hit, why="imported by", chain=chains[hit[0]])
        opaque = next((name for reach in self._reach.values() if (name := reach.opaque)), None)
        if opaque is not None:
            why = f"what {opaque} imports is not known: {self._tree.opaque[opaque]}"
            return self._everything(file, why)
        return FileEffect(
            path=file.path, models=(), why="nothing that captures graphs or runs a model imports it"
        )

    def _unreadable(self, module: str) -> str | None:
        """Why nothing is known about a changed module that is there, or None."""
        self._tree.imports(module)
        return self._tree.opaque.get(module)

    def _chain(self, path: str, module: str | None, model: str) -> tuple[str, ...]:
        """The imports that lead from the model to the file, or for data to its package."""
        reach = self._reach[model]
        if module is not None:
            return reach.chain(module)
        package = self._package(path)
        reader = reach.inside(package) if package else None
        return reach.chain(reader) if reader else ()

    def _package(self, path: str) -> str | None:
        """The nearest package that holds a file which is no module; data is read by its package."""
        for folder in PurePosixPath(path).parents:
            if any((self._root / folder).glob("*.py")):
                return ".".join(folder.parts)
        return PACKAGE

    @cached_property
    def _tree(self) -> Tree:
        names = (module_of(file.path) for file in self._changes.files)
        return Tree(self._root, removed=[name for name in names if name])

    @cached_property
    def _reach(self) -> dict[str, Reach]:
        reach = {
            name: Reach(self._tree, self._table, [*_roots(spec), *self._table.capture])
            for name, spec in self._models.items()
        }
        self._tree.keep()
        return reach


def _roots(spec: ModelSpec) -> Iterable[str]:
    """The modules of the classes and metadata builders that the model's file names."""
    section = spec.contract
    if section is None:
        return ()
    places = [*section.classes, *(path for b in section.backends for path in b.builders)]
    return (place.partition(":")[0] for place in places)
