"""The recorded nights: evidence of whole contract runs, and how it gets here.

Owns the corpus folder `runs/`: a plan, a packed ledger and where both come from, per release.
`python -m suites.selftest.run_corpus OUT DATE` adds the run in OUT.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

from fixtures.cells.cell import Plan
from fixtures.run.outfolder import PLAN_FILE
from gates.evidence import LEDGER_FILE
from suites.selftest.triage_corpus import CORPUS

RUN_CORPUS = CORPUS / "runs"
_ROOM = "releases"
"""Stands where the plan names a folder of the machine; nothing is read from there again."""


def record(out: Path, date: str) -> Path:
    """Add the run in the output folder `out`, and say where it lies."""
    plan = Plan.read_json(out / PLAN_FILE)
    target = RUN_CORPUS / plan.source.version
    target.mkdir(parents=True, exist_ok=True)
    (target / PLAN_FILE).write_text(bare_plan(plan).to_json() + "\n", encoding="utf-8")
    ledger = (out / LEDGER_FILE).read_bytes()
    (target / f"{LEDGER_FILE}.xz").write_bytes(lzma.compress(ledger, preset=9))
    about = {
        "vllm": plan.source.identity,
        "what": f"every cell that was planned, {len(plan.cells)} in all, as the runner wrote it",
        "machine": "two CPUs, no GPU",
        "date": date,
    }
    (target / "provenance.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return target


def bare_plan(plan: Plan) -> Plan:
    """The plan without the folder of the machine that holds its vLLM."""
    source = plan.source.model_copy(update={"python_path": f"{_ROOM}/{plan.source.version}"})
    return plan.model_copy(update={"source": source})


if __name__ == "__main__":
    record(Path(sys.argv[1]), sys.argv[2])
