"""The recorded score cells: answers of real engines on a GPU, and how they get here.

Owns the corpus folders `runs/h200-scores*/`: a plan, a packed ledger, answers and outputs of each
cell, where they come from, what the judge says of them, and which mutants their gate saw.
`python -m suites.selftest.score_corpus NAME OUT DATE ROOT...` writes the folder NAME anew from all
score cells of OUT that came to an end, blocked ones and crashes among them; ROOT are folders of
that machine, longest first. Cells whose NONE was not recorded with them are judged beside the first
folder, which has it. `expected.json` is what the judge says now, so read it. The table of
docs/scores.md is written anew over all folders; without arguments nothing else is done.
"""

from __future__ import annotations

import json
import lzma
import shutil
import sys
from collections.abc import Iterable
from datetime import date
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from fixtures.cells.axes import Tier
from fixtures.cells.cell import CellKey, Plan
from fixtures.cells.mutants import load_mutants
from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun
from fixtures.run.environment import REPOSITORY
from fixtures.run.ledger import Ledger
from fixtures.run.outfolder import PLAN_FILE
from fixtures.schema import Record
from gates.evidence import LEDGER_FILE, judge_folder
from gates.mutants import judge_mutants
from gates.policy import read_policy
from gates.scores.result import ScoreTest, TestKind
from gates.verdict import Gate, Verdict
from suites.selftest.run_corpus import RUN_CORPUS
from suites.selftest.zoo_corpus import scrubbed

SCORE_CORPUS = RUN_CORPUS / "h200-scores"
"""The first recording, of an engine whose healthy graphs lost nothing."""
EXPECTED, PROVENANCE = "expected.json", "provenance.json"
PAGE = REPOSITORY / "docs" / "scores.md"
HEADER = (
    "| cell | test | right | b, c | p | smallest drop with 80% power | power at 1 point | verdict |"
)


class ExpectedCell(Record):
    """What is said of a cell: its status, how it ended, and its score tests in figures.

    `blocks` are the checks of the score gate that block.
    """

    key: CellKey
    status: str
    liveness: str
    blocks: tuple[str, ...] = ()
    tests: tuple[ScoreTest, ...]


class Expected(Record):
    """`expected.json`. `killed` are the mutants that the gate named for them saw."""

    cells: tuple[ExpectedCell, ...]
    killed: tuple[str, ...] = ()


def recordings() -> tuple[Path, ...]:
    """All folders of recorded score cells."""
    return tuple(sorted(path.parent for path in RUN_CORPUS.glob(f"h200-scores*/{EXPECTED}")))


def unpacked(out: Path, corpus: Path = SCORE_CORPUS) -> Path:
    """The recorded run as an OUT folder at `out`, which need not exist yet."""
    shutil.copytree(corpus, out)
    packed = out / f"{LEDGER_FILE}.xz"
    (out / LEDGER_FILE).write_bytes(lzma.decompress(packed.read_bytes()))
    packed.unlink()
    return out


def judged(out: Path, day: date) -> Expected:
    """What the judge says of the OUT folder `out` under the shipped policy and references."""
    cells = Plan.read_json(out / PLAN_FILE).cells
    own = {str(cell.key) for cell in cells}
    with TemporaryDirectory() as room:
        alone = all(str(cell.reference or cell.key) in own for cell in cells)
        beside = [] if alone else [unpacked(Path(room) / "first")]
        verdicts = judge_folder([*beside, out], read_policy(), (), day).verdicts
    by_key = {str(verdict.key): verdict for verdict in verdicts}
    planted = [mutant for mutant in load_mutants() if str(mutant.key) in own]
    results = judge_mutants(planted, by_key)
    return Expected(
        cells=tuple(_expected(verdict) for key, verdict in by_key.items() if key in own),
        killed=tuple(result.name for result in results if result.killed),
    )


def _expected(verdict: Verdict) -> ExpectedCell:
    tests = tuple(finding.test for finding in verdict.findings if finding.test is not None)
    scores = [one for one in verdict.findings if one.gate is Gate.SCORES and one.status.blocks]
    return ExpectedCell(
        key=verdict.key,
        status=verdict.status.value,
        liveness="; ".join(one.why for one in verdict.findings if one.gate is Gate.LIVENESS),
        blocks=tuple(finding.check for finding in scores),
        tests=tests,
    )


def table() -> list[str]:
    """The Markdown table of all recordings, cells as they are before those with a mutant."""
    found = [Expected.read_json(corpus / EXPECTED).cells for corpus in recordings()]
    cells = sorted(chain(*found), key=lambda cell: cell.key.variant is not None)
    return [HEADER, "|---" * HEADER.count(" | ") + "|---|", *_rows(cells)]


def with_table(page: str) -> str:
    """The page with the table of today in the place of the one that it has."""
    before, found, after = page.partition(HEADER)
    if not found:
        raise ConfigError("has no table of scores", source=PAGE, remedy=f"add the line {HEADER}")
    rest = after.partition("\n\n")[2]
    return before + "\n".join(table()) + "\n\n" + rest


