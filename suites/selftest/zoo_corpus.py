"""The recorded zoo: evidence of planted faults from one GPU machine, and how it gets here.

Owns the corpus folder `zoo/`: its layout, and the step from a run's OUT to it, which takes
names and paths of the machine out. `python -m suites.selftest.zoo_corpus OUT DATE ROOT...`
writes it anew; ROOT are folders of that machine (checkout, Python, OUT), longest first.
"""

from __future__ import annotations

import json
import lzma
import re
import shutil
import sys
from pathlib import Path

from fixtures.evidence.cellrun import CellRun
from fixtures.run.ledger import Ledger
from fixtures.schema import Record
from fixtures.triage.core_tables import is_core
from fixtures.triage.reader import read_failure
from graphgate.zoo import Fault, Named, load_zoo, name_run
from suites.selftest.triage_corpus import CORPUS, frame_text

ZOO_CORPUS = CORPUS / "zoo"
CONTROLS = ZOO_CORPUS / "controls.jsonl"
RUN_FILE = "run.json"
EXPECTED_FILE = "expected.json"

_TEXTS = ("stderr.log", "stdout.log", "stacks.txt", "cuda-gdb.txt", "observation.json")
_GPU = re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_PATH = re.compile(r"(?<![\w./])/(?!repo\b|opt/venv\b)(?:[\w.+@~-]+/)+")
_ALLOWED = "/repo"


class ExpectedFault(Record):
    """`expected.json`: what the evidence is called. `place` is `kernel (file:line)`."""

    status: str
    kind: str | None
    title: str | None
    kernel: str | None
    exception: str | None
    pc: str | None
    place: str | None
    sources: tuple[str, ...]
    gate: str


def judged(folder: Path, fault: Fault, run: CellRun | None = None) -> tuple[Named, CellRun]:
    """What the evidence in `folder` is called today, and the run with its report read anew."""
    run = run or CellRun.read_json(folder / RUN_FILE)
    last = run.attempts[-1]
    crash = read_failure(folder, last.exit, xids=last.xids)
    run = run.model_copy(update={"crash": crash})
    return name_run(run, fault), run


def expected_of(named: Named, run: CellRun) -> ExpectedFault:
    """The facts that `expected.json` holds."""
    frame = run.crash.frame if run.crash else None
    return ExpectedFault(
        status=named.status,
        kind=named.kind,
        title=named.title,
        kernel=named.kernel,
        exception=named.exception,
        pc=run.crash.pc if run.crash else None,
        place=frame_text(frame),
        sources=named.sources,
        gate=named.gate,
    )


def record(out: Path, date: str, roots: list[str]) -> None:
    """Write the corpus from the zoo's OUT folder `out`."""
    faults = {fault.name: fault for fault in load_zoo().faults}
    shutil.rmtree(ZOO_CORPUS, ignore_errors=True)
    ZOO_CORPUS.mkdir(parents=True)
    controls = []
    for run in Ledger(out / "ledger.jsonl").read().runs:
        bare = _bare(run)
        if run.cell.mutant is None:
            controls.append(bare.to_json(indent=None))
        else:
            _record_fault(out, bare, faults[run.cell.mutant], date, roots)
    CONTROLS.write_text("".join(f"{line}\n" for line in sorted(controls)), encoding="utf-8")


def _record_fault(out: Path, run: CellRun, fault: Fault, date: str, roots: list[str]) -> None:
    source = out / "cells" / str(run.cell.key) / f"attempt-{run.attempts[-1].index}"
    target = ZOO_CORPUS / fault.name
    target.mkdir()
    (target / RUN_FILE).write_text(run.to_json() + "\n", encoding="utf-8")
    for path in sorted(source.iterdir()):
        if path.name in _TEXTS:
            text = scrubbed(path.read_text(encoding="utf-8", errors="replace"), roots)
            (target / path.name).write_text(text, encoding="utf-8")
        elif path.is_file() and is_core(path):
            _pack_core(path, target / "gpu.cudacore.xz", roots)
    named, judged_run = judged(target, fault)
    (target / EXPECTED_FILE).write_text(expected_of(named, judged_run).to_json() + "\n")
    about = {
        "machine": "one NVIDIA H200",
        "driver": run.provenance.driver,
        "cuda": "13.0",
        "torch": run.provenance.torch,
        "date": date,
        "planted": fault.fault,
    }
    (target / "provenance.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _bare(run: CellRun) -> CellRun:
    """The run without what triage made of it, and without names of the machine."""
    last = run.attempts[-1]
    changes = {"crash": None, "artifacts": (), "gpu": None, "nodes": (), "notes": ()}
    xids = tuple(xid.model_copy(update={"device": "GPU-0"}) for xid in last.xids)
    attempt = last.model_copy(update={**changes, "xids": xids})
    return run.model_copy(update={"attempts": (attempt,), "crash": None})


def scrubbed(text: str, roots: list[str]) -> str:
    """`text` with the machine's folders replaced or cut off, and its GPU's name taken out."""
    for root in roots:
        text = text.replace(root, _ALLOWED)
    return _GPU.sub("GPU-0", _PATH.sub("", text))


def _pack_core(path: Path, target: Path, roots: list[str]) -> None:
    """The core with the machine's folders overwritten in place: sizes and offsets stay."""
    data = path.read_bytes()
    for root in roots:
        data = data.replace(root.encode(), _ALLOWED.encode().ljust(len(root), b"/"))
    target.write_bytes(lzma.compress(data, preset=9))


if __name__ == "__main__":
    record(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
