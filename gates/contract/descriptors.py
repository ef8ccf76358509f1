"""Which graphs a mode promises, held against the descriptors that were planned (G)."""

from __future__ import annotations

from collections.abc import Iterator

from fixtures.evidence.contract import ContractAudit, Descriptor
from gates.contract.words import CANDIDATES, failed
from gates.verdict import Finding, Gate

_MIXED = {"PIECEWISE": "PIECEWISE", "FULL": "FULL", "FULL_AND_PIECEWISE": "PIECEWISE"}
_DECODE = {"FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"}


def judge_descriptors(audit: ContractAudit) -> Iterator[Finding]:
    """Descriptors that the effective mode does not have, and sizes that lack theirs.

    How many requests a PIECEWISE descriptor names is a release's convention: no rule.
    """
    foreign = [d for d in audit.planned if not _belongs(d, audit)]
    if foreign:
        why = f"{len(foreign)} planned descriptors are none of {audit.effective}: {foreign[0]}"
        yield failed(Gate.ENGAGEMENT, "descriptors", "G", why, CANDIDATES, n=len(audit.planned))
    missing = list(_missing(audit))
    if missing:
        why = f"{audit.effective} lacks graphs: {'; '.join(missing[:4])}"
        yield failed(Gate.ENGAGEMENT, "descriptors", "G", why, CANDIDATES, n=len(audit.planned))
    impossible = [d for d in audit.planned if _impossible(d, audit)]
    if impossible:
        why = (
            f"{len(impossible)} descriptors can serve no batch: {impossible[0]}, with at most "
            f"{audit.max_num_seqs} requests"
        )
        yield failed(Gate.ENGAGEMENT, "descriptors", "G", why, CANDIDATES, n=len(audit.planned))


def is_decode(desc: Descriptor) -> bool:
    """Whether the graph serves decode batches alone."""
    return desc.uniform_token_count is not None or desc.max_query_len is not None


def _belongs(desc: Descriptor, audit: ContractAudit) -> bool:
    if desc.extra:
        return True
    if is_decode(desc):
        return desc.mode == "FULL" and audit.effective in _DECODE
    return desc.mode == _MIXED.get(audit.effective)


def _missing(audit: ContractAudit) -> Iterator[str]:
    mixed = {d.num_tokens for d in audit.planned if not is_decode(d)}
    decode = {d.num_tokens for d in audit.planned if is_decode(d)}
    if audit.effective in _MIXED:
        for size in audit.capture_sizes:
            if size not in mixed:
                yield f"no {_MIXED[audit.effective]} graph of {size} tokens"
    if audit.effective in _DECODE:
        limit = min(audit.max_num_seqs * audit.query_len, max(audit.capture_sizes))
        for size in audit.capture_sizes:
            # Sizes are whole requests of a decode step, rounded up or left out by release.
            if size % audit.query_len == 0 and size <= limit and size not in decode:
                yield f"no decode graph of {size} tokens"


def _impossible(desc: Descriptor, audit: ContractAudit) -> bool:
    reqs = desc.num_reqs
    if reqs is None:
        return False
    each = desc.uniform_token_count
    return (
        reqs > audit.max_num_seqs
        or reqs < 1
        or (each is not None and reqs * each > desc.num_tokens)
    )
