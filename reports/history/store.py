"""The history file: opened by several writers at once, and added to a night at a time.

Owns: connections, transactions, and the rows that a night becomes. Must not know: what is
asked of them, policy, or the clock (it is told when the night was).
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fixtures.cells.cell import Plan
from fixtures.errors import ConfigError, InfraError
from fixtures.evidence.cellrun import Attempt, CellRun
from fixtures.evidence.crash import CrashKind, CrashReport
from gates.verdict import Status, Verdict, Verdicts
from reports.history.schema import migrate
from reports.html.figures import CellFigures, scores_of
from reports.reasons import headline, rule_of
from reports.text import one_line

_PATIENCE = 60.0
"""Seconds that a writer waits for another one."""
_NO_FIGURES: Mapping[str, CellFigures] = {}


class History:
    """The history in the file at `path`, made where it is missing. Use it as a context manager.

    Raises:
        ConfigError: the file is no history, or one of a later version.
        InfraError: it can't be written, or another writer held it too long.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            migrate(self._connection, str(path))

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def rows(self, query: str, *values: str | int) -> list[tuple[str | int | float, ...]]:
        """The rows of a query, which must not change anything."""
        with self._explained():
            return self._connection.execute(query, values).fetchall()

    def add_night(
        self,
        verdicts: Verdicts,
        plan: Plan,
        runs: Mapping[str, CellRun],
        at: datetime,
        figures: Mapping[str, CellFigures] = _NO_FIGURES,
    ) -> bool:
        """Add a night, whole or not at all. False: the very same night is there already.

        Args:
            at: when the night was, with its time zone.
            figures: scores by cell key, where they are not those of the verdict's findings.
        """
        moment = at.astimezone(UTC).isoformat(timespec="seconds")
        digest = _digest(verdicts, runs, moment)
        with self._explained(), self._transaction():
            night = self._add_head(verdicts, plan, runs, moment, digest)
            if night is None:
                return False
            for verdict in verdicts.verdicts:
                key = str(verdict.key)
                cell = self._id("cell", "key", key)
                place = (cell, moment, night)
                run = runs.get(key)
                self._add_result(place, verdict)
                self._add_scores(place, figures.get(key), verdict)
                if run is not None:
                    self._add_timings(place, run)
                    self._add_crashes(place, run)
        return True

    def _add_head(
        self,
        verdicts: Verdicts,
        plan: Plan,
        runs: Mapping[str, CellRun],
        moment: str,
        digest: str,
    ) -> int | None:
        crashes = (crash for run in runs.values() for _, crash in _crashes(run))
        cursor = self._connection.execute(
            "INSERT INTO night (at, vllm, source, sweep, exit_code, cells, attempts, "
            "infra_attempts, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (digest) DO NOTHING",
            (
                moment,
                one_line(plan.source.version, 200),
                one_line(verdicts.source, 200),
                one_line(verdicts.sweep, 200),
                int(verdicts.decision.exit_code),
                len(verdicts.verdicts),
                sum(len(run.attempts) for run in runs.values()),
                sum(crash.kind is CrashKind.INFRA for crash in crashes),
                digest,
            ),
        )
        return cursor.lastrowid if cursor.rowcount else None

    def _add_result(self, place: tuple[int, str, int], verdict: Verdict) -> None:
        found = headline(verdict)
        rule = rule_of(found) if found is not None and verdict.status is not Status.PASS else ""
        self._connection.execute(
            "INSERT INTO result VALUES (?, ?, ?, ?, ?, ?)",
            (*place, verdict.status.value, rule, verdict.attempts),
        )

    def _add_timings(self, place: tuple[int, str, int], run: CellRun) -> None:
        for phase, seconds in _seconds_by_phase(run.attempts).items():
            number = self._id("phase", "name", one_line(phase, 80))
            self._connection.execute(
                "INSERT INTO timing VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*place, number, seconds),
            )

    def _add_crashes(self, place: tuple[int, str, int], run: CellRun) -> None:
        cell, moment, night = place
        for attempt, crash in _crashes(run):
            title = self._id("title", "text", one_line(crash.title, 500))
            self._connection.execute(
                "INSERT INTO crash VALUES (?, ?, ?, ?, ?, ?)",
                (title, moment, night, cell, attempt, crash.kind.value),
            )

    def _add_scores(
        self, place: tuple[int, str, int], figures: CellFigures | None, verdict: Verdict
    ) -> None:
        """One score a task: that of its first test."""
        cell, moment, night = place
        found = figures.scores if figures is not None else scores_of(verdict)
        for one in {one.task: one for one in reversed(found)}.values():
            values = (one.task, one.score, one.low, one.high, one.questions)
            self._connection.execute(
                "INSERT INTO score VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (cell, moment, night, *values),
            )

    def _id(self, table: str, column: str, text: str) -> int:
        """The number that stands for a text; a new one is given where it is not known."""
        # Table and column are literals of this file.
        find = f"SELECT id FROM {table} WHERE {column} = ?"  # noqa: S608
        known = self._connection.execute(find, (text,)).fetchone()
        if known is not None:
            return int(known[0])
        add = f"INSERT INTO {table} ({column}) VALUES (?)"  # noqa: S608
        return int(self._connection.execute(add, (text,)).lastrowid or 0)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise InfraError(f"{self._path}: the history can't be used: {error}") from error
        except sqlite3.IntegrityError as error:
            raise ConfigError(
                f"does not take this night: {error}",
                source=self._path,
                remedy="judge the night's evidence again, and import that",
            ) from error
        except sqlite3.DatabaseError as error:
            raise ConfigError(
                f"is no history: {error}", source=self._path, remedy="name another file"
            ) from error
        except OSError as error:
            raise ConfigError(
                f"can't be made: {error.strerror}", source=self._path, remedy="name another file"
            ) from error


def _crashes(run: CellRun) -> Iterator[tuple[int, CrashReport]]:
    """Number (from 0) and report of every failed attempt of a cell."""
    for number, attempt in enumerate(run.attempts):
        own = run.crash if number == len(run.attempts) - 1 else None
        report = own or attempt.crash
        if report is not None:
            yield number, report


def _seconds_by_phase(attempts: Iterable[Attempt]) -> dict[str, float]:
    """Seconds of the last attempt, which is the one that the verdict is about."""
    last = tuple(attempts)[-1:]
    return dict(last[0].timings) if last else {}


def _digest(verdicts: Verdicts, runs: Mapping[str, CellRun], moment: str) -> str:
    """What tells a night from all others: when it was, its verdicts and how its cells ended."""
    parts = [moment, verdicts.to_json(indent=None)]
    parts += [
        "\n".join(attempt.model_dump_json() for attempt in runs[key].attempts)
        for key in sorted(runs)
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
