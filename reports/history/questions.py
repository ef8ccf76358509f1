"""What is asked of the history: turns, titles, flakes, times and scores.

Owns: the queries and the records that they give. Must not know: how an answer is shown.
Whether a status blocks is `gates.verdict`'s word; nights on which a cell could not be
judged (INFRA, MISSING, CONFIG) are no change.
"""

from __future__ import annotations

from fixtures.cells.cell import CellKey
from fixtures.errors import ConfigError
from fixtures.schema import Record
from gates.verdict import Status
from reports.history.store import History

_UNJUDGED = frozenset({Status.INFRA, Status.MISSING, Status.CONFIG})
_BAD = frozenset(status for status in Status if status.blocks) - _UNJUDGED


def _is_one_of(statuses: frozenset[Status]) -> str:
    """SQL that asks whether a status is one of these; their words are ours."""
    return f"status IN ({', '.join(repr(status.value) for status in sorted(statuses))})"


class NightRow(Record):
    """One night."""

    at: str
    vllm: str
    source: str
    sweep: str
    exit_code: int
    cells: int


class Turn(Record):
    """A cell that turned between two nights: the change lies behind `before`, up to `after`."""

    key: str
    at: str
    status: str
    rule: str
    previous_at: str
    previous_status: str
    before: str
    after: str
    source_before: str
    source_after: str

    @property
    def to_red(self) -> bool:
        """Whether it turned for the worse."""
        return Status(self.status) in _BAD


class TitleRow(Record):
    """A crash title: when it was first and last seen, how often, in how many cells."""

    title: str
    kind: str
    first: str
    last: str
    nights: int
    cells: int


class Sighting(Record):
    """First and last night on which a title was seen, and on how many."""

    first: str
    last: str
    nights: int


class LastJudged(Record):
    """How a cell was on the last night on which it could be judged."""

    at: str
    vllm: str
    status: str
    rule: str


class FlakeRow(Record):
    """A month: attempts in all, and how many of them the node failed."""

    month: str
    attempts: int
    infra_attempts: int

    @property
    def rate(self) -> float:
        """Failed attempts among all, as a fraction of 1."""
        return self.infra_attempts / self.attempts if self.attempts else 0.0


class PastNight(Record):
    """One cell on one night; `seconds` by phase."""

    at: str
    vllm: str
    status: str
    rule: str
    attempts: int
    seconds: dict[str, float]
    scores: dict[str, tuple[float, float, float]]
    """By task: the score and both ends of its interval, as fractions of 1."""


class ScoreRow(Record):
    """A score with both ends of its interval, as fractions of 1."""

    key: str
    task: str
    at: str
    score: float
    low: float
    high: float
    questions: int


class PhaseRow(Record):
    """Mean seconds of a phase over all cells of a night."""

    at: str
    phase: str
    seconds: float
    cells: int


def nights(history: History, limit: int = 30) -> list[NightRow]:
    """The latest nights, newest first."""
    query = """
        SELECT at, vllm, source, sweep, exit_code, cells
        FROM night ORDER BY at DESC, id DESC LIMIT ?"""
    return [NightRow.model_validate(_named(NightRow, row)) for row in history.rows(query, limit)]


def turns(
    history: History, limit: int = 50, *, key: str | None = None, window: int = 120
) -> list[Turn]:
    """Where cells turned from good to bad or back, newest first.

    Args:
        history: where to look.
        limit: how many turns at most.
        key: one cell, whose whole past is walked; without it all cells are asked.
        window: how many of the latest nights are walked for all cells.
    """
    bad = _is_one_of(_BAD)
    if key is not None:
        chosen, values = "r.cell = (SELECT id FROM cell WHERE key = ?)", (key,)
    else:
        chosen, values = "r.at >= ?", (_since(history, window),)
    query = f"""
        WITH judged AS (
            SELECT r.cell, r.at, r.night, r.status, r.rule, {bad} AS bad,
                   lag({bad}) OVER past AS was_bad,
                   lag(r.at) OVER past AS previous_at,
                   lag(r.night) OVER past AS previous_night,
                   lag(r.status) OVER past AS previous_status
            FROM cell c CROSS JOIN result r ON r.cell = c.id
            WHERE {chosen} AND NOT {_is_one_of(_UNJUDGED)}
            WINDOW past AS (PARTITION BY r.cell ORDER BY r.at, r.night)
        ), turned AS (
            SELECT * FROM judged WHERE was_bad IS NOT NULL AND bad <> was_bad
            ORDER BY at DESC, cell LIMIT ?
        )
        SELECT c.key, t.at, t.status, t.rule, t.previous_at, t.previous_status,
               b.vllm, a.vllm, b.source, a.source
        FROM turned t JOIN cell c ON c.id = t.cell
        JOIN night a ON a.id = t.night JOIN night b ON b.id = t.previous_night
        ORDER BY t.at DESC, c.key"""  # noqa: S608
    rows = history.rows(query, *values, limit)
    return [Turn.model_validate(_named(Turn, row)) for row in rows]


def _since(history: History, window: int) -> str:
    """The time of the oldest of the latest `window` nights."""
    query = "SELECT min(at) FROM (SELECT at FROM night ORDER BY at DESC LIMIT ?)"
    ((oldest,),) = history.rows(query, window)
    return str(oldest or "")


