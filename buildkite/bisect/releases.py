"""Bisect over vLLM's releases.

Owns: which releases lie between two. Must not know: how one is tested.
"""

from __future__ import annotations

from collections.abc import Iterable

from packaging.version import InvalidVersion, Version

from buildkite.bisect.hunt import Hunted, State
from buildkite.bisect.outcome import Outcome, Step
from buildkite.bisect.search import Test, find_border
from fixtures.errors import ConfigError
from fixtures.source.pip import PipError, run_pip
from fixtures.source.release import cached_releases

_NO_RELEASE = "vllm==0"
"""Asked for, it makes pip say which releases its index offers."""


def is_release(revision: str) -> bool:
    """Whether `revision` is written as a version."""
    try:
        Version(revision)
    except InvalidVersion:
        return False
    return True


def offered_releases() -> tuple[str, ...]:
    """The releases that pip's index offers, and those in the cache; the cache's alone offline."""
    offered: tuple[str, ...] = ()
    try:
        run_pip(["download", "--no-deps", "--only-binary=:all:", "--dest", ".", _NO_RELEASE])
    except PipError as error:
        offered = error.known_versions
    return tuple({*offered, *cached_releases()})


def releases_between(first: str, last: str, known: Iterable[str]) -> tuple[str, ...]:
    """The final releases from `first` to `last`, both of them included, oldest first.

    Raises:
        ConfigError: `first` is not older than `last`.
    """
    low, high = Version(first), Version(last)
    if low >= high:
        raise ConfigError(
            f"{first} is not older than {last}",
            source="--good, --bad",
            remedy="name two different releases",
        )
    versions = {Version(text) for text in known if is_release(text)}
    inside = {v for v in versions if low < v < high and not v.is_prerelease}
    return tuple(str(version) for version in sorted({low, high, *inside}))


def bisect_releases(
    releases: tuple[str, ...], hunted: Hunted, *, repair: bool, test: Test
) -> Outcome:
    """The border among `releases`, oldest first.

    Raises:
        ConfigError: an end is not in the state that it should be in.
    """
    steps: dict[str, Step] = {}

    def tested(revision: str) -> Step:
        if revision not in steps:
            steps[revision] = test(revision)
        return steps[revision]

    border = find_border(releases, State.BAD if repair else State.GOOD, tested)
    return Outcome(
        hunted=hunted,
        repair=repair,
        old=border.old,
        new=border.new,
        suspects=border.suspects,
        steps=tuple(steps[name] for name in releases if name in steps),
    )
