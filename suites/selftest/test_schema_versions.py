"""Files of earlier schema versions: brought up step by step, or refused with a reason."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun
from fixtures.run.ledger import Ledger
from fixtures.schema import SCHEMA_VERSION, Record, UnknownVersionError
from graphgate import cli
from reports.history.questions import nights
from reports.history.store import History
from suites.selftest.build import a_cell, a_plan, a_run, write_shard

Plain = dict[str, Any]


class Reading(Record):
    """A type whose version -1 told degrees as text, and whose version 0 had no unit."""

    schema_version: int = SCHEMA_VERSION
    degrees: float
    unit: str
    upgrades: ClassVar[Mapping[int, Callable[[Plain], Plain]]] = {
        SCHEMA_VERSION - 2: lambda data: {**data, "degrees": float(data["degrees"].rstrip("K"))},
        SCHEMA_VERSION - 1: lambda data: {**data, "unit": "K"},
    }


def write(path: Path, **data: object) -> Path:
    path.write_text(json.dumps(data))
    return path


TODAY = Reading(degrees=4.2, unit="K")


@pytest.mark.parametrize(
    "old",
    [
        {"schema_version": SCHEMA_VERSION, "degrees": 4.2, "unit": "K"},
        {"schema_version": SCHEMA_VERSION - 1, "degrees": 4.2},
        {"schema_version": SCHEMA_VERSION - 2, "degrees": "4.2K"},
    ],
)
def test_every_step_leads_to_today(tmp_path: Path, old: Plain) -> None:
    assert Reading.read_json(write(tmp_path / "r.json", **old)) == TODAY


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 3, SCHEMA_VERSION + 1, "one", None, 1.5])
def test_a_version_without_a_step_is_refused_by_its_name(tmp_path: Path, version: object) -> None:
    path = write(tmp_path / "r.json", schema_version=version, degrees=4.2, unit="K", new="field")
    with pytest.raises(ConfigError, match=f"is of version {version}, and only -1, 0, 1 is known"):
        Reading.read_json(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"degrees": 1}', '{"unit": 1, "x": 2}'])
def test_what_is_no_record_says_so_and_not_its_version(text: str) -> None:
    with pytest.raises(ValueError, match="validation error") as caught:
        Reading.from_json(text)
    assert not isinstance(caught.value, UnknownVersionError)


def of_version_0(run: CellRun) -> str:
    """A line as a GraphGate would have written it that knew no provenance."""
    plain = run.plain()
    del plain["provenance"]
    return json.dumps({**plain, "schema_version": 0}, separators=(",", ":"))


def with_provenance(data: Plain) -> Plain:
    return {**data, "provenance": {"vllm": "0.26.0", "source": data["cell"]["model"]["source"]}}


RUN = a_run(a_cell().model_copy(update={"model": {"source": "vllm-0.26.0"}}))


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    folder = write_shard(tmp_path / "old", a_plan(RUN.cell), None)
    (folder / "ledger.jsonl").write_text(f"{of_version_0(RUN)}\n{RUN.to_json(indent=None)}\n")
    return folder


def test_an_old_line_of_a_ledger_is_refused_alone(shard: Path) -> None:
    read = Ledger(shard / "ledger.jsonl").read()
    assert read.runs == (RUN,)
    assert [(one.line, one.why) for one in read.problems] == [
        (1, "schema version 0 is not known here")
    ]


def test_an_old_ledger_is_imported(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CellRun, "upgrades", {0: with_provenance})
    (shard / "ledger.jsonl").write_text(f"{of_version_0(RUN)}\n")
    (old,) = Ledger(shard / "ledger.jsonl").read().runs
    assert (old.schema_version, old.cell, old.attempts) == (SCHEMA_VERSION, RUN.cell, RUN.attempts)
    assert Ledger(shard / "ledger.jsonl").last_run(RUN.cell.key) == old
    arguments = ("history", "import", shard, "--db", tmp_path / "h.db")
    monkeypatch.setattr(sys, "argv", ["graphgate", *map(str, arguments)])
    assert int(cli.exit_code()) == 0
    with History(tmp_path / "h.db") as history:
        (night,) = nights(history)
    assert (night.exit_code, night.cells) == (0, 1)
