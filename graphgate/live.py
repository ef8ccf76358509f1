"""What a person sees while a verb works: bars on a terminal, plain lines anywhere else.

Owns: the console, and the drawing of slow steps. Must not know: verdicts, or how the events
of a run look, which is reports/live.py's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from fixtures.run.events import RunEvent
from reports.live import follow
from reports.text import one_line

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
        shown = one_line(name)
        if not self.console.is_terminal:
            self.console.print(shown, markup=False, soft_wrap=True)
            yield lambda done, total: None
            return
        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
        with Bars(SpinnerColumn(), *columns, TimeElapsedColumn(), console=self.console) as bars:
            task = bars.add_task(escape(shown), total=None)
            yield lambda done, total: bars.update(task, completed=done, total=total)

    def follow(self, events: Iterable[RunEvent], cells: int) -> list[CellRun]:
        """Shows the events of a run of `cells` cells, and returns what was run."""
        return list(follow(events, self.console, cells=cells))
