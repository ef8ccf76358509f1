"""The planted zoo: faults that must be named, run through the same line as every cell.

Owns the rows of suites/zoo.yaml, the cells they become, and planted held against named.
`graphgate mutants --zoo` calls `run_zoo`. Must not know how a fault is planted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import (
    Cell,
    CellKey,
    Deadlines,
    Name,
    Plan,
    Requirements,
    Resolution,
    Source,
)
from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.crash import CrashKind
from fixtures.run.environment import ChildEnvironment
from fixtures.run.events import CellFinished
from fixtures.run.runner import run_plan
from fixtures.schema import SCHEMA_VERSION, Record, read_yaml
from fixtures.triage.device import kernel_title
from gates.judge import judge_trial
from gates.policy import read_policy
from gates.verdict import FaultClass, Status, Verdict

ZOO = Path(__file__).parents[1] / "suites" / "zoo.yaml"
ENTRY = "fixtures.child.zoo.trial:answer"
SOURCE = Source(
    kind="checkout", request="zoo", version="0", identity="planted-zoo", python_path="/nowhere"
)
_SHARED_GIB = 2.0
_ON_DEVICE = frozenset({"core", "driver", "cuda-gdb"})


class Fault(Record):
    """A row of suites/zoo.yaml, whose head explains the fields."""

    name: Name
    fault: str = Field(pattern=r"^[a-z_]+:[a-z_]+$")
    needs: Literal["cpu", "gpu"]
    fault_class: FaultClass = Field(alias="class")
    graph: bool = False
    patience: float = Field(default=90.0, gt=0)
    status: Status
    kind: CrashKind | None = None
    title: str | None = None
    kernel: str | None = None
    exception: str | None = None
    twin: bool = True


class Zoo(Record):
    """All faults, in the order in which they are shown."""

    faults: tuple[Fault, ...]


class Named(Record):
    """One cell of the zoo: what was planted and what it was called.

    `killed` says that everything expected came true; `gate` is the gate that spoke;
    `why` tells what differs or, where nothing does, what the gate said. A control is a
    fault's clean twin: it is `killed` where it passed, for then nothing was raised.
    `class` and the like are None where nothing is expected of them.
    """

    name: str
    control: bool
    expected_class: FaultClass | None
    expected_status: Status
    expected_title: str | None
    killed: bool
    gate: str
    status: Status
    kind: CrashKind | None
    title: str | None
    kernel: str | None
    exception: str | None
    sources: tuple[str, ...]
    why: str


class ZooReport(Record):
    """All that was run; `left_out` names the faults that this machine cannot run, and why."""

    schema_version: int = SCHEMA_VERSION
    named: tuple[Named, ...]
    left_out: dict[str, str] = Field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every planted fault was named and no control raised anything."""
        return bool(self.named) and all(entry.killed for entry in self.named)


