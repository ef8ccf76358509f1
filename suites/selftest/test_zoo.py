"""The planted zoo: CPU faults really run, GPU faults are judged from what an H200 left."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest

from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun
from graphgate.zoo import (
    Fault,
    Named,
    Zoo,
    ZooReport,
    as_text,
    load_zoo,
    name_run,
    run_zoo,
    zoo_cell,
)
from suites.selftest.scrubbed import machine_path
from suites.selftest.zoo_corpus import (
    CONTROLS,
    EXPECTED_FILE,
    ZOO_CORPUS,
    ExpectedFault,
    expected_of,
    judged,
)

FAULTS = {fault.name: fault for fault in load_zoo().faults}
RECORDED = sorted(path.parent for path in ZOO_CORPUS.glob(f"*/{EXPECTED_FILE}"))
ON_DEVICE = [folder for folder in RECORDED if FAULTS[folder.name].kernel]
CONTROL_RUNS = [CellRun.model_validate_json(line) for line in CONTROLS.read_text().splitlines()]


@cache
def recorded(folder: Path) -> tuple[Named, CellRun]:
    """What the evidence in `folder` is called today."""
    return judged(folder, FAULTS[folder.name])


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> ZooReport:
    """All that this machine can run without a GPU, run once."""
    return run_zoo(tmp_path_factory.mktemp("zoo"), jobs=4)


def test_every_cpu_fault_is_named_and_its_clean_twin_raises_nothing(live: ZooReport) -> None:
    cpu = {name for name, fault in FAULTS.items() if fault.needs == "cpu"}
    assert {entry.name for entry in live.named if not entry.control} == cpu
    assert {entry.name for entry in live.named if entry.control} == cpu
    assert [entry for entry in live.named if not entry.killed] == []
    assert live.ok


def test_faults_that_need_a_gpu_are_left_out_by_name(live: ZooReport) -> None:
    assert live.left_out.keys() == {n for n, fault in FAULTS.items() if fault.needs == "gpu"}
    assert "left out (no GPU to use): illegal-read" in as_text(live)


def test_a_fault_that_is_named_otherwise_is_told_with_what_differs(live: ZooReport) -> None:
    fault = FAULTS["exit-in-the-middle"].model_copy(update={"title": "something else"})
    run = CellRun.read_json(ZOO_CORPUS / fault.name / "run.json")
    named, _ = judged(ZOO_CORPUS / fault.name, fault, run)
    assert not named.killed
    assert named.why == "title is exit 0 without a completion record, not something else"
    report = live.model_copy(update={"named": (*live.named, named)})
    assert not report.ok
    assert "NOT exit-in-the-middle" in as_text(report)


def test_a_control_that_raises_something_is_told() -> None:
    fault = FAULTS["exit-in-the-middle"]
    run = CellRun.read_json(ZOO_CORPUS / fault.name / "run.json")
    run = run.model_copy(update={"cell": zoo_cell(fault, planted=False)})
    named = name_run(run, fault)
    assert named.control
    assert not named.killed


def test_nothing_run_is_not_ok() -> None:
    assert not ZooReport(named=()).ok


def test_a_name_that_is_no_fault_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no fault no-such-fault"):
        run_zoo(tmp_path, only=["no-such-fault"])


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    row = (
        "{name: one, fault: 'host:segfault', needs: cpu, class: U, status: CRASH, kind: REG, "
        "title: t}"
    )
    (tmp_path / "zoo.yaml").write_text(f"faults: [{row}, {row}]")
    with pytest.raises(ConfigError, match="one stands twice"):
        load_zoo(tmp_path / "zoo.yaml")
    (tmp_path / "zoo.yaml").write_text("faults: [{name: one, fault: 'os:system'}]")
    with pytest.raises(ConfigError, match=r"faults\.0"):
        load_zoo(tmp_path / "zoo.yaml")


def test_every_fault_is_recorded() -> None:
    assert {folder.name for folder in RECORDED} == FAULTS.keys()


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_recorded_fault_is_named(folder: Path) -> None:
    named, run = recorded(folder)
    assert named.killed, named.why
    assert expected_of(named, run) == ExpectedFault.read_json(folder / EXPECTED_FILE)


@pytest.mark.parametrize("folder", ON_DEVICE, ids=lambda folder: folder.name)
def test_kernel_is_named_without_cuda_gdb_and_without_the_drivers_words(
    folder: Path, tmp_path: Path
) -> None:
    for name in ("run.json", "gpu.cudacore.xz"):
        shutil.copy(folder / name, tmp_path)
    named, _ = judged(tmp_path, FAULTS[folder.name])
    assert named.killed, named.why
    assert named.sources == ("core",)


@pytest.mark.parametrize("folder", ON_DEVICE, ids=lambda folder: folder.name)
def test_second_sources_agree_with_the_core(folder: Path) -> None:
    _, run = recorded(folder)
    assert run.crash is not None
    assert [line for line in run.crash.secondary if "disagree" in line] == []


def test_twenty_controls_or_more_on_the_gpu_raised_nothing() -> None:
    named = [name_run(run, FAULTS[run.cell.key.model]) for run in CONTROL_RUNS]
    assert [entry for entry in named if not entry.killed] == []
    assert sum(FAULTS[entry.name].needs == "gpu" for entry in named) >= 20


def test_corpus_is_small_and_free_of_the_machine() -> None:
    files = [path for path in ZOO_CORPUS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 8 * 2**20
    for path in files:
        if path.suffix != ".xz":
            text = path.read_text(encoding="utf-8")
            assert machine_path(text) is None, path


def test_a_fault_without_its_tool_is_left_out_and_not_held_against_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphgate.zoo.ENTRY", "suites.selftest.zoo_children:lacks_a_tool")
    report = run_zoo(tmp_path, only=["segfault"])
    assert (report.named, report.left_out) == ((), {"segfault": "nvcc is not installed here"})


def test_rows_say_what_they_expect() -> None:
    def is_whole(fault: Fault) -> bool:
        dies = fault.status in ("CRASH", "HANG")
        return dies == (fault.kind is not None) == (fault.title is not None)

    zoo: Zoo = load_zoo()
    assert [fault.name for fault in zoo.faults if not is_whole(fault)] == []
