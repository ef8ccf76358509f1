"""Which files a pull request changes: asked of git, or listed by somebody who knows.

Owns: the merge base and the list. Must not know: what a change means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from fixtures.errors import ConfigError, InfraError
from fixtures.schema import Record
from fixtures.source.git import GitError, commit_of, git

_REGULAR = re.compile("^100(644|755)$")
_ABSENT = "000000"
_BASE = "refs/graphgate/base"
"""Where a fetched target branch is kept: no branch of the user's moves."""


class ChangedFile(Record):
    """A path below the tree's root that was added, changed or removed."""

    path: str
    special: bool = False
    """It is or was a link, a submodule or another thing that is no regular file."""


class Changes(Record):
    """All changed files, and the commit that they are changes of (None: they were listed)."""

    base: str | None
    files: tuple[ChangedFile, ...]


def changes_since(root: Path, revision: str, ours: Iterable[Path] = ()) -> Changes:
    """What the tree at `root`, as it lies there, changes since its merge base with `revision`.

    Edits that nobody committed and new files that git doesn't ignore are changes too, but for
    what lies at or in the paths `ours`: our own output.

    Raises:
        ConfigError: this is no repository's root, or git knows no such revision or merge base.
    """
    try:
        _require_root(root)
        base = git(root, "merge-base", commit_of(root, revision), "HEAD")
        raw = git(root, "diff", "--raw", "-z", *_PLAIN, base, "--")
        new = git(root, "ls-files", "--others", "--exclude-standard", "-z")
    except GitError as error:
        raise ConfigError(
            f"git can't compare {root} with {revision!r}: {error}",
            source="--base",
            remedy="name a commit, branch or tag of this checkout; a shallow clone needs "
            "`git fetch --unshallow`",
        ) from error
    files = {file.path: file for file in (*_new(root, new, ours), *_tracked(raw))}
    return Changes(base=base, files=tuple(files[path] for path in sorted(files)))


def fetched_branch(root: Path, remote: str, branch: str) -> str:
    """The commit that `branch` of `remote` is at now, in the repository at `root`.

    Args:
        root: the repository.
        remote: a name that the settings or a person gave.
        branch: a text of the build's. As part of a refspec it can be no option.

    Raises:
        ConfigError: this is no name of a branch.
        InfraError: the branch can't be fetched.
    """
    name = f"refs/heads/{branch}"
    try:
        git(root, "check-ref-format", name)
    except GitError as error:
        raise ConfigError(
            f"{branch[:200]!r} is no name of a branch",
            source="--base-variable",
            remedy="name the variable that holds the target branch of the pull request",
        ) from error
    try:
        options = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
        git(root, "fetch", *options, "--", remote, f"+{name}:{_BASE}")
        return commit_of(root, _BASE)
    except GitError as error:
        raise InfraError(f"{root}: {name} can't be fetched from {remote}: {error}") from error


_PLAIN = ("--no-renames", "--no-ext-diff", "--no-textconv", "--no-abbrev")


def listed_changes(text: str) -> Changes:
    """The paths in `text`, one a line, or separated by NUL as git's `-z` writes them.

    Raises:
        ConfigError: there is none.
    """
    lines = text.split("\0") if "\0" in text else text.splitlines()
    paths = sorted({line.strip().removeprefix("./") for line in lines if line.strip()})
    if not paths:
        raise ConfigError(
            "lists no file", source="--changed", remedy="write one path a line, or use --base"
        )
    return Changes(base=None, files=tuple(ChangedFile(path=path) for path in paths))


def _require_root(root: Path) -> None:
    top = Path(git(root, "rev-parse", "--show-toplevel")).resolve()
    if top != root.resolve():
        raise GitError(f"the repository's root is {top}")


def _tracked(raw: str) -> Iterator[ChangedFile]:
    """`git diff --raw -z`: `:OLDMODE NEWMODE OLDID NEWID STATUS`, NUL, the path, NUL."""
    fields = iter(raw.split("\0"))
    for head in fields:
        if head.startswith(":"):
            modes = head[1:].split(" ")[:2]
            special = any(mode != _ABSENT and not _REGULAR.match(mode) for mode in modes)
            yield ChangedFile(path=next(fields, ""), special=special)


def _new(root: Path, listing: str, ours: Iterable[Path]) -> Iterator[ChangedFile]:
    own = [path.resolve() for path in ours]
    for path in listing.split("\0"):
        here = root.resolve() / path
        if path and not any(here.is_relative_to(one) for one in own):
            yield ChangedFile(path=path, special=here.is_symlink())