def titles(history: History, limit: int = 100) -> list[TitleRow]:
    """Crash titles, the latest seen first."""
    query = """
        SELECT t.text, c.kind, min(c.at), max(c.at),
               count(DISTINCT c.night), count(DISTINCT c.cell)
        FROM crash c JOIN title t ON t.id = c.title
        GROUP BY c.title, c.kind ORDER BY max(c.at) DESC, t.text LIMIT ?"""
    return [TitleRow.model_validate(_named(TitleRow, row)) for row in history.rows(query, limit)]


def sighting(history: History, title: str) -> Sighting | None:
    """When a crash title was seen, or None if it never was."""
    query = """
        SELECT min(at), max(at), count(DISTINCT night) FROM crash
        WHERE title = (SELECT id FROM title WHERE text = ?) HAVING count(*) > 0"""
    rows = history.rows(query, title)
    return Sighting.model_validate(_named(Sighting, rows[0])) if rows else None


def last_judged(history: History, key: str) -> LastJudged | None:
    """How a cell was when it was last judged, or None if it never was."""
    query = f"""
        SELECT r.at, n.vllm, r.status, r.rule FROM result r JOIN night n ON n.id = r.night
        WHERE r.cell = (SELECT id FROM cell WHERE key = ?) AND NOT r.{_is_one_of(_UNJUDGED)}
        ORDER BY r.at DESC, r.night DESC LIMIT 1"""  # noqa: S608
    rows = history.rows(query, key)
    return LastJudged.model_validate(_named(LastJudged, rows[0])) if rows else None


def flakes(history: History, limit: int = 24) -> list[FlakeRow]:
    """How often nodes failed, by month, newest first."""
    query = """
        SELECT substr(at, 1, 7) AS month, sum(attempts), sum(infra_attempts)
        FROM night GROUP BY month ORDER BY month DESC LIMIT ?"""
    return [FlakeRow.model_validate(_named(FlakeRow, row)) for row in history.rows(query, limit)]


def phases(history: History, limit: int = 30) -> list[PhaseRow]:
    """Mean seconds per phase of the latest nights, newest first."""
    query = """
        WITH latest AS (SELECT id, at FROM night ORDER BY at DESC, id DESC LIMIT ?)
        SELECT latest.at, p.name, avg(t.seconds), count(*)
        FROM latest JOIN result r ON r.night = latest.id
        JOIN timing t ON t.cell = r.cell AND t.at = r.at AND t.night = r.night
        JOIN phase p ON p.id = t.phase
        GROUP BY latest.id, p.id ORDER BY latest.at DESC, latest.id DESC, p.id"""
    return [PhaseRow.model_validate(_named(PhaseRow, row)) for row in history.rows(query, limit)]


def scores(history: History, limit: int = 60) -> list[ScoreRow]:
    """Scores of the latest nights, by cell and task, oldest first within each."""
    query = """
        WITH latest AS (SELECT at FROM night ORDER BY at DESC, id DESC LIMIT ?)
        SELECT c.key, s.task, s.at, s.score, s.low, s.high, s.questions
        FROM score s JOIN cell c ON c.id = s.cell
        WHERE s.at >= (SELECT min(at) FROM latest)
        ORDER BY c.key, s.task, s.at, s.night"""
    return [ScoreRow.model_validate(_named(ScoreRow, row)) for row in history.rows(query, limit)]


def past(history: History, key: CellKey, limit: int = 60) -> list[PastNight]:
    """The latest nights of one cell, newest first.

    Raises:
        ConfigError: the history does not know the cell.
    """
    found = history.rows("SELECT id FROM cell WHERE key = ?", str(key))
    if not found:
        raise ConfigError(
            f"{key} is in no night of this history", source="--cell", remedy="name another cell"
        )
    cell = int(found[0][0])
    query = """
        SELECT r.at, n.vllm, r.status, r.rule, r.attempts, r.night
        FROM result r JOIN night n ON n.id = r.night
        WHERE r.cell = ? ORDER BY r.at DESC, r.night DESC LIMIT ?"""
    rows = history.rows(query, cell, limit)
    oldest = str(rows[-1][0]) if rows else ""
    seconds = _seconds(history, cell, oldest)
    scores = _scores(history, cell, oldest)
    fields = ("at", "vllm", "status", "rule", "attempts")
    return [
        PastNight.model_validate(
            {
                **dict(zip(fields, row, strict=False)),
                "seconds": seconds.get(int(row[5]), {}),
                "scores": scores.get(int(row[5]), {}),
            }
        )
        for row in rows
    ]


def _seconds(history: History, cell: int, oldest: str) -> dict[int, dict[str, float]]:
    query = """
        SELECT t.night, p.name, t.seconds FROM timing t JOIN phase p ON p.id = t.phase
        WHERE t.cell = ? AND t.at >= ? ORDER BY t.at, t.night, p.id"""
    found: dict[int, dict[str, float]] = {}
    for night, phase, seconds in history.rows(query, cell, oldest):
        found.setdefault(int(night), {})[str(phase)] = float(seconds)
    return found


def _scores(
    history: History, cell: int, oldest: str
) -> dict[int, dict[str, tuple[float, float, float]]]:
    query = "SELECT night, task, score, low, high FROM score WHERE cell = ? AND at >= ?"
    found: dict[int, dict[str, tuple[float, float, float]]] = {}
    for night, task, score, low, high in history.rows(query, cell, oldest):
        interval = (float(score), float(low), float(high))
        found.setdefault(int(night), {})[str(task)] = interval
    return found


def _named(record: type[Record], row: tuple[str | int | float, ...]) -> dict[str, object]:
    return dict(zip(record.model_fields, row, strict=True))
