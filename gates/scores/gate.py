"""Score gate: do the answers to questions show that graphs changed what the model computes?

Owns: the order of the tests and what each outcome is called. Must not know: files' places,
other cells than the reference, or the decision (gates/scores/family.py).
"""

from __future__ import annotations

from collections.abc import Callable

from fixtures.cells.axes import GraphMode, Tier
from fixtures.cells.cell import Cell
from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.samples import Samples, TaskSamples
from gates.policy import Policy
from gates.scores.pairing import Pairs, correct, pair, readable, why_apart
from gates.scores.probe import judge_probe
from gates.scores.references import Reference, References, references_of
from gates.scores.result import TestKind
from gates.scores.rules import ScoreRules
from gates.scores.tally import Tally, faults, tally
from gates.scores.testing import (
    Tested,
    can_reject,
    compare,
    hold_to,
    stages_of,
    why_not_planned,
)
from gates.scores.words import check, limit, measured, sentence
from gates.verdict import Finding, Gate, Status

SamplesOf = Callable[[CellRun], Samples | None]
"""The answers that a run recorded; None: it recorded none.

Raises:
    ConfigError: they cannot be read.
"""


def judge_scores(
    run: CellRun, reference: CellRun | None, policy: Policy, samples_of: SamplesOf
) -> tuple[Finding, ...]:
    """Findings on every task that the cell answered; nothing where no scores were asked for.

    A cell with a reference must have answered the reference's tasks. A task whose documents or
    protocol are not right is INVALID and goes through no test.
    """
    if run.observation is None or run.observation.refusal is not None:
        return ()
    try:
        samples = samples_of(run)
    except ConfigError as error:
        return (_invalid("readable", f"the recorded answers cannot be read: {error}"),)
    if samples is None:
        asked = run.cell.key.tier is Tier.SCORE
        return (_invalid("recorded", "no answers were recorded"),) if asked else ()
    other, trouble = _reference_samples(run, reference, samples_of)
    probe = judge_probe(samples.probe, other.probe if other else None, policy.scores.probe)
    if any(finding.status is not Status.PASS for finding in probe) and not samples.tasks:
        return probe
    known = references_of(run.cell.key.model, policy.references)
    return (*probe, *trouble, *_judge_tasks(run, samples, other, known, policy.scores))


def _reference_samples(
    run: CellRun, reference: CellRun | None, samples_of: SamplesOf
) -> tuple[Samples | None, tuple[Finding, ...]]:
    """The reference cell's answers; without them a cell that should be compared is INVALID."""
    if run.cell.reference is None:
        return None, ()
    problem = "it did not run to its end"
    try:
        found = samples_of(reference) if reference is not None and reference.observation else None
    except ConfigError as error:
        found, problem = None, str(error)
    if found is not None:
        return found, ()
    why = f"nothing to compare with: {run.cell.reference} gave no answers ({problem})"
    return None, (_invalid("reference", why),)


def _judge_tasks(
    run: CellRun, samples: Samples, other: Samples | None, known: References, rules: ScoreRules
) -> tuple[Finding, ...]:
    others = {task.task: task for task in other.tasks} if other is not None else {}
    names = [task.task for task in samples.tasks]
    found = [
        _invalid("answered", f"{name}: {run.cell.reference} answered it, this cell did not")
        for name in others
        if name not in names
    ]
    if not names:
        found.append(_invalid("answered", "no task was answered"))
    for name in dict.fromkeys(names):
        mine = [task for task in samples.tasks if task.task == name]
        if len(mine) > 1:
            found.append(_invalid(check("answers", name), f"{name}: was answered twice"))
            continue
        found += _judge_task(mine[0], run, others.get(name), known, rules)
    return tuple(found)


def _judge_task(
    task: TaskSamples,
    run: CellRun,
    other: TaskSamples | None,
    known: References,
    rules: ScoreRules,
) -> list[Finding]:
    problems = faults(task)
    unplanned = why_not_planned(task, rules.of(task.task)) if not problems else None
    if problems or unplanned:
        why = "; ".join(problems) or str(unplanned)
        return [_invalid(check("documents", task.task), f"{task.task}: {why}")]
    answers = judge_answers(task, tally(task), rules)
    found = [answers]
    if other is not None:
        found += _judge_pairs(task, other, run.cell, rules, is_score=_ok(answers))
    elif run.cell.reference is not None:
        why = f"{task.task}: {run.cell.reference} did not answer it"
        found.append(_invalid(check("reference", task.task), why))
    if _ok(answers):
        found += _judge_floor(task, known, rules)
    return found


def _ok(finding: Finding) -> bool:
    return finding.status is Status.PASS


def judge_answers(task: TaskSamples, counts: Tally, rules: ScoreRules) -> Finding:
    """Invalid is not wrong: with too many invalid answers there is no score."""
    own = rules.of(task.task)
    unparsable, lost = counts.share(counts.unparsable), counts.share(counts.never_returned)
    why = f"{task.task}: {counts}"
    if counts.answered == 0:
        why = f"{why}: not one answer, so there is no score"
    elif lost > own.max_never_returned:
        why = f"{why}: {lost:.1%} never returned, at most {own.max_never_returned:.1%} may"
    elif unparsable > own.max_unparsable:
        why = f"{why}: {unparsable:.1%} are unparsable, at most {own.max_unparsable:.1%} may be"
    else:
        return _finding(check("answers", task.task), Status.PASS, why, n=counts.requests)
    return _invalid(check("answers", task.task), why).model_copy(
        update={
            "measured": f"{unparsable:.1%} unparsable, {lost:.1%} never returned",
            "limit": f"{own.max_unparsable:.1%}, {own.max_never_returned:.1%}",
            "n": counts.requests,
        }
    )


