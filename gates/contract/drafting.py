"""The draft model's graphs: right on their own, and built as the target's are (A, C, E)."""

from __future__ import annotations

from collections.abc import Iterator

from fixtures.evidence.contract import Capture, ContractAudit, Draft
from gates.contract.capturing import judge_captures
from gates.contract.words import failed, place, some
from gates.verdict import FaultClass, Finding, Gate


def judge_drafts(audit: ContractAudit) -> Iterator[Finding]:
    """Findings on every draft manager that the cell drove."""
    for draft in audit.drafts:
        yield from _replays(draft)
        yield from _agreement(audit, draft)
        yield from judge_captures(
            audit, draft.captures, whose=f"draft-{draft.phase}-", by=place(draft.symbol)
        )


_CLASS: dict[str, FaultClass] = {"planned": "C", "scalar": "D"}


def _replays(draft: Draft) -> Iterator[Finding]:
    """A draft graph runs whenever its step comes: nothing else may have to run before it."""
    for wrong, when in (
        (draft.wrong_alone, "alone"),
        (draft.wrong_after_target, "after-target"),
    ):
        # What is read from tensors speaks for itself; only without it do plans and scalars.
        torn = set(wrong) - set(_CLASS)
        classes = {_CLASS.get(column, "A") for column in (torn or wrong)}
        for fault_class in sorted(classes):
            why = (
                f"draft {draft.phase} graphs replayed {when.replace('-', ' the ')} are wrong in "
                f"{', '.join(sorted(wrong))} ({sum(wrong.values())} rows over {draft.steps} "
                f"steps); the metadata they captured is {draft.metadata_origin}"
            )
            check = f"draft-{draft.phase}-{when}"
            at = place(draft.symbol)
            yield failed(Gate.PARITY, check, fault_class, why, at, n=draft.steps)


def _agreement(audit: ContractAudit, draft: Draft) -> Iterator[Finding]:
    """Class E: for the same descriptor, both managers are given metadata of the same kind."""
    main = {capture.descriptor: _given(capture) for capture in audit.captures}
    common = [c for c in draft.captures if c.descriptor in main]
    bad = [c for c in common if _given(c) != main[c.descriptor]]
    if bad:
        why = (
            f"draft {draft.phase}: {some([c.descriptor for c in bad], len(common))} given "
            f"{_words(_given(bad[0]))} at capture, the target's {_words(main[bad[0].descriptor])}"
        )
        yield failed(
            Gate.AUDIT,
            f"draft-{draft.phase}-agreement",
            "E",
            why,
            place(draft.symbol),
            n=len(common),
        )


def _given(capture: Capture) -> tuple[bool, bool | None] | None:
    """Whether the captured pass had metadata, and whether it was built for capture."""
    for ran in reversed(capture.passes):
        if ran.kind == "capture":
            return ran.metadata.present, ran.metadata.for_capture
    return None


def _words(given: tuple[bool, bool | None] | None) -> str:
    if given is None or not given[0]:
        return "no metadata"
    return f"metadata with for_capture={given[1]}"
