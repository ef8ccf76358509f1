"""All tests of a decision share one alpha.

Owns: Holm's procedure over the score findings of all cells. Must not know: evidence, or how a
test came about. A cell judged alone (a test suite's item) is held to alpha by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gates.judge import worst
from gates.scores.holm import holm
from gates.scores.result import ScoreTest
from gates.verdict import Finding, Status, Verdict

_REJECTED = frozenset({Status.FAIL, Status.XFAIL})


def share_alpha(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts after Holm: a rejection that the family does not carry no longer blocks.

    Equal sets of verdicts give equal results, whatever their order.
    """
    every = tuple(verdicts)
    tests = [(str(one.key), finding) for one in every for finding in _tests(one)]
    tests.sort(key=lambda item: (item[0], item[1].check))
    adjusted = holm([_counted(finding) for _, finding in tests])
    shares = {
        (key, finding.check): value for (key, finding), value in zip(tests, adjusted, strict=True)
    }
    return tuple(_held(one, shares, len(tests)) for one in every)


def _tests(verdict: Verdict) -> Iterator[Finding]:
    return (finding for finding in verdict.findings if finding.test is not None)


def _counted(finding: Finding) -> float:
    """A test that did not reject by its own rule must not help others: its p counts as alpha."""
    test = _test(finding)
    return test.p_value if finding.status in _REJECTED else max(test.p_value, test.alpha)


def _test(finding: Finding) -> ScoreTest:
    if finding.test is None:
        raise ValueError(f"{finding.check} is no test")
    return finding.test


def _held(verdict: Verdict, shares: dict[tuple[str, str], float], count: int) -> Verdict:
    if not any(True for _ in _tests(verdict)):
        return verdict
    findings = tuple(
        finding
        if finding.test is None
        else _one(finding, shares[str(verdict.key), finding.check], count)
        for finding in verdict.findings
    )
    return verdict.model_copy(update={"findings": findings, "status": worst(findings)})


def _one(finding: Finding, adjusted: float, count: int) -> Finding:
    test = _test(finding).model_copy(update={"adjusted": adjusted})
    changes: dict[str, object] = {"test": test}
    if finding.status in _REJECTED and adjusted > test.alpha:
        changes |= {
            "status": Status.PASS,
            "fault_class": None,
            "why": f"{finding.why} [one of {count} tests: {adjusted:.3g} after Holm, no rejection]",
        }
    elif finding.status in _REJECTED and count > 1:
        changes["why"] = f"{finding.why} [{adjusted:.3g} after Holm over {count} tests]"
    return finding.model_copy(update=changes)
