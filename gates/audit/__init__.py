"""The capture audit's gates: what a real engine's graphs are, held against what they must be.

Owns: the rules over `fixtures.evidence.audit`. They compare parts of one record with each other
and know no release. Must not know: how the record was made, or what the engine wrote.
"""

from __future__ import annotations

from collections.abc import Callable

from fixtures.errors import ConfigError
from fixtures.evidence.audit import CaptureAudit
from fixtures.evidence.cellrun import CellRun
from gates.audit.frozen import judge_frozen
from gates.audit.harmless import Harmless, default_harmless
from gates.audit.inputs import judge_inputs
from gates.audit.nodes import diffs, judge_nodes
from gates.audit.pointers import coverage, judge_pointers
from gates.audit.states import judge_states
from gates.verdict import Finding, Gate, Status

GraphsOf = Callable[[CellRun], CaptureAudit | None]
"""What a run's audit recorded; None: it had none.

Raises:
    ConfigError: it cannot be read.
"""

_ENDS = {
    "captured": "; the record ends before the first replay",
    "serving": "; the record ends while requests were served",
}
"""Where a record ends that an engine left which died."""


def judge_graphs(run: CellRun, graphs_of: GraphsOf) -> tuple[Finding, ...]:
    """Findings on a run's graphs; nothing where it was not audited."""
    try:
        audit = graphs_of(run)
    except ConfigError as error:
        why = f"the audit cannot be read: {error}"
        return (Finding(gate=Gate.AUDIT, check="readable", status=Status.INVALID, why=why),)
    if audit is None:
        return ()
    engagement = run.observation.engagement if run.observation is not None else None
    seen = any(trace.kind == "graph" for trace in audit.traces)
    # A record without parts is that of an audit that failed before it began.
    due = "nodes" in audit.parts or not audit.parts
    if due and not seen and engagement is not None and engagement.graphs:
        notes = "; ".join(audit.notes[:3]) or "it says nothing"
        why = f"the audit saw none of {engagement.graphs} graphs: {notes}"
        return (
            Finding(
                gate=Gate.AUDIT, check="recorded", fault_class="H", status=Status.VACUOUS, why=why
            ),
        )
    found = judge_audit(audit, default_harmless())
    if due and not seen and run.observation is None:  # of a dead engine: nobody knows its graphs
        return tuple(finding for finding in found if finding.status is not Status.PASS)
    return found


def judge_audit(audit: CaptureAudit, harmless: Harmless) -> tuple[Finding, ...]:
    """Findings on one record, or one PASS that says how far it reaches; none without graphs."""
    found = (
        *judge_states(audit, harmless),
        *judge_nodes(audit, harmless),
        *judge_pointers(audit, harmless),
        *judge_inputs(audit, harmless),
        *judge_frozen(audit, harmless),
    )
    graphs = any(trace.kind == "graph" for trace in audit.traces)
    return found or ((_passed(audit, harmless),) if graphs or audit.states else ())


def _passed(audit: CaptureAudit, harmless: Harmless) -> Finding:
    graphs = [trace for trace in audit.traces if trace.kind == "graph"]
    kernels = sum(node.kernel is not None for trace in graphs for node in trace.nodes)
    seen = coverage(audit)
    live = sum(trace.kind == "live" for trace in audit.traces)
    why = (
        f"{len(graphs)} graphs with {kernels} launches: {len(diffs(audit, harmless))} launch what "
        f"a pass with fresh state does; {seen.direct} pointers and {seen.embedded} words in "
        "structs stay in memory that is theirs; "
    )
    why += (
        f"{len(audit.replays)} replays and {live} traced steps need nothing that was not captured"
        if audit.replays
        else "no replay was looked at"
    )
    why += _ENDS.get(audit.stage, "")
    return Finding(gate=Gate.AUDIT, check="graphs", status=Status.PASS, n=len(graphs), why=why)
