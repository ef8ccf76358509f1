"""The search for the border in a list of revisions, with revisions that can't be judged.

Owns: which one is tested next. Must not know: what a revision is, or how it is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from buildkite.bisect.hunt import State
from buildkite.bisect.outcome import Step
from fixtures.errors import ConfigError

Test = Callable[[str], Step]


class Border(NamedTuple):
    """The last step known to be old, the first known to be new, and the suspects, new last."""

    old: Step
    new: Step
    suspects: tuple[str, ...]


def find_border(revisions: Sequence[str], older: State, test: Test) -> Border:
    """Between which of `revisions`, oldest first, the state changes from `older`.

    An end that can't be judged is left for the nearest revision that can. At most about
    2 + log2(n) tests, and one for each revision that is skipped.

    Args:
        revisions: two or more.
        older: the state of the first; the last has the other one.
        test: the step of a revision; asked once for each.

    Raises:
        ConfigError: an end is not in the state that it should be in.
    """
    skipped: set[int] = set()
    low, old = _end(revisions, range(len(revisions) - 1), older, test)
    newer = State.GOOD if older is State.BAD else State.BAD
    high, new = _end(revisions, range(len(revisions) - 1, low, -1), newer, test)
    while (middle := _middle(low, high, skipped)) is not None:
        step = test(revisions[middle])
        if step.state is State.SKIP:
            skipped.add(middle)
        elif step.state is older:
            low, old = middle, step
        else:
            high, new = middle, step
    return Border(old, new, tuple(revisions[low + 1 : high + 1]))


def _end(
    revisions: Sequence[str], order: Sequence[int], wanted: State, test: Test
) -> tuple[int, Step]:
    """The outermost revision that can be judged, which must be in the state `wanted`."""
    why = "there is only one revision"
    for index in order:
        step = test(revisions[index])
        if step.state is wanted:
            return index, step
        why = f"{step.revision} is {step.state}: {step.why}"
        if step.state is not State.SKIP:
            break
    raise ConfigError(
        f"no revision at this end is {wanted}; {why}",
        source=f"--{wanted}",
        remedy="name revisions between which the finding comes or goes",
    )


def _middle(low: int, high: int, skipped: set[int]) -> int | None:
    """The revision nearest to the middle that was not skipped, or None where none is left."""
    left = [index for index in range(low + 1, high) if index not in skipped]
    return min(left, key=lambda index: (abs(2 * index - low - high), index), default=None)
