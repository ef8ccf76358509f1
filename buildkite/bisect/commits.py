"""Bisect over the commits of a checkout, by `git bisect run` in a working tree of its own.

Owns: the working tree, the command that git runs, and what git's exit codes mean. Must not
know: how a commit is tested. The user's own tree, index, HEAD and bisect stay as they are: git
keeps those of a second working tree apart.

No text of the repository gets into the command: it names Python, GraphGate and one file that
we wrote. Python is told not to look for modules in the tree that it stands in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from buildkite.bisect.hunt import Hunted, State
from buildkite.bisect.outcome import Outcome, Step
from fixtures.errors import ConfigError, InfraError
from fixtures.run.environment import REPOSITORY
from fixtures.schema import SCHEMA_VERSION, Record
from fixtures.source.git import GitError, commit_of, git, git_attended, worktree
from reports.files import write_whole

ORDER_FILE = "order.json"
STEPS_FILE = "steps.jsonl"
LOG_FILE = "git-bisect.log"

OLD_CODE, NEW_CODE, SKIP_CODE = 0, 1, 125
"""What `git bisect run` reads from an exit code; from 128 on it gives up."""

_SAFE = {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(REPOSITORY)}


class Order(Record):
    """The file order.json: what the command that git runs is to do."""

    schema_version: int = SCHEMA_VERSION
    hunted: Hunted
    tree: str
    out: str
    older: State
    """The state of the oldest commit: the code for it is 0."""


class Checkout:
    """The commits between two of the repository at `root`.

    Raises:
        ConfigError: git knows no such revision, or neither is an ancestor of the other.
    """

    def __init__(self, root: Path, good: str, bad: str) -> None:
        self.root = root
        self.good, self.bad = self._commit(good, "--good"), self._commit(bad, "--bad")
        self.repair = self._is_ancestor(self.bad, self.good)
        if not self.repair and not self._is_ancestor(self.good, self.bad):
            raise ConfigError(
                f"neither of {good} and {bad} is an ancestor of the other",
                source="--good, --bad",
                remedy=f"take their merge base: git merge-base {self.good[:12]} {self.bad[:12]}",
            )

    @property
    def ends(self) -> tuple[str, str]:
        """The older and the newer commit."""
        return (self.bad, self.good) if self.repair else (self.good, self.bad)

    def subject(self, commit: str) -> str:
        """The first line of a commit's message."""
        return git(self.root, "show", "--no-patch", "--format=%s", commit)

    def _commit(self, revision: str, option: str) -> str:
        try:
            return commit_of(self.root, revision)
        except GitError:
            raise ConfigError(
                f"git knows no commit {revision!r} in {self.root}",
                source=option,
                remedy="name a commit, branch or tag of the checkout",
            ) from None

    def _is_ancestor(self, older: str, newer: str) -> bool:
        if older == newer:
            return False
        try:
            git(self.root, "merge-base", "--is-ancestor", older, newer)
        except GitError:
            return False
        return True


@contextmanager
def tree_at(checkout: Checkout, commit: str) -> Iterator[Path]:
    """A working tree at `commit`, in which the hunt goes on; removed at the end.

    Raises:
        InfraError: git can't make it.
    """
    try:
        with worktree(checkout.root, commit) as tree:
            yield tree
    except GitError as error:
        raise InfraError(f"git can't bisect: {error}") from error


def move_to(tree: Path, commit: str) -> None:
    """Check `commit` out in the working tree of the hunt."""
    git(tree, "checkout", "--quiet", "--force", "--detach", commit)


def head_of(tree: Path) -> str:
    """The commit that the working tree is at."""
    return commit_of(tree, "HEAD")


