"""The dispatcher's truth table against the captured descriptors: is each choice admissible? (G)"""

from __future__ import annotations

from collections.abc import Iterator

from fixtures.evidence.contract import ContractAudit, Descriptor, DispatchCase
from gates.contract.words import DISPATCH, failed
from gates.verdict import Finding, Gate


def judge_dispatch(audit: ContractAudit) -> Iterator[Finding]:
    """Graphs chosen for batches that they can't serve, or passed over for worse ones."""
    by_loras = {d.num_active_loras for d in audit.planned} - {0} != set()
    lists: dict[str, list[tuple[DispatchCase, str]]] = {}
    for case in audit.dispatch:
        verdict = _fault(case, audit, by_loras)
        if verdict is not None:
            lists.setdefault(verdict[0], []).append((case, verdict[1]))
    for check, cases in lists.items():
        case, text = cases[0]
        asked = f"{case.num_reqs} requests, {case.num_tokens} tokens"
        if case.uniform_token_count is not None:
            asked += f", {case.uniform_token_count} each"
        if case.num_active_loras:
            asked += f", {case.num_active_loras} LoRAs"
        why = f"{len(cases)} of {len(audit.dispatch)} batch shapes: {text} (first: {asked})"
        yield failed(Gate.ENGAGEMENT, check, "G", why, DISPATCH, n=len(audit.dispatch))


def _fault(case: DispatchCase, audit: ContractAudit, by_loras: bool) -> tuple[str, str] | None:
    """What is wrong with one answer, as the check's name and words; None if nothing is."""
    fitting = [d for d in audit.planned if admits(d, case, audit.lora_cases, by_loras)]
    chosen = case.chosen
    if chosen is None:
        if any(d.num_tokens == case.num_tokens for d in fitting):
            return "dispatch-none", f"no graph is chosen although {fitting[0]} fits"
        return None
    if chosen not in audit.planned:
        return "dispatch-unknown", f"{chosen} is chosen, which nobody planned to capture"
    if not admits(chosen, case, audit.lora_cases, by_loras):
        return "dispatch-wrong", f"{chosen} is chosen, which can't serve the batch"
    tightest = min(d.num_tokens for d in fitting)
    if chosen.num_tokens > tightest:
        return "dispatch-loose", f"{chosen} is chosen although {tightest} tokens would do"
    return None


def admits(
    desc: Descriptor, case: DispatchCase, lora_cases: tuple[int, ...], by_loras: bool
) -> bool:
    """Whether a graph of this shape can serve the batch.

    Args:
        desc: the graph's shape.
        case: the batch.
        lora_cases: adapter counts for which graphs are captured; a batch is served by the
            least of them that is enough, or the largest.
        by_loras: whether this release captures graphs by adapter count at all.
    """
    if desc.extra:
        return False
    longest = desc.max_query_len
    return (
        desc.num_tokens >= case.num_tokens
        and (desc.num_reqs is None or desc.num_reqs >= case.num_reqs)
        and (desc.uniform_token_count in (None, case.uniform_token_count))
        and (longest is None or longest >= case.max_query_len)
        and (not by_loras or desc.num_active_loras == _case_of(case.num_active_loras, lora_cases))
    )


def _case_of(loras: int, cases: tuple[int, ...]) -> int:
    if loras == 0:
        return 0
    return min((n for n in cases if n >= loras), default=max(cases, default=0))
