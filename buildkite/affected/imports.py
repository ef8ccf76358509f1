"""What one module imports, read from its text.

Owns: parsing, and its cache by content. Must not know: which modules there are. The text is a
stranger's: nothing in it is run, and whatever can't be parsed is said to be unreadable.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import Field

from fixtures.errors import ConfigError
from fixtures.schema import SCHEMA_VERSION, Record
from fixtures.source.cache import cache_dir, locked
from reports.files import write_whole

LARGEST_MODULE = 2 * 2**20
"""Bytes; the largest module of vLLM 0.33 has a sixth of it."""
_LARGEST_CACHE = 32 * 2**20
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class UnreadableModuleError(Exception):
    """The module can't be parsed; the text says why."""


class Imports(Record):
    """Dotted names that a module imports, each a module's or that of something inside of one.

    `eager` runs with the module, `deferred` stands inside of a function. What is imported for
    type checkers alone is neither.
    """

    eager: frozenset[str]
    deferred: frozenset[str]


def imports_of(source: bytes, module: str, *, is_package: bool) -> Imports:
    """The imports in the text of `module`.

    Raises:
        UnreadableModuleError: it is too large, or no Python that this Python can parse.
    """
    if len(source) > LARGEST_MODULE:
        raise UnreadableModuleError(f"it has {len(source)} bytes")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = str(error).splitlines() or [type(error).__name__]
        raise UnreadableModuleError(f"it can't be parsed: {said[0]}") from error
    package = module if is_package else module.rpartition(".")[0]
    found: dict[bool, set[str]] = {False: set(), True: set()}
    for node, inside in _statements(tree):
        found[inside] |= set(_names(node, package))
    return Imports(eager=frozenset(found[False]), deferred=frozenset(found[True]))


def _statements(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import, and whether it stands inside of a function. No recursion: trees can be deep."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, inside = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, inside
        inside = inside or isinstance(node, _FUNCTIONS)
        waiting += [(child, inside) for child in _children(node)]


def _children(node: ast.AST) -> Iterable[ast.AST]:
    """The nodes below, but for what only type checkers see."""
    if isinstance(node, ast.If):
        test = node.test
        name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
        if name == "TYPE_CHECKING":
            return node.orelse
    return ast.iter_child_nodes(node)


def _names(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = node.module or ""
    if node.level:
        parts = package.split(".")
        above = parts[: len(parts) - node.level + 1]
        base = ".".join([*above, *([base] if base else [])])
    # `from a import b`: b may be a module, or a name that the module a defines.
    yield from (f"{base}.{alias.name}" if alias.name != "*" else base for alias in node.names)


class _Known(Record):
    schema_version: int = SCHEMA_VERSION
    modules: dict[str, Imports] = Field(default_factory=dict)


class ImportCache:
    """Imports by content, kept in the user's cache folder: two trees differ in few files.

    A cache that can't be read is empty, and one that can't be written is not kept.
    """

    def __init__(self) -> None:
        self._path = cache_dir() / "imports.json"
        self._modules = self._stored()
        self._used: dict[str, Imports] = {}
        self._grew = False

    def imports_of(self, source: bytes, module: str, *, is_package: bool) -> Imports:
        """As the function of that name, from the cache where it holds this text."""
        place = f"{module}\0{is_package}\0".encode()
        key = hashlib.sha256(place + source).hexdigest()
        if key not in self._modules:
            self._modules[key] = imports_of(source, module, is_package=is_package)
            self._grew = True
        self._used[key] = self._modules[key]
        return self._modules[key]

    def keep(self) -> None:
        """Store what was learnt, beside what others stored meanwhile."""
        if not self._grew:
            return
        with contextlib.suppress(Exception), locked(self._path):
            text = _Known(modules={**self._stored(), **self._used}).to_json(indent=None)
            if len(text) > _LARGEST_CACHE:
                text = _Known(modules=self._used).to_json(indent=None)
            write_whole(self._path, text.encode())

    def _stored(self) -> dict[str, Imports]:
        path: Path = self._path
        try:
            return dict(_Known.read_json(path).modules)
        except ConfigError:
            return {}