def _rows(cells: Iterable[ExpectedCell]) -> list[str]:
    """Each cell's paired tests, or the floor where that is all."""
    lines = []
    for cell in cells:
        paired = [test for test in cell.tests if test.kind is not TestKind.FLOOR]
        shown = [_figures(test) for test in paired or cell.tests] or [("", "", "", "", "", "")]
        lines += [f"| {' | '.join((_named(cell.key), *one, _ended(cell)))} |" for one in shown]
    return lines


def _named(key: CellKey) -> str:
    return f"{key.model} {key.mode}" + (f", `{key.variant}`" if key.variant else "")


def _ended(cell: ExpectedCell) -> str:
    told = cell.liveness.partition(";")[0].replace("|", "\\|")
    return f"{cell.status}: {told}" if cell.status == "CRASH" else cell.status


def _figures(test: ScoreTest) -> tuple[str, ...]:
    drop = "none" if test.detectable is None else f"{100 * test.detectable:.2f}"
    pairs = "" if test.b is None else f"{test.b}, {test.c}"
    counted = f"{round(test.score * test.answers)} of {test.answers}"
    return test.kind.value, counted, pairs, f"{test.p_value:.2g}", drop, f"{test.power:.0%}"


def record(name: str, out: Path, day: date, roots: list[str]) -> None:
    """Write the folder `name` of the corpus from the OUT folder `out`."""
    corpus = RUN_CORPUS / name
    shutil.rmtree(corpus, ignore_errors=True)
    corpus.mkdir(parents=True)
    planned = Plan.read_json(out / PLAN_FILE)
    ended = [run for run in Ledger(out / LEDGER_FILE).read().runs if _is_recorded(run)]
    keys = {str(run.cell.key) for run in ended}
    scored = [cell for cell in planned.cells if cell.key.tier is Tier.SCORE]
    source = planned.source.model_copy(update={"python_path": f"releases/{planned.source.version}"})
    cells = tuple(cell for cell in scored if str(cell.key) in keys)
    bare = planned.model_copy(update={"source": source, "cells": cells})
    (corpus / PLAN_FILE).write_text(bare.to_json() + "\n", encoding="utf-8")
    lines = "".join(f"{_bare(run).to_json(indent=None)}\n" for run in ended)
    packed = lzma.compress(scrubbed(lines, roots).encode(), preset=9)
    (corpus / f"{LEDGER_FILE}.xz").write_bytes(packed)
    for run in ended:
        _copy_files(run, out, corpus)
    with TemporaryDirectory() as room:
        expected = judged(unpacked(Path(room) / "out", corpus), day)
    (corpus / EXPECTED).write_text(expected.to_json() + "\n", encoding="utf-8")
    missing = [str(cell.key) for cell in scored if str(cell.key) not in keys]
    about = json.dumps(_provenance(ended, missing, day), indent=2)
    (corpus / PROVENANCE).write_text(about + "\n", encoding="utf-8")


def _is_recorded(run: CellRun) -> bool:
    """Whether the cell is of the score tier and one of its attempts came to an end."""
    return run.cell.key.tier is Tier.SCORE and bool(run.attempts)


def _copy_files(run: CellRun, out: Path, corpus: Path) -> None:
    """The files that the observation names; logs, events and cores stay behind."""
    place = Path("cells") / str(run.cell.key) / f"attempt-{run.attempts[-1].index}"
    seen = run.observation
    for file in (seen.samples, seen.outputs) if seen is not None else ():
        if file is not None:
            (corpus / place).mkdir(parents=True, exist_ok=True)
            shutil.copy(out / place / file.file, corpus / place / file.file)


def _bare(run: CellRun) -> CellRun:
    """The run without its list of files, most of which stay behind."""
    attempts = tuple(one.model_copy(update={"artifacts": ()}) for one in run.attempts)
    return run.model_copy(update={"attempts": attempts})


def _provenance(runs: list[CellRun], missing: list[str], day: date) -> dict[str, object]:
    about = runs[0].provenance
    return {
        "vllm": about.source,
        "what": "trained models' score cells that came to an end, as the runner wrote them; logs, "
        "events and GPU cores are left out, and folders and GPU names of the machine are cut off",
        "machine": f"one {about.gpu} a cell, shared with other cells; a crash's Xid 31 stands in "
        "the attempts of all cells that ran beside it",
        "driver": about.driver,
        "torch": about.torch,
        "python": about.python,
        "date": day.isoformat(),
        "not_run": missing,
    }


def main(arguments: list[str]) -> None:
    """Record a folder, and write the page's table."""
    if arguments:
        name, out, day, *roots = arguments
        record(name, Path(out), date.fromisoformat(day), roots)
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print("\n".join(table()))


if __name__ == "__main__":
    main(sys.argv[1:])
