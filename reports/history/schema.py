"""The tables of the history file, and how an older file becomes a newer one.

Owns: SQL that makes tables. Must not know: where rows come from or what is asked of them.

Rows are added and never changed: triggers refuse anything else. Times are text in UTC,
ISO 8601 to the second, so that they sort.
"""

from __future__ import annotations

import sqlite3

from fixtures.errors import ConfigError

_TABLES = """
-- `attempts` are those of all cells, `infra_attempts` those that the node failed.
CREATE TABLE night (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    vllm TEXT NOT NULL,
    source TEXT NOT NULL,
    sweep TEXT NOT NULL,
    exit_code INTEGER NOT NULL,
    cells INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    infra_attempts INTEGER NOT NULL,
    digest TEXT NOT NULL UNIQUE
);
CREATE INDEX night_by_time ON night (at, id);

CREATE TABLE cell (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);
CREATE TABLE title (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE phase (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- One row a night and cell, in the order in which a cell's past is read.
CREATE TABLE result (
    cell INTEGER NOT NULL REFERENCES cell,
    at TEXT NOT NULL,
    night INTEGER NOT NULL REFERENCES night,
    status TEXT NOT NULL,
    rule TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    PRIMARY KEY (cell, at, night)
) WITHOUT ROWID;
CREATE INDEX result_by_night ON result (night);

CREATE TABLE timing (
    cell INTEGER NOT NULL REFERENCES cell,
    at TEXT NOT NULL,
    night INTEGER NOT NULL REFERENCES night,
    phase INTEGER NOT NULL REFERENCES phase,
    seconds REAL NOT NULL,
    PRIMARY KEY (cell, at, night, phase)
) WITHOUT ROWID;

CREATE TABLE crash (
    title INTEGER NOT NULL REFERENCES title,
    at TEXT NOT NULL,
    night INTEGER NOT NULL REFERENCES night,
    cell INTEGER NOT NULL REFERENCES cell,
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL,
    PRIMARY KEY (title, at, night, cell, attempt)
) WITHOUT ROWID;

-- Fractions of 1 with the ends of their two-sided interval.
CREATE TABLE score (
    cell INTEGER NOT NULL REFERENCES cell,
    at TEXT NOT NULL,
    night INTEGER NOT NULL REFERENCES night,
    task TEXT NOT NULL,
    score REAL NOT NULL,
    low REAL NOT NULL,
    high REAL NOT NULL,
    questions INTEGER NOT NULL,
    PRIMARY KEY (cell, task, at, night)
) WITHOUT ROWID;
"""

_NAMES = ("night", "cell", "title", "phase", "result", "timing", "crash", "score")

_FROZEN = "".join(
    f"""
CREATE TRIGGER {name}_no_{verb.lower()} BEFORE {verb} ON {name}
BEGIN SELECT RAISE(ABORT, 'the history is append-only'); END;
"""
    for name in _NAMES
    for verb in ("UPDATE", "DELETE")
)

MIGRATIONS: tuple[str, ...] = (_TABLES + _FROZEN,)
"""Step n makes a file of version n+1 out of one of version n; no step is ever changed."""


def migrate(connection: sqlite3.Connection, source: str) -> None:
    """Bring the file to today's version; a second writer that does so waits and finds it done.

    Raises:
        ConfigError: a later GraphGate wrote the file.
        sqlite3.Error: the file is no database or can't be written.
    """
    if _version(connection, source) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another writer may have been quicker while this one waited.
        for number in range(_version(connection, source), len(MIGRATIONS)):
            for statement in _statements(MIGRATIONS[number]):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, source: str) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise ConfigError(
            f"is a history of version {version}, and only {len(MIGRATIONS)} is known here",
            source=source,
            remedy="read it with the GraphGate that wrote it",
        )
    return version


def _statements(script: str) -> list[str]:
    """The statements of a script; `executescript` would end the transaction around it."""
    statements, part = [], ""
    for piece in script.split(";"):
        part += f"{piece};"
        if sqlite3.complete_statement(part) and part.strip() != ";":
            statements.append(part)
            part = ""
    return statements