def bisect_commits(
    checkout: Checkout, tree: Path, hunted: Hunted, out: Path, test: Callable[[str], Step]
) -> Outcome:
    """The border between the ends of `checkout`, both of which are tested first.

    Args:
        checkout: the repository and its ends.
        tree: the working tree of the hunt.
        hunted: the finding.
        out: where the order, git's log and the steps go.
        test: the step of a commit that `tree` is moved to.

    Raises:
        ConfigError: an end is not in the state that it should be in.
        InfraError: git gave up.
    """
    order = Order(
        hunted=hunted,
        tree=str(tree),
        out=str(out.absolute()),
        older=State.BAD if checkout.repair else State.GOOD,
    )
    write_whole(out / ORDER_FILE, order.to_json().encode())
    (out / STEPS_FILE).unlink(missing_ok=True)
    first, last = (_required(order, test(commit), commit, checkout) for commit in checkout.ends)
    try:
        _run(tree, checkout, out)
        suspects = _suspects(tree)
    except GitError as error:
        raise InfraError(f"git can't bisect: {error}") from error
    return _outcome(checkout, order, suspects, [first, *read_steps(out), last])


def _required(order: Order, step: Step, commit: str, checkout: Checkout) -> Step:
    wanted = State.GOOD if commit == checkout.good else State.BAD
    if step.state is not wanted:
        raise ConfigError(
            f"{commit[:12]} is {step.state}, not {wanted}: {step.why}",
            source=f"--{wanted}",
            remedy="name commits between which the finding comes or goes",
        )
    return step


def _run(tree: Path, checkout: Checkout, out: Path) -> None:
    older, newer = checkout.ends
    git(tree, "bisect", "start", "--term-old=old", "--term-new=new", newer, older)
    command = [
        sys.executable,
        "-m",
        "graphgate",
        "bisect",
        "--order",
        str(out.absolute() / ORDER_FILE),
    ]
    code = git_attended(
        tree, "bisect", "run", *command, log=out / LOG_FILE, variables={**_SAFE, **_path()}
    )
    # 2: only skipped commits are left, which the suspects tell.
    if code not in (0, 2):
        raise GitError(f"it gave up with exit code {code}; see {out / LOG_FILE}")


def _path() -> dict[str, str]:
    """Our own repository first on the module path, then what the user has there."""
    kept = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{REPOSITORY}{os.pathsep}{kept}"} if kept else {}


def _suspects(tree: Path) -> tuple[str, ...]:
    """The commits of which one is the first new one, oldest first."""
    listing = git(tree, "for-each-ref", "--format=%(objectname) %(refname)", "refs/bisect/")
    marks = [line.split(" ", 1) for line in listing.splitlines()]
    new = [commit for commit, name in marks if name == "refs/bisect/new"]
    old = [f"^{commit}" for commit, name in marks if name.startswith("refs/bisect/old-")]
    return tuple(git(tree, "rev-list", "--reverse", "--topo-order", *new, *old).split())


def _outcome(
    checkout: Checkout, order: Order, suspects: tuple[str, ...], steps: list[Step]
) -> Outcome:
    older, newer = checkout.ends
    known = {step.revision: step for step in steps}
    line = git(checkout.root, "rev-list", "--reverse", "--topo-order", newer, f"^{older}").split()
    ordered = tuple(known[commit] for commit in (older, *line) if commit in known)
    old = [step for step in ordered if step.state is order.older and step.revision not in suspects]
    return Outcome(
        hunted=order.hunted,
        repair=checkout.repair,
        old=_nearest(checkout, suspects[0], old),
        new=known[suspects[-1]],
        suspects=suspects,
        steps=ordered,
    )


def _nearest(checkout: Checkout, commit: str, old: list[Step]) -> Step:
    """The old step that `commit` comes after: its parent's, where that was tested."""
    parents = git(checkout.root, "show", "--no-patch", "--format=%P", commit).split()
    by_revision = {step.revision: step for step in old}
    return next((by_revision[name] for name in parents if name in by_revision), old[-1])


def append_step(out: Path, step: Step) -> None:
    """Add a step to the ones that the hunt goes by."""
    with (out / STEPS_FILE).open("a", encoding="utf-8") as file:
        file.write(f"{step.to_json(indent=None)}\n")


def read_steps(out: Path) -> list[Step]:
    """The steps that git had made, in that order."""
    path = out / STEPS_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Step.model_validate_json(line) for line in lines]
