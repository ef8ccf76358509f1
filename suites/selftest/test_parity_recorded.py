"""The parity gate's rules on outputs that were recorded on an H200."""

from __future__ import annotations

from gates.parity.blocks import check_of
from gates.parity.exact import judge_exact
from gates.parity.rules import ParityRules
from gates.parity.texts import judge_texts
from gates.verdict import Status
from suites.selftest.recorded import PROMPTS, TEXT, recorded_pairs

RULES = ParityRules()
S2 = "FULL_DECODE_ONLY with warm-up state reused at capture"


def test_clean_text_of_dsv4_is_the_reference_s() -> None:
    found = judge_texts(recorded_pairs(TEXT, "FULL_DECODE_ONLY", "NONE"), 0.0, RULES)
    assert found.status is Status.PASS
    assert "48 tokens" in found.why


def test_warm_up_state_reused_at_capture_shows_at_the_fourth_token() -> None:
    found = judge_texts(recorded_pairs(TEXT, S2, "NONE"), 0.0, RULES)
    assert found.status is Status.FAIL
    assert "at token 3" in found.why
    assert "3 of 48 tokens" in (found.measured or "")


def test_llama_s_full_graphs_are_wrong_for_every_prompt_that_fits_one() -> None:
    pairs = recorded_pairs(PROMPTS, "FULL", "NONE")
    short = [pair for pair in pairs if check_of(pair.tested.scenario).endswith("on-size")]
    found = judge_exact("prompt-alone-on-size", short, None, RULES)
    assert found.status is Status.FAIL
    assert found.why.startswith("15 of 15 batches")
    long = [pair for pair in pairs if pair not in short]
    assert judge_exact("prompt-alone-beyond", long, None, RULES).status is Status.PASS
