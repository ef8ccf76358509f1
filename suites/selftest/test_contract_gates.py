"""The contract gates on records made by hand: each rule alone, and what must not alarm."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.evidence.cellrun import CellRun, Observation
from fixtures.evidence.contract import (
    Capture,
    ContractAudit,
    Descriptor,
    DispatchCase,
    Draft,
    Metadata,
    Pass,
    RangeFault,
    Step,
)
from gates.contract import judge_contract
from gates.contract.dispatching import admits
from gates.contract.words import place
from gates.verdict import Finding, Status
from suites.selftest.build import a_cell, a_run

SIZES = (1, 2, 4, 8)
DECODE = tuple(
    Descriptor(mode="FULL", num_tokens=n, num_reqs=n, uniform_token_count=1) for n in SIZES
)
PIECES = tuple(Descriptor(mode="PIECEWISE", num_tokens=n) for n in SIZES)
MIXED = tuple(Descriptor(mode="FULL", num_tokens=n, num_reqs=n) for n in SIZES)


def metadata(desc: Descriptor, **changes: Any) -> Metadata:
    good: dict[str, Any] = {
        "present": True,
        "for_capture": True,
        "num_reqs": desc.num_reqs or desc.num_tokens,
        "num_tokens": desc.num_tokens,
        "max_query_len": desc.num_tokens,
        "max_seq_len": 4096,
        "longest_query": 1,
        "longest_seq": 1,
    }
    return Metadata(**{**good, **changes})


def capture(desc: Descriptor, *, warm: Any = None, caught: Any = None, **changes: Any) -> Capture:
    """A healthy capture of `desc`; `warm` and `caught` change a pass, `changes` the rest."""
    full = desc.mode == "FULL"
    passes = (
        Pass(
            **{
                "kind": "warmup",
                "forward_mode": "NONE",
                "metadata": metadata(desc),
                "planned_after": ("ProbeMetadata.plan",),
                **(warm or {}),
            }
        ),
        Pass(
            **{
                "kind": "capture",
                "forward_mode": "NONE" if full else "PIECEWISE",
                "metadata": metadata(desc),
                "planned_after": ("ProbeMetadata.plan",),
                **(caught or {}),
            }
        ),
    )
    healthy: dict[str, Any] = {
        "descriptor": desc,
        "calls": ("factory(warmup=True)", "forward(NONE)"),
        "passes": passes,
        "graphs": 1,
        "eager_breaks": 0 if full else 1,
        "launches": 9,
    }
    return Capture(**{**healthy, **changes})


def step(desc: Descriptor, **changes: Any) -> Step:
    good: dict[str, Any] = {
        "query_lens": (1,) * (desc.num_reqs or desc.num_tokens),
        "context_lens": (3,) * (desc.num_reqs or desc.num_tokens),
        "chosen": desc,
        "replay": 1,
        "replayed_graphs": 1,
    }
    return Step(**{**good, **changes})


def audit(descriptors: tuple[Descriptor, ...], effective: str, **changes: Any) -> ContractAudit:
    good: dict[str, Any] = {
        "capture_sizes": SIZES,
        "max_num_seqs": 12,
        "max_model_len": 4096,
        "query_len": 1,
        "requested": effective,
        "effective": effective,
        "manager": "vllm.v1.worker.gpu.cudagraph_utils.ModelCudaGraphManager",
        "breakable_manager": True,
        "planned": descriptors,
        "captures": tuple(capture(desc) for desc in descriptors),
        "steps": tuple(step(desc) for desc in descriptors),
    }
    return ContractAudit(**{**good, **changes})


def judge(record: ContractAudit) -> tuple[Finding, ...]:
    cell = a_cell("llama.FULL_AND_PIECEWISE.bk0.contract")
    run: CellRun = a_run(cell).model_copy(update={"observation": Observation(audit=record)})
    return judge_contract(run)


def blocking(record: ContractAudit) -> list[str]:
    found = [f for f in judge(record) if f.status.blocks]
    return [f"{finding.identity} {finding.check}" for finding in found]


@pytest.mark.parametrize(
    ("descriptors", "effective"),
    [
        (DECODE, "FULL_DECODE_ONLY"),
        (PIECES, "PIECEWISE"),
        (MIXED, "FULL"),
        (DECODE + PIECES, "FULL_AND_PIECEWISE"),
    ],
)
def test_a_healthy_record_passes_audit_and_parity(
    descriptors: tuple[Descriptor, ...], effective: str
) -> None:
    findings = judge(audit(descriptors, effective))
    assert [(f.gate, f.status) for f in findings] == [
        ("audit", Status.PASS),
        ("parity", Status.PASS),
    ]


class TestCapture:
    def test_an_object_in_both_passes_is_class_c(self) -> None:
        caught = (capture(DECODE[-1], shared=("ProbeMetadata",)),)
        assert blocking(audit(DECODE, "FULL_DECODE_ONLY", captures=caught)) == [
            "audit:C shared-state"
        ]

    def test_a_field_filled_before_capture_is_class_c_though_no_object_is_shared(self) -> None:
        filled = capture(DECODE[0], caught={"planned_before": ("ProbeMetadata.plan",)})
        (finding,) = [
            f
            for f in judge(audit(DECODE, "FULL_DECODE_ONLY", captures=(filled,)))
            if f.status.blocks
        ]
        assert finding.identity == "audit:C"
        assert "already filled when capture began: ProbeMetadata.plan" in finding.why
        assert "cudagraph_utils.py: CudaGraphManager.capture" in finding.why

    def test_compiled_pieces_may_share_what_breakable_ones_may_not(self) -> None:
        caught = tuple(capture(desc, shared=("ProbeMetadata",)) for desc in PIECES)
        assert blocking(audit(PIECES, "PIECEWISE", captures=caught)) == []
        assert blocking(audit(PIECES, "PIECEWISE", captures=caught, breakable=True)) == [
            "audit:C shared-state"
        ]

    @pytest.mark.parametrize(
        "bad",
        [
            {"metadata": metadata(MIXED[-1], longest_seq=5000)},
            {"metadata": metadata(MIXED[-1], inconsistencies=("slots run out",))},
            {"range_faults": (RangeFault(operation="attend", what="block id", value=9, limit=8),)},
        ],
    )
    def test_inputs_out_of_range_are_class_e(self, bad: dict[str, Any]) -> None:
        caught = (*map(capture, MIXED[:-1]), capture(MIXED[-1], warm=bad))
        assert blocking(audit(MIXED, "FULL", captures=caught)) == ["audit:E eager-inputs"]

    def test_local_lengths_that_are_no_share_are_class_e(self) -> None:
        given = metadata(DECODE[0], local_seq_lens_right=False)
        caught = (capture(DECODE[0], caught={"metadata": given}),)
        record = audit(DECODE, "FULL_DECODE_ONLY", captures=caught, context_parallel=2)
        assert blocking(record) == ["audit:E local-lengths"]

    def test_admitting_longer_queries_than_captured_is_class_d(self) -> None:
        frozen = metadata(MIXED[-1], max_query_len=1)
        caught = (*map(capture, MIXED[:-1]), capture(MIXED[-1], caught={"metadata": frozen}))
        case = DispatchCase(
            num_reqs=1,
            num_tokens=8,
            uniform_token_count=8,
            max_query_len=8,
            num_active_loras=0,
            chosen=MIXED[-1],
        )
        record = audit(MIXED, "FULL", captures=caught, dispatch=(case,))
        assert blocking(record) == ["audit:D frozen-query-length"]
        only_decode = case.model_copy(update={"max_query_len": 1})
        assert blocking(record.model_copy(update={"dispatch": (only_decode,)})) == []

    def test_capturing_for_short_sequences_is_class_d(self) -> None:
        short = metadata(DECODE[0], max_seq_len=64)
        caught = (capture(DECODE[0], caught={"metadata": short}),)
        assert blocking(audit(DECODE, "FULL_DECODE_ONLY", captures=caught)) == [
            "audit:D frozen-sequence-length"
        ]

    def test_a_breakable_capture_without_a_break_proves_nothing(self) -> None:
        caught = tuple(capture(desc, eager_breaks=0) for desc in PIECES)
        record = audit(PIECES, "PIECEWISE", captures=caught, breakable=True)
        assert blocking(record) == ["engagement:H breaks"]
        assert blocking(audit(PIECES, "PIECEWISE", captures=caught)) == []


class TestReplay:
    @pytest.mark.parametrize(
        ("wrong", "fault_class"),
        [({"planned": 2}, "C"), ({"scalar": 1}, "D"), ({"live": 1, "planned": 1}, "A")],
    )
    def test_the_column_tells_the_class(self, wrong: dict[str, int], fault_class: str) -> None:
        steps = (step(MIXED[-1], wrong=wrong),)
        assert f"parity:{fault_class} replay" in blocking(audit(MIXED, "FULL", steps=steps))

    def test_only_padded_steps_wrong_is_class_f(self) -> None:
        padded = step(MIXED[-1], query_lens=(1,) * 7, context_lens=(3,) * 7, wrong={"live": 1})
        good = step(MIXED[-1])
        assert blocking(audit(MIXED, "FULL", steps=(good, padded))) == ["parity:F replay"]
        full_too = step(MIXED[-1], wrong={"live": 2})
        found = blocking(audit(MIXED, "FULL", steps=(full_too, padded)))
        assert found == ["parity:A replay"]

    def test_a_state_that_was_captured_without_metadata_is_class_c(self) -> None:
        none = {"metadata": Metadata(present=False)}
        caught = tuple(capture(desc, warm=none, caught=none) for desc in PIECES)
        steps = (step(PIECES[-1], wrong={"state": 3}),)
        record = audit(PIECES, "PIECEWISE", captures=caught, steps=steps)
        assert blocking(record) == ["parity:C replay"]

    def test_writes_of_padded_rows_are_class_f(self) -> None:
        padded = step(
            DECODE[-1], query_lens=(1,) * 6, context_lens=(2,) * 6, stray_writes={"keys": 2}
        )
        assert blocking(audit(DECODE, "FULL_DECODE_ONLY", steps=(padded,))) == [
            "audit:F cache-writes"
        ]

    def test_a_step_that_raises_is_no_pass(self) -> None:
        raised = step(DECODE[0], replayed_graphs=0, error="AssertionError: No cudagraph for it")
        found = blocking(audit(DECODE, "FULL_DECODE_ONLY", steps=(raised,)))
        assert "parity:G step" in found


class TestDescriptorsAndDispatch:
    def test_a_missing_size_is_class_g(self) -> None:
        record = audit(DECODE[:-1], "FULL_DECODE_ONLY")
        assert blocking(record) == ["engagement:G descriptors"]

    def test_a_graph_of_another_mode_is_class_g(self) -> None:
        record = audit(DECODE + MIXED, "FULL_DECODE_ONLY")
        assert blocking(record) == ["engagement:G descriptors"]

    def test_num_reqs_of_pieces_is_a_convention(self) -> None:
        counted = tuple(d.model_copy(update={"num_reqs": d.num_tokens}) for d in PIECES)
        assert blocking(audit(counted, "PIECEWISE")) == []

    @pytest.mark.parametrize(
        ("chosen", "check"),
        [
            (DECODE[2], None),
            (DECODE[3], "dispatch-loose"),
            (DECODE[1], "dispatch-wrong"),
            (None, "dispatch-none"),
            (Descriptor(mode="FULL", num_tokens=4, num_reqs=5), "dispatch-unknown"),
        ],
    )
    def test_each_answer_is_held_against_what_was_planned(
        self, chosen: Descriptor | None, check: str | None
    ) -> None:
        case = DispatchCase(
            num_reqs=4,
            num_tokens=4,
            uniform_token_count=1,
            max_query_len=1,
            num_active_loras=0,
            chosen=chosen,
        )
        found = blocking(audit(DECODE, "FULL_DECODE_ONLY", dispatch=(case,)))
        assert found == ([f"engagement:G {check}"] if check else [])

    @given(
        tokens=st.integers(1, 64),
        reqs=st.integers(1, 64),
        more=st.integers(0, 8),
        loras=st.integers(0, 5),
    )
    def test_a_larger_graph_admits_what_a_smaller_one_admits(
        self, tokens: int, reqs: int, more: int, loras: int
    ) -> None:
        case = DispatchCase(
            num_reqs=reqs,
            num_tokens=tokens,
            uniform_token_count=None,
            max_query_len=tokens,
            num_active_loras=loras,
            chosen=None,
        )
        desc = Descriptor(mode="FULL", num_tokens=tokens, num_reqs=reqs)
        larger = Descriptor(mode="FULL", num_tokens=tokens + more, num_reqs=reqs + more)
        assert admits(desc, case, (), by_loras=False)
        assert admits(larger, case, (), by_loras=False)
        decode = desc.model_copy(update={"uniform_token_count": 1})
        assert not admits(decode, case, (), by_loras=False)
        assert admits(desc, case, (0, 2), by_loras=True) == (loras == 0)


class TestDrafts:
    DRAFT = Draft(
        symbol="vllm.v1.worker.gpu.spec_decode.eagle.cudagraph.Manager",
        phase="prefill",
        metadata_origin="target's",
        steps=4,
    )

    def draft(self, **changes: Any) -> ContractAudit:
        drafted = self.DRAFT.model_copy(update=changes)
        return audit(DECODE, "FULL_DECODE_ONLY", drafts=(drafted,))

    def test_a_graph_that_needs_the_targets_replay_is_a_finding(self) -> None:
        record = self.draft(wrong_alone={"planned": 3})
        assert blocking(record) == ["parity:C draft-prefill-alone"]
        (finding,) = [f for f in judge(record) if f.status.blocks]
        assert "spec_decode/eagle/cudagraph.py: Manager" in finding.why

    def test_managers_must_agree_on_what_captures_are_given(self) -> None:
        none = {"metadata": Metadata(present=False)}
        caught = (capture(DECODE[0], warm=none, caught=none),)
        assert blocking(self.draft(captures=caught)) == ["audit:E draft-prefill-agreement"]

    def test_a_healthy_draft_is_silent(self) -> None:
        assert blocking(self.draft(captures=tuple(map(capture, DECODE)))) == []


def test_places_are_files_and_symbols() -> None:
    assert place("vllm.a.b_c.Class.method") == "vllm/a/b_c.py: Class.method"
    assert place("vllm.a.b.function") == "vllm/a/b.py: function"
