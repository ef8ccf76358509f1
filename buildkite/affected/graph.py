"""The import graph of a tree of vLLM, as far as it is reached from some modules.

Owns: which modules there are, and the shortest chain of imports to each that is reached. Must
not know: what changed. Links are not followed; a module that can't be read is opaque: whatever
it imports is not known.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from buildkite.affected.imports import ImportCache, Imports, UnreadableModuleError
from buildkite.affected.table import Table

PACKAGE = "vllm"
_INIT = "__init__.py"
_NOTHING = Imports(eager=frozenset(), deferred=frozenset())


def module_of(path: str) -> str | None:
    """The dotted name of the Python file at `path`; None where it can't be a module of vLLM."""
    parts = PurePosixPath(path)
    if parts.parts[:1] != (PACKAGE,) or parts.suffix != ".py":
        return None
    names = parts.parent.parts if parts.name == _INIT else parts.with_suffix("").parts
    return ".".join(names) if all(name.isidentifier() for name in names) else None


class Tree:
    """The modules of the tree at `root`.

    Args:
        root: the folder that holds the package.
        removed: modules that a change took away. They stay in the graph, so that what still
            imports one is affected.
    """

    def __init__(self, root: Path, removed: Iterable[str] = ()) -> None:
        self._root = root
        self._files: dict[str, Path] = {}
        self._cache = ImportCache()
        self.opaque: dict[str, str] = {}
        """Why a module can't be read, for those that were tried or are links."""
        for path in _walk(root):
            self._add(path)
        self._names = {*self._files, *self.opaque, *removed}

    def _add(self, path: PurePosixPath) -> None:
        name = module_of(str(path)) or ".".join(path.parts)
        where = self._root / path
        if where.is_symlink():
            self.opaque[name] = "it is a link"
        elif path.suffix == ".py" and (name not in self._files or path.name == _INIT):
            self._files[name] = where

    def named(self, dotted: str) -> str | None:
        """The module that `dotted` names, or the nearest that holds it; None outside of vLLM."""
        while dotted and dotted not in self._names:
            dotted = dotted.rpartition(".")[0]
        return dotted or None

    def imports(self, module: str) -> Imports:
        """What `module` imports; nothing where it is opaque or was removed."""
        path = self._files.get(module)
        if path is None or module in self.opaque:
            return _NOTHING
        try:
            return self._cache.imports_of(path.read_bytes(), module, is_package=path.name == _INIT)
        except UnreadableModuleError as error:
            self.opaque[module] = str(error)
        except OSError as error:
            self.opaque[module] = f"it can't be read: {error.strerror}"
        return _NOTHING

    def keep(self) -> None:
        """Store what was learnt about these modules for the next tree."""
        self._cache.keep()


def _walk(root: Path) -> Iterator[PurePosixPath]:
    """Python files, and links of any kind, below the package. No link is followed."""
    for folder, folders, names in os.walk(root / PACKAGE, followlinks=False):
        here = Path(folder)
        folders.sort()
        linked = [name for name in (*folders, *names) if (here / name).is_symlink()]
        for name in (*linked, *sorted(set(names) - set(linked))):
            if name in linked or name.endswith(".py"):
                yield PurePosixPath((here / name).relative_to(root).as_posix())


class Reach:
    """All modules that importing `roots` can run.

    Args:
        tree: the modules.
        table: which deferred imports are followed.
        roots: where to begin; one that the tree lacks is left out.
    """

    def __init__(self, tree: Tree, table: Table, roots: Iterable[str]) -> None:
        self._tree, self._table = tree, table
        found = [root for root in dict.fromkeys(roots) if tree.named(root) == root]
        self._from: dict[str, str | None] = dict.fromkeys(found)
        waiting = deque(found)
        while waiting:
            module = waiting.popleft()
            for target in self._targets(module):
                if target not in self._from:
                    self._from[target] = module
                    waiting.append(target)

    def chain(self, module: str) -> tuple[str, ...]:
        """The imports that lead to `module`, a root first; empty where it isn't reached."""
        if module not in self._from:
            return ()
        steps: list[str] = []
        at: str | None = module
        while at is not None:
            steps.append(at)
            at = self._from[at]
        return tuple(reversed(steps))

    def inside(self, package: str) -> str | None:
        """A reached module that is `package` or lies in it, or None."""
        return next((name for name in self._from if _lies_in(name, package)), None)

    @property
    def opaque(self) -> str | None:
        """A reached module whose imports are not known, or None."""
        return next((name for name in self._from if name in self._tree.opaque), None)

    def _targets(self, module: str) -> Iterator[str]:
        imports = self._tree.imports(module)
        named = [module.rpartition(".")[0], *sorted(imports.eager)]
        yield from (name for dotted in named if (name := self._tree.named(dotted)))
        if any(_lies_in(module, place) for place in self._table.deferred_from):
            for dotted in sorted(imports.deferred):
                target = self._tree.named(dotted)
                if target and self._owner(target) in (None, self._owner(module)):
                    yield target

    def _owner(self, module: str) -> str | None:
        """The model's own package or module that `module` lies in, or None."""
        for package in self._table.packages_of_models:
            if module.startswith(f"{package}."):
                return f"{package}.{module[len(package) + 1 :].partition('.')[0]}"
        return None


def _lies_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
