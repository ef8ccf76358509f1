"""Parity gate: does the cell write what its reference, the same model without graphs, writes?

Owns the order of the rules, and what a missing or broken comparison is called. Must not
know where files lie, or how graphs are made. docs/parity.md states the rules and their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fixtures.cells.axes import GraphMode, Tier
from fixtures.cells.scenario import Arms, Kind
from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.outputs import Outputs
from gates.parity.blocks import Blocks, blocks_of
from gates.parity.exact import judge_exact
from gates.parity.noisy import Group, groups_of, judge_noisy
from gates.parity.pairs import Pair, padding_of, pairs_of
from gates.parity.pattern import with_fault_class
from gates.parity.rules import ParityRules
from gates.parity.soundness import judge_controls, judge_finite
from gates.parity.texts import judge_texts
from gates.parity.told import tell_difference
from gates.parity.words import finding
from gates.verdict import Finding, Status

OutputsOf = Callable[[CellRun], Outputs | None]
"""What a run wrote for the workload; None: it recorded nothing.

Raises:
    ConfigError: it cannot be read.
"""


def judge_parity(
    run: CellRun, reference: CellRun | None, rules: ParityRules, outputs_of: OutputsOf
) -> tuple[Finding, ...]:
    """Findings on a cell's outputs; nothing where its tier asks for none and there are none.

    A cell without a reference, which runs no graphs, is only held fit to be one. At the
    score tier the scores decide, so differences are told there and block nothing.
    """
    if not _is_asked(run):
        return ()
    read = _read(run, outputs_of)
    if isinstance(read, Finding):
        return (read,)
    outputs, blocks = read
    broken = judge_finite(blocks)
    scored = run.cell.key.tier is Tier.SCORE
    if run.cell.reference is None:
        return broken if broken or scored else judge_controls(blocks, rules)
    others = _reference_blocks(run, reference, outputs, outputs_of)
    if isinstance(others, Finding):
        return (*broken, others)
    if broken:
        return broken
    return tell_difference(blocks, others) if scored else judge_blocks(blocks, others, rules)


def _is_asked(run: CellRun) -> bool:
    """Whether there must be outputs, or there are some."""
    observed = run.observation
    if observed is None or observed.refusal is not None:
        return False
    return run.cell.key.tier is Tier.CANARY or observed.outputs is not None


def _read(run: CellRun, outputs_of: OutputsOf) -> tuple[Outputs, Blocks] | Finding:
    """The cell's own outputs, or what is wrong with them."""
    try:
        outputs = outputs_of(run)
    except ConfigError as error:
        return finding("readable", Status.INVALID, f"the outputs cannot be read: {error}")
    if outputs is None:
        return finding("recorded", Status.VACUOUS, "no outputs were recorded")
    try:
        return outputs, blocks_of(outputs, _arms(run))
    except ConfigError as error:
        return finding("complete", Status.VACUOUS, f"the outputs are not whole: {error}")


def _arms(run: CellRun) -> Arms:
    return Arms.REFERENCE if run.cell.key.mode is GraphMode.NONE else Arms.ALL


def _reference_blocks(
    run: CellRun, reference: CellRun | None, outputs: Outputs, outputs_of: OutputsOf
) -> Blocks | Finding:
    """The reference's blocks, or why there is nothing to compare with."""
    name = run.cell.reference
    problem = "it did not run to its end"
    if reference is not None and reference.observation is not None:
        try:
            other = outputs_of(reference)
            if other is None:
                problem = "it recorded no outputs"
            elif other.head != outputs.head:
                problem = "it was asked another workload"
            else:
                blocks = blocks_of(other, Arms.REFERENCE)
                if not judge_finite(blocks):
                    return blocks
                problem = "its logprobs are no numbers"
        except ConfigError as error:
            problem = str(error)
    why = f"nothing to compare with: {name} gave no outputs that could be used ({problem})"
    return finding("reference", Status.VACUOUS, why)


def judge_blocks(tested: Blocks, reference: Blocks, rules: ParityRules) -> tuple[Finding, ...]:
    """Findings on outputs that are whole and finite: the controls, then a finding a check."""
    padding = padding_of(reference)
    checks: dict[str, list[Pair]] = {}
    for pair in pairs_of(tested, reference):
        checks.setdefault(pair.check, []).append(pair)
    found: list[Finding] = []
    noisy: list[Group] = []
    for check, pairs in checks.items():
        if check == Kind.FREE_TEXT:
            found.append(judge_texts(pairs, padding.floor(), rules))
        elif _decides_exactly(pairs):
            found.append(judge_exact(check, pairs, padding.floor(), rules))
        else:
            noisy += groups_of(check, pairs, padding)
    compared = with_fault_class((*found, *judge_noisy(noisy, rules)), checks)
    return (*judge_controls(reference, rules), *compared)


def _decides_exactly(pairs: Sequence[Pair]) -> bool:
    return all(pair.exact for pair in pairs)
