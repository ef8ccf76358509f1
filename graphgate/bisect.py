"""The verb `bisect`: between which two releases or commits a finding came or went."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from packaging.version import Version
from pydantic import ValidationError

from buildkite.bisect.commits import (
    NEW_CODE,
    OLD_CODE,
    SKIP_CODE,
    Checkout,
    Order,
    append_step,
    bisect_commits,
    head_of,
    move_to,
    tree_at,
)
from buildkite.bisect.hunt import Hunted, State, finding_to_hunt, read
from buildkite.bisect.outcome import Outcome, Step, report_lines
from buildkite.bisect.releases import (
    bisect_releases,
    is_release,
    offered_releases,
    releases_between,
)
from buildkite.bisect.step import RevisionVerdict, Tester
from fixtures.cells.axes import Tier
from fixtures.cells.cell import CellKey, Source
from fixtures.cells.sweeps import load_catalog
from fixtures.errors import ConfigError
from fixtures.run.interrupt import terminate_as_interrupt
from fixtures.source.built import build_of
from fixtures.source.checkout import find_checkout
from fixtures.source.git import git
from fixtures.source.installed import PYTHON_VARIABLE
from fixtures.source.resolve import resolve
from gates.verdict import ExitCode
from graphgate.live import Live
from reports.files import write_whole
from reports.text import one_line

OUTCOME_FILE = "bisect.json"
_STEPS = "steps"
_INTERRUPTED = 130
_OUT = Path("out/bisect")


def bisect(
    *,
    good: Annotated[str | None, typer.Option("--good", help="A release or commit.")] = None,
    bad: Annotated[
        str | None, typer.Option("--bad", help="Another; the older one may be either.")
    ] = None,
    cell: Annotated[
        str | None, typer.Option("--cell", help="The key of the cell that shows it.")
    ] = None,
    finding: Annotated[
        str | None,
        typer.Option(
            "--finding",
            help="GATE:CLASS, or GATE:CLASS:check; by default the first that blocks in the bad "
            "revision.",
        ),
    ] = None,
    checkout: Annotated[
        Path | None,
        typer.Option("--checkout", help="Search the commits of this checkout, not releases."),
    ] = None,
    releases: Annotated[
        str | None,
        typer.Option(
            "--releases", help="The releases to search; by default all that pip's index offers."
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            "--python",
            help="For tiers that start an engine: the Python that has a release installed, as "
            "/opt/vllm-{version}/bin/python.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", help="The folder for evidence; a hunt in it is gone on with.")
    ] = _OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    order: Annotated[Path | None, typer.Option("--order", hidden=True)] = None,
) -> None:
    """Find the revision that brought or repaired a finding of one cell.

    Exit code 0 where one revision is left, 31 where those that could not be judged hide it.
    """
    live = Live()
    if order is not None:
        raise typer.Exit(_one_step(Order.read_json(order), live))
    good, bad, key = _required(good, "--good"), _required(bad, "--bad"), _key(cell)
    tester = Tester(key, load_catalog(), out / _STEPS, live.step, live.follow)
    try:
        with terminate_as_interrupt():
            if checkout is None:
                found = Releases(releases, python, live)
                outcome = _over_releases(good, bad, finding, found, tester, live)
            else:
                hunt = Checkout(find_checkout(str(checkout)), good, bad)
                outcome = _over_commits(hunt, finding, tester, out, live)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; the same command goes on with the steps in {out}", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    _tell(outcome, out, as_json=as_json)
    raise typer.Exit(ExitCode.ALLOW if outcome.found else ExitCode.MISSING)


def _tell(outcome: Outcome, out: Path, *, as_json: bool) -> None:
    """Write the outcome beside the steps, and print it."""
    write_whole(out / OUTCOME_FILE, outcome.to_json().encode())
    told = outcome.to_json() if as_json else "\n".join(one_line(t) for t in report_lines(outcome))
    typer.echo(told)


def _required(value: str | None, option: str) -> str:
    if not value:
        raise ConfigError("is missing", source=option, remedy="see `graphgate bisect --help`")
    return value


def _key(text: str | None) -> CellKey:
    try:
        return CellKey.parse(_required(text, "--cell"))
    except ValidationError:
        raise ConfigError(
            f"{text!r} is no cell key",
            source="--cell",
            remedy="one looks like dsv4.FULL.bk0.contract.len128; `graphgate plan` lists them",
        ) from None


def _hunted(key: CellKey, finding: str | None, bad: Callable[[], RevisionVerdict]) -> Hunted:
    """The finding by its name, or the first that blocks in the bad revision.

    Raises:
        ConfigError: the text names none, or nothing blocks there.
    """
    name = finding
    if name is None:
        verdict = bad().verdict
        name = finding_to_hunt(verdict)
    if name is None:
        said = "; ".join(f.why for f in verdict.findings if f.status is verdict.status)
        raise ConfigError(
            f"nothing that blocks {key} there can be hunted: {verdict.status}: {said}",
            source="--bad",
            remedy="name a revision that shows the finding",
        )
    try:
        return Hunted(cell=key, finding=name)
    except ValidationError:
        raise ConfigError(
            f"{name!r} is no finding",
            source="--finding",
            remedy="one looks like audit:C or audit:C:shared-state",
        ) from None


def _told(tested: RevisionVerdict, hunted: Hunted, live: Live, subject: str = "") -> Step:
    """The step of a tested revision, which is also shown."""
    reading = read(tested.verdict, tested.crash, hunted)
    step = Step.of(tested.revision, reading, tested.seconds, subject)
    line = f"{step.revision} {step.state} ({step.seconds:.0f} s): {step.why}"
    live.console.print(one_line(line, 160), markup=False, soft_wrap=True)
    return step


class Releases(NamedTuple):
    """Which releases there are, and where each is installed, if anywhere."""

    listed: str | None
    python: str | None
    live: Live

    def known(self) -> tuple[str, ...]:
        """Those that a person listed, else those that pip's index offers."""
        return tuple(self.listed.split(",")) if self.listed else offered_releases()

    def source(self, release: str, tier: Tier) -> Source:
        """The release; for a tier that starts an engine, as its Python has it compiled."""
        source = resolve(release, self.live.step)
        return build_of(source) if self.python and tier is not Tier.CONTRACT else source

    @contextmanager
    def python_of(self, release: str) -> Iterator[None]:
        """While a release is tested, its Python is the chosen one."""
        if self.python is None:
            yield
            return
        before = os.environ.get(PYTHON_VARIABLE)
        os.environ[PYTHON_VARIABLE] = self.python.replace("{version}", release)
        try:
            yield
        finally:
            if before is None:
                del os.environ[PYTHON_VARIABLE]
            else:
                os.environ[PYTHON_VARIABLE] = before


