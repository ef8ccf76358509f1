"""Progress on a terminal while cells run; elsewhere, one line per finished cell.

Owns: how the runner's events look. Must not know: what a run is worth, which is judged
afterwards, or how cells are run.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from fixtures.cells.cell import CellKey
from fixtures.evidence.cellrun import CellRun
from fixtures.run.events import (
    CellFinished,
    CellProgress,
    CellQueued,
    CellStarted,
    Note,
    RunEvent,
)
from reports.text import one_line

_LABEL_WIDTH = 44
"""Room for a cell's key and phase beside bar, count and clock on 80 columns."""


def follow(
    events: Iterable[RunEvent], console: Console | None = None, *, cells: int = 0
) -> tuple[CellRun, ...]:
    """Show `events` as they come, and hand back the runs that finished.

    `cells` is how many there are in all, where that is known before they are queued.
    """
    runs = []
    with LiveProgress(console, cells=cells) as progress:
        for event in events:
            progress.show(event)
            if isinstance(event, CellFinished):
                runs.append(event.run)
    return tuple(runs)


class LiveProgress:
    """A bar for all cells and one for each that runs, on stderr unless told otherwise.

    Use it as a context manager.
    """

    def __init__(self, console: Console | None = None, *, cells: int = 0) -> None:
        self._console = console or Console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._all = self._bars.add_task("all cells", total=cells)
        self._cells = cells
        self._queued = 0
        self._finished = 0
        self._running: dict[CellKey, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def show(self, event: RunEvent) -> None:
        """Show one event."""
        match event:
            case CellQueued():
                self._queued += 1
                self._bars.update(self._all, total=self._total)
            case CellStarted(key=key, attempt=attempt):
                self._start(key, attempt)
            case CellProgress():
                self._advance(event)
            case CellFinished(run=run):
                self._finish(run)
            case Note(text=text):
                self._print(f"note: {one_line(text)}")

    @property
    def _total(self) -> int:
        return max(self._cells, self._queued)

    def _start(self, key: CellKey, attempt: int) -> None:
        self._drop(key)
        again = f" attempt {attempt + 1}" if attempt else ""
        self._running[key] = self._bars.add_task(_label(f"{key}{again}"), total=None)

    def _advance(self, event: CellProgress) -> None:
        task = self._running.get(event.key)
        if task is not None:
            label = _label(f"{event.key} {event.phase} {event.unit}")
            self._bars.update(task, description=label, completed=event.done, total=event.total)

    def _finish(self, run: CellRun) -> None:
        self._drop(run.cell.key)
        self._finished += 1
        self._bars.update(self._all, completed=self._finished)
        if _completed(run) and self._console.is_terminal:
            return  # the bar says enough
        self._print(f"[{self._finished}/{self._total}] {run.cell.key} {_outcome(run)}")

    def _drop(self, key: CellKey) -> None:
        task = self._running.pop(key, None)
        if task is not None:
            self._bars.remove_task(task)

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


def _label(text: str) -> str:
    return one_line(text, _LABEL_WIDTH).ljust(_LABEL_WIDTH)


def _completed(run: CellRun) -> bool:
    return run.observation is not None and run.crash is None


def _outcome(run: CellRun) -> str:
    """How a run went, as a fact: whether it is good is judged later."""
    seconds = sum(sum(attempt.timings.values()) for attempt in run.attempts)
    tries = f", {len(run.attempts)} attempts" if len(run.attempts) > 1 else ""
    title = f": {one_line(run.crash.title, 200)}" if run.crash is not None else ""
    word = "completed" if _completed(run) else f"did not complete{title}"
    return f"{word} ({seconds:.1f} s{tries})"