def load_zoo(path: Path = ZOO) -> Zoo:
    """The faults of the file at `path`.

    Raises:
        ConfigError: the file does not fit, or a name stands twice.
    """
    try:
        zoo = Zoo.model_validate(read_yaml(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(first["msg"], source=path, key=key, remedy="see its head") from error
    names = [fault.name for fault in zoo.faults]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{twice[0]} stands twice", source=path, remedy="rename one")
    return zoo


def run_zoo(
    out: Path,
    *,
    gpus: int = 0,
    environment: ChildEnvironment | None = None,
    only: Iterable[str] = (),
    controls: bool = True,
    jobs: int | None = None,
    told: Callable[[Named], None] = lambda _: None,
) -> ZooReport:
    """Run the faults that this machine can run, and their clean twins, under `out`.

    Args:
        out: an OUT folder, as of any run; `graphgate judge OUT` can read it afterwards.
        gpus: GPUs that may be used; without one the faults that need one are left out.
        environment: the children's Python, which must have torch and Triton for GPU faults;
            default: this Python.
        only: names of faults; empty means all.
        controls: whether the clean twins run too.
        jobs: cells at a time.
        told: called with each result as it comes.

    Raises:
        ConfigError: `only` names a fault that there is not, or `out` cannot be used.
        InfraError: evidence could not be written.
    """
    faults, left_out = _chosen(load_zoo().faults, frozenset(only), gpus)
    rows = {str(cell.key): (cell, fault) for fault in faults for cell in _cells(fault, controls)}
    if not rows:
        return ZooReport(named=(), left_out=left_out)
    # A GPU's lease is waited for in order, so those that share one come together.
    cells = sorted((cell for cell, _ in rows.values()), key=_takes_all)
    plan = Plan(source=SOURCE, sweep="zoo", cells=tuple(cells))
    base = environment or ChildEnvironment(python=sys.executable)
    # No fork server: a child that faults must not have shared anything with another one.
    children = base.model_copy(update={"entry": ENTRY, "fork_server": False, "preload": ()})
    named = []
    for event in run_plan(plan, out, children, jobs=jobs):
        if not isinstance(event, CellFinished):
            continue
        fault = rows[str(event.run.cell.key)][1]
        if event.run.observation is not None and event.run.observation.refusal is not None:
            left_out[fault.name] = event.run.observation.refusal.why
            continue
        named.append(name_run(event.run, fault))
        told(named[-1])
    order = list(rows)
    named.sort(key=lambda entry: order.index(_key_text(entry, rows)))
    return ZooReport(named=tuple(named), left_out=left_out)


def zoo_cell(fault: Fault, *, planted: bool) -> Cell:
    """The cell of a fault, or of its clean twin."""
    mode = GraphMode.FULL if fault.graph else GraphMode.NONE
    return Cell(
        key=CellKey(
            model=fault.name,
            mode=mode,
            breakable=Breakable.OFF,
            tier=Tier.CANARY,
            variant="planted" if planted else "clean",
        ),
        model={"fault": fault.fault, "planted": planted},
        deadlines=Deadlines(start=120.0, work=fault.patience, exit=fault.patience),
        requirements=_requirements(fault, planted=planted),
        expected=Resolution(mode=mode, reason="the trial of the zoo"),
        mutant=fault.name if planted else None,
    )


def name_run(run: CellRun, fault: Fault) -> Named:
    """What the run of a fault or of its twin was called, held against what was planted."""
    planted = run.cell.mutant is not None
    verdict = judge_trial(run, read_policy())
    report = run.crash
    on_device = report is not None and _ON_DEVICE.intersection(report.sources)
    named = Named(
        name=fault.name,
        control=not planted,
        expected_class=fault.fault_class if planted else None,
        expected_status=fault.status if planted else Status.PASS,
        expected_title=fault.title if planted else None,
        killed=False,
        gate=_speaker(verdict),
        status=verdict.status,
        kind=report.kind if report else None,
        title=report.title if report else None,
        kernel=kernel_title(report.frame) if report and report.frame and on_device else None,
        exception=report.exception if report else None,
        sources=report.sources if report else (),
        why="",
    )
    wrong = _differences(named, fault)
    spoken = next(f.why for f in verdict.findings if f.status is verdict.status)
    return named.model_copy(update={"killed": not wrong, "why": "; ".join(wrong) or spoken})


def as_text(report: ZooReport) -> str:
    """Planted against named, a line each, and the figures."""
    faults = [entry for entry in report.named if not entry.control]
    controls = [entry for entry in report.named if entry.control]
    width = max((len(entry.name) for entry in report.named), default=0)
    lines = [
        f"{'ok ' if entry.killed else 'NOT'} {entry.name:<{width}} {entry.status:<8} "
        f"{entry.title or '-'}" + ("" if entry.killed else f"  [{entry.why}]")
        for entry in (*faults, *(entry for entry in controls if not entry.killed))
    ]
    found = sum(entry.killed for entry in faults)
    quiet = sum(entry.killed for entry in controls)
    lines.append(f"{found} of {len(faults)} planted faults named as expected")
    lines.append(f"{quiet} of {len(controls)} clean twins raised nothing")
    for why in sorted(set(report.left_out.values())):
        names = ", ".join(name for name, other in report.left_out.items() if other == why)
        lines.append(f"left out ({why}): {names}")
    return "\n".join(lines)


def _chosen(
    faults: tuple[Fault, ...], only: frozenset[str], gpus: int
) -> tuple[list[Fault], dict[str, str]]:
    unknown = sorted(only - {fault.name for fault in faults})
    if unknown:
        raise ConfigError(f"there is no fault {unknown[0]}", source=ZOO, remedy="see its names")
    wanted = [fault for fault in faults if not only or fault.name in only]
    able = [fault for fault in wanted if fault.needs == "cpu" or gpus]
    return able, {fault.name: "no GPU to use" for fault in wanted if fault not in able}


def _cells(fault: Fault, controls: bool) -> list[Cell]:
    twins = [zoo_cell(fault, planted=False)] if controls and fault.twin else []
    return [zoo_cell(fault, planted=True), *twins]


def _requirements(fault: Fault, *, planted: bool) -> Requirements:
    """A fault on the device gets a GPU of its own: its Xid must not be taken for a neighbour's."""
    if fault.needs == "cpu":
        return Requirements()
    alone = planted and fault.kernel is not None
    return Requirements(gpus=1, gpu_memory_gib=0.0 if alone else _SHARED_GIB)


def _takes_all(cell: Cell) -> bool:
    return cell.requirements.gpus > 0 and cell.requirements.gpu_memory_gib == 0


def _key_text(entry: Named, rows: dict[str, tuple[Cell, Fault]]) -> str:
    return next(
        key
        for key, (cell, fault) in rows.items()
        if fault.name == entry.name and (cell.mutant is None) is entry.control
    )


def _speaker(verdict: Verdict) -> str:
    return str(next(f.gate for f in verdict.findings if f.status is verdict.status))


def _differences(named: Named, fault: Fault) -> list[str]:
    """What is not as planted. A kernel must be named by the GPU core, whoever else names it."""
    expected: dict[str, str | None] = {"status": Status.PASS, "title": None}
    if not named.control:
        expected = {key: getattr(fault, key) for key in ("status", "kind", "title", "kernel")}
    if not named.control and fault.exception is not None:
        expected["exception"] = fault.exception
    wrong = [
        f"{field} is {getattr(named, field)}, not {value}"
        for field, value in expected.items()
        if getattr(named, field) != value
    ]
    if not named.control and fault.kernel and "core" not in named.sources:
        wrong.append(f"the kernel is named by {', '.join(named.sources) or 'nothing'}, not a core")
    return wrong
