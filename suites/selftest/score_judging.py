"""The score gate asked in tests: two arms in memory, and what it finds.

Owns: healthy and sick answers of DSV4, arms that differ as told, whole nights on disk.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from fixtures.errors import ConfigError
from fixtures.evidence.samples import (
    Samples,
)
from gates.evidence import judge_folder
from gates.policy import Policy, read_policy
from gates.scores.gate import judge_scores
from gates.scores.references import Reference
from gates.verdict import Finding, Status
from suites.selftest.answers import (
    FULL,
    NONE,
    Recorded,
    a_task,
    references,
    some_right,
    some_samples,
    stored,
)
from suites.selftest.build import a_cell, a_plan, write_shard

POLICY = read_policy()
TODAY = date(2026, 11, 30)
GSM8K, SICK_GSM8K = some_right(1258, 1319), some_right(223, 1319)
"""0.954 and 0.169, as the repair of FlashMLA's planning was published with."""
AIME25 = some_right(113, 120).reshape(30, 4)
"""0.942 of thirty questions, four times each."""
TASK = a_task(some_right(90, 100))


def policy(*recorded: Reference, **changes: Any) -> Policy:
    rules = POLICY.scores.model_copy(update=changes)
    return POLICY.model_copy(update={"scores": rules, "references": (references(recorded),)})


def judged(
    graph: Samples | ConfigError | None,
    none: Samples | ConfigError | None,
    rules: Policy = POLICY,
) -> tuple[Finding, ...]:
    recorded = Recorded()
    reference = recorded.run(NONE, none)
    return judge_scores(recorded.run(FULL, graph), reference, rules, recorded.samples)


def named(findings: tuple[Finding, ...], check: str) -> Finding:
    (found,) = (finding for finding in findings if finding.check == check)
    return found


def statuses(findings: tuple[Finding, ...]) -> set[Status]:
    return {finding.status for finding in findings}


def one_task(*args: Any, **changes: Any) -> Samples:
    return some_samples(a_task(*args, **changes))


def lose(table: Any, b: int, c: int) -> Any:
    """The answers after `b` right ones were lost and `c` wrong ones won."""
    changed = table.copy()
    changed[[i for i, right in enumerate(table) if right][:b]] = False
    changed[[i for i, right in enumerate(table) if not right][:c]] = True
    return changed


def night(out: Path, tables: dict[str, Any]) -> Any:
    """Cells with these answers, judged from the OUT folder `out`."""
    cells = [a_cell(key) for key in tables]
    runs = [
        stored(cell, some_samples(a_task(table)), out)
        for cell, table in zip(cells, tables.values(), strict=True)
    ]
    write_shard(out, a_plan(*cells), runs)
    return judge_folder([out], POLICY, (), TODAY)