def _judge_pairs(
    task: TaskSamples, other: TaskSamples, cell: Cell, rules: ScoreRules, *, is_score: bool
) -> list[Finding]:
    """The paired tests. Whether answers can be read is tested even where they are no score."""
    name, against = task.task, str(cell.reference)
    problems = faults(other)
    if problems:
        why = f"{name}: {against} has no score to compare with: {'; '.join(problems)}"
        return [_invalid(check("reference", name), why)]
    apart = why_apart(task, other)
    if apart:
        return [_invalid(check("protocol", name), f"{name}: not compared: {apart}")]
    stages, found = stages_of(task), []
    by_reading = pair(task, other, stages, readable)
    if by_reading.discordance.total:
        tested = compare(TestKind.UNPARSABLE, name, by_reading, rules)
        found.append(_tested(tested, against))
    pairs = pair(task, other, stages, correct)
    if is_score and pairs.answers:
        paired = _tested(compare(TestKind.PAIRED, name, pairs, rules), against)
        mute = cell.key.mode is not GraphMode.NONE and not can_reject(pairs, rules.alpha)
        found.append(_vacuous(paired, pairs) if mute else paired)
    elif is_score:
        why = f"{name}: no question was answered both here and by {against}"
        found.append(_invalid(check("reference", name), why))
    return found


def _judge_floor(task: TaskSamples, known: References, rules: ScoreRules) -> list[Finding]:
    """The score against the recorded reference that applies, where there is one."""
    name, digest = task.task, task.protocol.digest
    recorded = known.of(name)
    if not recorded:
        return [_finding(check("floor", name), Status.PASS, _no_reference(name, known))]
    applies = [one for one in recorded if one.protocol == digest]
    if not applies:
        hashes = ", ".join(one.protocol[:12] for one in recorded)
        why = f"another protocol than the recorded reference's: {digest[:12]}, not {hashes}"
    elif not any(one.documents == task.dataset.sha256 for one in applies):
        why = f"other documents than the recorded reference's: {task.dataset.name} has changed"
    else:
        fitting = [one for one in applies if one.documents == task.dataset.sha256]
        return [_tested(hold_to(fitting[0], name, _counts(task), rules), _named(fitting[0]))]
    return [_invalid(check("protocol", name), f"{name}: not compared: {why}")]


def _counts(task: TaskSamples) -> list[tuple[int, int]]:
    """Each question's right answers and valid answers."""
    counts: dict[int, tuple[int, int]] = {}
    for sample in task.samples:
        if sample.correct is not None:
            right, asked = counts.get(sample.doc_id, (0, 0))
            counts[sample.doc_id] = (right + sample.correct, asked + 1)
    return list(counts.values())


def _named(reference: Reference) -> str:
    origin = reference.origin
    return (
        f"{reference.floor:.2%}, the recorded {reference.score:.2%} (n = {reference.n}, "
        f"{origin.commit}, {origin.recorded}) less a margin of {100 * reference.margin:g} points"
    )


def _no_reference(name: str, known: References) -> str:
    stated = [one for one in known.published if one.task == name and one.state == "healthy"]
    shown = f"; {stated[0].score:.1%} is published without {stated[0].missing}" if stated else ""
    return f"{name}: held to no floor: no reference is recorded for {known.model}{shown}"


def _tested(tested: Tested, against: str) -> Finding:
    test, status = tested.test, Status.FAIL if tested.rejects else Status.PASS
    why = sentence(test, against=against, rejects=tested.rejects)
    if tested.extend:
        status = Status.MISSING
        why = (
            "undecided, the next look that the policy plans is due (its answers have to come "
            f"as a further stage, docs/scores.md): {why}"
        )
    kind = TestKind.PAIRED if test.kind is TestKind.CLUSTERED else test.kind
    return Finding(
        gate=Gate.SCORES,
        check=check(kind, test.task),
        fault_class="U" if status is Status.FAIL else None,
        status=status,
        measured=measured(test),
        limit=limit(test),
        n=test.n,
        why=why,
        test=test,
    )


def _vacuous(finding: Finding, pairs: Pairs) -> Finding:
    """A test of graphs that can't fail proves nothing. A NONE cell is no test of graphs."""
    why = (
        f"the test can't fail: the reference cell is right on {pairs.losable} questions only, and "
        f"losing all of them would not show: {finding.why}"
    )
    changes = {"status": Status.VACUOUS, "fault_class": "H", "why": why}
    return finding.model_copy(update=changes)


def _invalid(name: str, why: str) -> Finding:
    return _finding(name, Status.INVALID, why)


def _finding(name: str, status: Status, why: str, n: int | None = None) -> Finding:
    return Finding(gate=Gate.SCORES, check=name, status=status, n=n, why=why)
