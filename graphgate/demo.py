"""The verb `demo`: all reports, drawn from the evidence that the repository holds.

Owns which recorded evidence makes which scene. Nothing is run and nothing is fetched: the
evidence is unpacked, read, judged and drawn like that of any night.
"""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

import suites
from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import Cell, CellKey, Plan, Resolution
from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import Attempt, CellRun, Provenance
from fixtures.evidence.exits import Exited
from fixtures.run.outfolder import PLAN_FILE, OutFolder
from fixtures.triage.reader import read_failure
from gates.evidence import LEDGER_FILE, Evidence, judge_evidence, read_evidence
from gates.known import read_known_issues
from gates.policy import read_policy
from gates.verdict import Verdicts
from graphgate.judge import VERDICTS_FILE
from graphgate.report import HTML_FILE, report_into
from graphgate.simulated import write_night
from graphgate.zoo import SOURCE
from reports.files import write_whole
from reports.history.page import render_history, trends
from reports.history.store import History
from reports.html.page import render_page

CORPUS = Path(str(suites.__file__)).parent / "selftest" / "corpus"
_HISTORY, _TRENDS, _INDEX = "history.db", "trends.html", "index.html"
_SIMULATED = "simulated"


class Scene(NamedTuple):
    """One page of the demo: `link` leads to it, `origin` is where its evidence comes from."""

    title: str
    shows: str
    origin: str
    link: str
    folder: str = ""
    exit_code: int = 0


_PAST = Scene(
    "Past nights",
    "when cells turned, failures by title, seconds by phase",
    "The folders above, taken for nights in a row; in truth they were recorded on one day.",
    _TRENDS,
)


class _Recorded(NamedTuple):
    """A run of the corpus, and the folder of the demo that shows it."""

    run: str
    name: str
    title: str
    shows: str


_RECORDED = (
    _Recorded(
        "0.21.0",
        "s2",
        "vLLM 0.21.0",
        "FULL graphs share state with their warm-up (class C), the cause of S2",
    ),
    _Recorded(
        "0.26.0",
        "defects",
        "vLLM 0.26.0",
        "two defects: inputs out of range (E), frozen query length (D)",
    ),
    _Recorded(
        "h200-scores",
        "scores",
        "Scores of vLLM 0.26.0 on a GPU",
        "a trained model's answers with graphs against those without, and four planted faults",
    ),
    _Recorded(
        "h200-0.26.0/matrix",
        "canary",
        "Canary of vLLM 0.26.0 on a GPU",
        "three models with real kernels: two crashes, a frozen query length (D) in FULL, "
        "the rest right",
    ),
    _Recorded(
        "0.33.0",
        "green",
        "vLLM 0.33.0",
        "a green night: every cell captured, replayed and right",
    ),
)
"""Recorded runs, oldest release first."""

_FAULTS = ("illegal-read-at-replay", "endless-replay", "host-deadlock")
"""Of the zoo: a coredump with its kernel, a hang on the GPU, a hang of the host."""


def demo(
    out: Annotated[
        Path, typer.Option(help="The folder for the demo; must be new or a demo.")
    ] = Path("out/demo"),
) -> None:
    """Draw all reports from recorded evidence: green, S2, coredump, hangs, a sick node, scores.

    One night of scores is simulated, and says so: a score block has not been recorded.
    """
    _make_room(out)
    now = datetime.now(UTC)
    scenes = [_night(out / night.name, night) for night in _RECORDED]
    scenes.insert(0, _faults(out / "faults"))
    _remember(out, scenes, now)
    shown = [*scenes[::-1], _simulated(out / _SIMULATED), _PAST]
    index = render_page("demo.html.jinja", scenes=shown, timestamp=now)
    write_whole(out / _INDEX, index)
    for scene in shown:
        decision = f"exit code {scene.exit_code}: " if scene.folder else ""
        typer.echo(f"{out / scene.link}\n    {decision}{scene.shows}")
    typer.echo(f"Next: open {out / _INDEX} in a browser")


def _make_room(out: Path) -> None:
    """Remove an earlier demo, and nothing else.

    Raises:
        ConfigError: the folder holds something that is no demo.
    """
    if not out.exists() or not any(out.iterdir()):
        return
    if not (out / _INDEX).exists() or not (out / "green" / PLAN_FILE).exists():
        raise ConfigError("is no demo", source=out, remedy="name a new folder")
    for name in (_SIMULATED, "faults", *(night.name for night in _RECORDED)):
        shutil.rmtree(out / name, ignore_errors=True)
    for path in (*out.glob(f"{_HISTORY}*"), out / _TRENDS, out / _INDEX):
        path.unlink(missing_ok=True)


