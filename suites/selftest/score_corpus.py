"""The recorded score cells: answers of real engines on a GPU, and how they get here.

Owns the corpus folder `runs/h200-scores/`: a plan, a packed ledger, answers and outputs of each
cell, where they come from, and what the judge says of them.
`python -m suites.selftest.score_corpus OUT DATE ROOT... < KEYS` writes it anew from the cells of
OUT that standard input names; ROOT are folders of that machine, longest first. `expected.json` is
what the judge says now, so read it.
"""

from __future__ import annotations

import json
import lzma
import shutil
import sys
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

from fixtures.cells.cell import Plan
from fixtures.evidence.cellrun import CellRun
from fixtures.run.ledger import Ledger
from fixtures.run.outfolder import PLAN_FILE
from fixtures.schema import Record
from gates.evidence import LEDGER_FILE, judge_folder
from gates.policy import read_policy
from gates.scores.result import ScoreTest
from gates.verdict import Gate, Verdict
from suites.selftest.run_corpus import RUN_CORPUS
from suites.selftest.zoo_corpus import scrubbed

SCORE_CORPUS = RUN_CORPUS / "h200-scores"
EXPECTED, PROVENANCE = "expected.json", "provenance.json"


class ExpectedCell(Record):
    """What is said of a cell: its status, how it ended, and its score tests in figures."""

    key: str
    status: str
    liveness: str
    tests: tuple[ScoreTest, ...]


class Expected(Record):
    """`expected.json`."""

    cells: tuple[ExpectedCell, ...]


def unpacked(out: Path, corpus: Path = SCORE_CORPUS) -> Path:
    """The recorded run as an OUT folder at `out`, which need not exist yet."""
    shutil.copytree(corpus, out)
    packed = out / f"{LEDGER_FILE}.xz"
    (out / LEDGER_FILE).write_bytes(lzma.decompress(packed.read_bytes()))
    packed.unlink()
    return out


def judged(out: Path, day: date) -> Expected:
    """What the judge says of the OUT folder `out` under the shipped policy and references."""
    verdicts = judge_folder([out], read_policy(), (), day).verdicts
    return Expected(cells=tuple(map(_expected, verdicts)))


def _expected(verdict: Verdict) -> ExpectedCell:
    tests = tuple(finding.test for finding in verdict.findings if finding.test is not None)
    return ExpectedCell(
        key=str(verdict.key),
        status=verdict.status.value,
        liveness="; ".join(one.why for one in verdict.findings if one.gate is Gate.LIVENESS),
        tests=tests,
    )


def record(out: Path, day: date, roots: list[str], keys: frozenset[str]) -> None:
    """Write the corpus from the cells `keys` of the OUT folder `out`."""
    shutil.rmtree(SCORE_CORPUS, ignore_errors=True)
    SCORE_CORPUS.mkdir(parents=True)
    plan = Plan.read_json(out / PLAN_FILE)
    cells = tuple(cell for cell in plan.cells if str(cell.key) in keys)
    source = plan.source.model_copy(update={"python_path": f"releases/{plan.source.version}"})
    bare = plan.model_copy(update={"source": source, "cells": cells})
    (SCORE_CORPUS / PLAN_FILE).write_text(bare.to_json() + "\n", encoding="utf-8")
    runs = [run for run in Ledger(out / LEDGER_FILE).read().runs if str(run.cell.key) in keys]
    lines = "".join(f"{_bare(run).to_json(indent=None)}\n" for run in runs)
    packed = lzma.compress(scrubbed(lines, roots).encode(), preset=9)
    (SCORE_CORPUS / f"{LEDGER_FILE}.xz").write_bytes(packed)
    for run in runs:
        _copy_files(run, out)
    with TemporaryDirectory() as room:
        expected = judged(unpacked(Path(room) / "out"), day)
    (SCORE_CORPUS / EXPECTED).write_text(expected.to_json() + "\n", encoding="utf-8")
    about = json.dumps(_provenance(runs, day), indent=2)
    (SCORE_CORPUS / PROVENANCE).write_text(about + "\n", encoding="utf-8")


def _copy_files(run: CellRun, out: Path) -> None:
    """The files that the observation names; logs, events and cores stay behind."""
    place = Path("cells") / str(run.cell.key) / f"attempt-{run.attempts[-1].index}"
    seen = run.observation
    for file in (seen.samples, seen.outputs) if seen is not None else ():
        if file is not None:
            (SCORE_CORPUS / place).mkdir(parents=True, exist_ok=True)
            shutil.copy(out / place / file.file, SCORE_CORPUS / place / file.file)


def _bare(run: CellRun) -> CellRun:
    """The run without its list of files, most of which stay behind."""
    attempts = tuple(one.model_copy(update={"artifacts": ()}) for one in run.attempts)
    return run.model_copy(update={"attempts": attempts})


def _provenance(runs: list[CellRun], day: date) -> dict[str, object]:
    about = runs[0].provenance
    return {
        "vllm": about.source,
        "what": "the trained model's score cells that finished, as the runner wrote them; logs, "
        "events and GPU cores are left out, and folders and GPU names of the machine are cut off",
        "machine": f"one {about.gpu}, shared with other cells; their crashes' Xid 31 stand in "
        "the attempts of all cells that ran beside them",
        "driver": about.driver,
        "torch": about.torch,
        "python": about.python,
        "date": day.isoformat(),
        "mutants": "score-stale-lengths and score-stale-block-table planted copies that were "
        "freed in this run, so their graphs read freed memory: an illegal address. Since then "
        "such mutants are two each, stale-* whose copy is kept alive, and freed-*; the stale-* "
        "ones have not run on a GPU",
        "not_run": "PIECEWISE and FULL did not finish in the time that the machine was there",
    }


if __name__ == "__main__":
    record(
        Path(sys.argv[1]),
        date.fromisoformat(sys.argv[2]),
        sys.argv[3:],
        frozenset(sys.stdin.read().split()),
    )
