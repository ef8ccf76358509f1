"""What a person sees while a verb works: bars on a terminal, plain lines anywhere else.

Owns: the drawing of run events and of slow steps, on stderr. Must not know: verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bars

from fixtures.run.events import CellFinished, CellProgress, CellStarted, Note, RunEvent

if TYPE_CHECKING:
    from fixtures.evidence.cellrun import CellRun
    from fixtures.source.progress import Meter


class Live:
    """Draws on `console`; rich tells whether that is a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)

    @contextmanager
    def step(self, name: str) -> Iterator[Meter]:
        """A slow step; the meter that it yields takes bytes done and bytes in all."""
        if not self.console.is_terminal:
            self._line(name)
            yield lambda done, total: None
            return
        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
        with Bars(SpinnerColumn(), *columns, TimeElapsedColumn(), console=self.console) as bars:
            task = bars.add_task(escape(name), total=None)
            yield lambda done, total: bars.update(task, completed=done, total=total)

    def follow(self, events: Iterable[RunEvent], cells: int) -> list[CellRun]:
        """Shows the events of a run of `cells` cells, and returns what was run."""
        shown = self._on_terminal if self.console.is_terminal else self._in_lines
        return list(shown(events, cells))

    def _on_terminal(self, events: Iterable[RunEvent], cells: int) -> Iterator[CellRun]:
        counted = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        columns = SpinnerColumn(), *counted, TextColumn("{task.description}")
        running: dict[str, str] = {}
        with Bars(*columns, console=self.console) as bars:
            task = bars.add_task("", total=cells)
            for event in events:
                if isinstance(event, CellStarted):
                    running[str(event.key)] = ""
                elif isinstance(event, CellProgress):
                    running[str(event.key)] = event.phase
                elif isinstance(event, CellFinished):
                    running.pop(str(event.run.cell.key), None)
                    bars.advance(task)
                    yield event.run
                elif isinstance(event, Note):
                    bars.console.print(escape(event.text))
                bars.update(task, description=_running(running))

    def _in_lines(self, events: Iterable[RunEvent], cells: int) -> Iterator[CellRun]:
        done = 0
        for event in events:
            if isinstance(event, CellFinished):
                done += 1
                self._line(f"[{done}/{cells}] {_ended(event.run)}")
                yield event.run
            elif isinstance(event, CellStarted) and event.attempt:
                self._line(f"{event.key}: attempt {event.attempt + 1}")
            elif isinstance(event, Note):
                self._line(event.text)

    def _line(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)


def _running(cells: dict[str, str]) -> str:
    """The cells at work, the longest-running first."""
    shown = [f"{key} {phase}".rstrip() for key, phase in cells.items()]
    return escape(", ".join(shown[:2]) + (f" and {len(shown) - 2} more" if len(shown) > 2 else ""))


def _ended(run: CellRun) -> str:
    seconds = sum(sum(attempt.timings.values()) for attempt in run.attempts)
    died = f", {run.crash.title}" if run.crash else ""
    return f"{run.cell.key} ran in {seconds:.1f} s{died}"