def _night(out: Path, night: _Recorded) -> Scene:
    """A recorded run as an OUT folder, judged now."""
    recorded = CORPUS / "runs" / night.run
    shutil.copytree(recorded, out)
    packed = out / f"{LEDGER_FILE}.xz"
    (out / LEDGER_FILE).write_bytes(lzma.decompress(packed.read_bytes()))
    packed.unlink()
    about = json.loads((recorded / "provenance.json").read_text(encoding="utf-8"))
    missing = f" Left out: {about['left out']}." if "left out" in about else ""
    return _drawn(
        out,
        title=night.title,
        shows=night.shows,
        origin=f"Recorded {about['date']} on {about['machine']}: {about['what']}.{missing}",
    )


def _simulated(out: Path) -> Scene:
    """A score tier's night. It is no night of the history: nothing of it was recorded."""
    write_night(out)
    return _drawn(
        out,
        title="Scores (simulated)",
        shows="simulated answers: FULL as sick as S2, a drop of two points, a healthy mode",
        origin="Simulated: answers were drawn at published scores, and no model ran.",
    )


def _faults(out: Path) -> Scene:
    """A night made of recorded failures, each read by triage as if it had just happened."""
    folder = OutFolder(out)
    makers: list[Callable[[OutFolder], CellRun]] = [
        *(lambda target, name=name: _fault(target, name) for name in _FAULTS),
        _sick_node,
    ]
    runs = [make(folder) for make in makers]
    plan = Plan(source=SOURCE, sweep="demo", cells=tuple(run.cell for run in runs))
    (out / PLAN_FILE).write_text(plan.to_json(), encoding="utf-8")
    for run in runs:
        folder.ledger.append(run)
    return _drawn(
        out,
        title="A night of faults",
        shows="a coredump with its kernel, a hang on the GPU, a hang of the host, a sick node",
        origin="Faults planted on an NVIDIA H200; the sick node is put together from a recorded "
        "reading, in which an error was planted, and a log in the public wording.",
    )


def _fault(target: OutFolder, name: str) -> CellRun:
    """A fault of the zoo: its logs and core are unpacked and read anew."""
    recorded = CORPUS / "zoo" / name
    run = CellRun.read_json(recorded / "run.json")
    attempt = target.cell_folder(run.cell.key) / "attempt-0"
    attempt.mkdir(parents=True)
    for path in recorded.iterdir():
        if path.suffix == ".xz":
            (attempt / path.stem).write_bytes(lzma.decompress(path.read_bytes()))
        elif path.suffix in (".log", ".txt") or path.name == "observation.json":
            shutil.copyfile(path, attempt / path.name)
    last = run.attempts[-1]
    crash = read_failure(attempt, last.exit, xids=last.xids)
    return run.model_copy(update={"crash": crash})


def _sick_node(target: OutFolder) -> CellRun:
    """A node whose memory failed: a recorded reading, and the log of such a failure."""
    key = CellKey(model="sick-node", mode=GraphMode.FULL, breakable=Breakable.OFF, tier=Tier.CANARY)
    cell = Cell(
        key=key,
        model={},
        expected=Resolution(mode=GraphMode.FULL, reason="what was asked for"),
    )
    folder = target.cell_folder(key) / "attempt-0"
    folder.mkdir(parents=True)
    shutil.copyfile(CORPUS / "logs" / "ecc" / "stderr.log", folder / "stderr.log")
    reading = Attempt.read_json(CORPUS / "nodes" / "ecc" / "attempt.json")
    crash = read_failure(folder, Exited(code=1), xids=reading.xids)
    changes = {"exit": Exited(code=1), "crash": crash, "artifacts": ()}
    attempt = reading.model_copy(update=changes)
    return CellRun(
        cell=cell,
        attempts=(attempt,),
        crash=crash,
        provenance=Provenance(vllm=SOURCE.version, source=SOURCE.identity, gpu="NVIDIA H200"),
    )


def _drawn(out: Path, *, title: str, shows: str, origin: str) -> Scene:
    """The evidence in `out`, judged by the rules of today, with all of its reports."""
    evidence = _evidence(out)
    verdicts = judge_evidence(evidence, read_policy(), read_known_issues(), date.today())
    write_whole(out / VERDICTS_FILE, verdicts.to_json().encode())
    report_into(verdicts, [out], out)
    link = f"{out.name}/{HTML_FILE.as_posix()}"
    return Scene(title, shows, origin, link, out.name, int(verdicts.decision.exit_code))


def _evidence(out: Path) -> Evidence:
    return read_evidence([out], read_policy())


def _remember(out: Path, scenes: list[Scene], now: datetime) -> None:
    """The scenes as nights in a row up to now, and the page of their trends."""
    with History(out / _HISTORY) as history:
        for age, scene in enumerate(reversed(scenes)):
            folder = out / scene.folder
            evidence = _evidence(folder)
            verdicts = Verdicts.read_json(folder / VERDICTS_FILE)
            history.add_night(verdicts, evidence.plan, evidence.runs, now - timedelta(days=age))
        page = render_history(trends(history), now)
    write_whole(out / _TRENDS, page)
