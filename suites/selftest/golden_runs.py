"""Golden runs: evidence of canary cells that ran on a GPU, and how it gets here.

Owns the folders `runs/h200-0.26.0/` of the corpus: a plan, a packed ledger, outputs and graph
audit of every cell, where they come from, and what their verdicts must be. `python -m
suites.selftest.golden_runs OUT h200-0.26.0/warm DATE KEY...` adds those cells of the run in OUT;
its expected.json is written by hand. Must not know how evidence is judged.
"""

from __future__ import annotations

import json
import lzma
import re
import shutil
import sys
from collections.abc import Collection
from pathlib import Path

from fixtures.cells.cell import Plan
from fixtures.errors import ConfigError
from fixtures.evidence.audit import AUDIT_FILE
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.outputs import OUTPUTS_FILE
from fixtures.run.outfolder import PLAN_FILE
from gates.evidence import LEDGER_FILE
from suites.selftest.run_corpus import RUN_CORPUS, bare_plan
from suites.selftest.scrubbed import machine_path

SWEEP = "nightly"
"""The sweep that has every cell, so that runs of several can be judged together."""

_OWN_FOLDERS = re.compile(r"/(?:home|tmp|root|work)/[\w./-]*?(?=fixtures/|cells/|venv/)")
"""The checkout, output folder and bundle that a log of the child names."""

_GPU = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def record(out: Path, name: str, date: str, keys: Collection[str] = ()) -> Path:
    """Add the run in the output folder `out`, and say where it lies.

    Of each cell the ledger's line, its outputs and its graph audit are kept, of a cell that died
    the audit that it left. What a line lists besides (events, logs, cores) stays where it was.

    Args:
        out: as a gate left it.
        name: of the folder in the corpus.
        date: of the run.
        keys: of the cells to keep; none: all that have run.

    Raises:
        ConfigError: a line of the ledger names a folder of the machine.
    """
    plan = Plan.read_json(out / PLAN_FILE)
    runs = [_kept(line, plan) for line in (out / LEDGER_FILE).read_text().splitlines()]
    runs = [run for run in runs if not keys or str(run.cell.key) in keys]
    ran = {run.cell.key for run in runs}
    target = RUN_CORPUS / name
    target.mkdir(parents=True, exist_ok=True)
    cells = tuple(cell for cell in plan.cells if cell.key in ran)
    bare = bare_plan(plan).model_copy(update={"cells": cells, "omissions": (), "sweep": SWEEP})
    (target / PLAN_FILE).write_text(bare.to_json() + "\n", encoding="utf-8")
    ledger = "".join(f"{run.to_json(indent=None)}\n" for run in runs)
    (target / f"{LEDGER_FILE}.xz").write_bytes(lzma.compress(ledger.encode(), preset=9))
    for run in runs:
        _copy_files(out, target, run)
    about = _provenance(plan, runs, date)
    (target / "provenance.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return target


def unpack(name: str, folder: Path) -> Path:
    """The golden run as the output folder that a gate leaves, in `folder`, which is new."""
    shutil.copytree(RUN_CORPUS / name, folder)
    packed = folder / f"{LEDGER_FILE}.xz"
    (folder / LEDGER_FILE).write_bytes(lzma.decompress(packed.read_bytes()))
    return folder


def _kept(line: str, plan: Plan) -> CellRun:
    """A ledger's line without the folders of its machine and its GPU's name."""
    if plan.source.python_path:
        line = line.replace(plan.source.python_path, bare_plan(plan).source.python_path or "")
    line = _GPU.sub("GPU-0", _OWN_FOLDERS.sub("", line))
    found = machine_path(line)
    if found:
        raise ConfigError(f"names {found}", source=LEDGER_FILE, remedy="scrub it, then record it")
    return CellRun.model_validate_json(line)


def _copy_files(out: Path, target: Path, run: CellRun) -> None:
    """The files that a gate asks for, of the last attempt."""
    if not run.attempts:
        return
    place = Path("cells") / str(run.cell.key) / f"attempt-{run.attempts[-1].index}"
    for name in (OUTPUTS_FILE, AUDIT_FILE):
        if (out / place / name).is_file():
            (target / place).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(out / place / name, target / place / name)


def _provenance(plan: Plan, runs: list[CellRun], date: str) -> dict[str, object]:
    ran_on = next(run.provenance for run in runs)
    return {
        "vllm": plan.source.identity,
        "what": f"{len(runs)} of {len(plan.cells)} planned cells: ledger lines, outputs and audits",
        "left out": "events, logs and cores, which the lines still list",
        "machine": f"one {ran_on.gpu}, driver {ran_on.driver}, torch {ran_on.torch}",
        "date": date,
    }


if __name__ == "__main__":
    record(Path(sys.argv[1]), sys.argv[2], sys.argv[3], frozenset(sys.argv[4:]))