def _over_releases(
    good: str, bad: str, finding: str | None, found: Releases, tester: Tester, live: Live
) -> Outcome:
    for option, text in (("--good", good), ("--bad", bad)):
        if not is_release(text):
            raise ConfigError(
                f"{text!r} is no release",
                source=option,
                remedy="write one like 0.26.0; commits are searched with --checkout",
            )
    low, high = sorted((good, bad), key=Version)
    between = releases_between(low, high, found.known())

    def tested(release: str) -> RevisionVerdict:
        with found.python_of(release):
            return tester.test(release, lambda: found.source(release, tester.key.tier))

    hunted = _hunted(tester.key, finding, lambda: tested(bad))
    live.console.print(f"{hunted.finding} among {len(between)} releases", markup=False)
    return bisect_releases(
        between,
        hunted,
        repair=low == bad,
        test=lambda release: _told(tested(release), hunted, live),
    )


def _over_commits(
    hunt: Checkout, finding: str | None, tester: Tester, out: Path, live: Live
) -> Outcome:
    with tree_at(hunt, hunt.bad) as tree:

        def tested(commit: str) -> RevisionVerdict:
            move_to(tree, commit)
            return tester.test(commit, lambda: resolve(str(tree), live.step))

        hunted = _hunted(tester.key, finding, lambda: tested(hunt.bad))
        return bisect_commits(
            hunt,
            tree,
            hunted,
            out,
            lambda commit: _told(tested(commit), hunted, live, hunt.subject(commit)),
        )


def _one_step(order: Order, live: Live) -> int:
    """What `git bisect run` starts: the commit that the working tree is at, as an exit code."""
    out, tree = Path(order.out), Path(order.tree)
    tester = Tester(order.hunted.cell, load_catalog(), out / _STEPS, live.step, live.follow)
    commit = head_of(tree)
    tested = tester.test(commit, lambda: resolve(str(tree), live.step))
    subject = git(tree, "show", "--no-patch", "--format=%s", commit)
    step = _told(tested, order.hunted, live, subject)
    append_step(out, step)
    if step.state is State.SKIP:
        return SKIP_CODE
    return OLD_CODE if step.state is order.older else NEW_CODE
