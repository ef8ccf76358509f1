"""What people see: the final report, live progress, and text that nobody vouches for."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import Omission, Plan
from fixtures.evidence.exits import Exited
from fixtures.run.events import (
    CellFinished,
    CellProgress,
    CellQueued,
    CellStarted,
    Note,
    RunEvent,
)
from gates.decide import decide
from gates.policy import read_policy
from gates.verdict import ExitCode, Finding, Gate, Status, Verdict, Verdicts
from graphgate.live import Live
from reports.live import follow
from reports.terminal import NEXT_STEPS, print_report
from reports.text import clean, one_line
from suites.selftest.build import a_cell, a_crash, a_plan, a_run, an_attempt

MODELS = ("dsv4", "inkling", "llama")
KEYS = [
    f"{model}.{mode}.{flag.code}.contract"
    for model in MODELS
    for flag in Breakable
    for mode in GraphMode
]


def a_finding(status: str, why: str = "because", gate: str = "audit") -> Finding:
    evidence = ("vllm/v1/worker/gpu/cudagraph_utils.py:CudaGraphManager.capture",)
    return Finding(
        gate=Gate(gate),
        check="shared-state",
        fault_class="C",
        status=Status(status),
        why=why,
        evidence=evidence,
    )


def judged(
    statuses: dict[str, Finding] | None = None,
    *,
    keys: Iterable[str] = KEYS,
    findings: tuple[Finding, ...] = (),
    **plan_changes: object,
) -> tuple[Verdicts, Plan]:
    special = statuses or {}
    plan = a_plan(*(a_cell(key) for key in keys), **plan_changes)
    verdicts = tuple(
        Verdict(key=cell.key, status=special[str(cell.key)].status, findings=(found,))
        if (found := special.get(str(cell.key)))
        else Verdict(key=cell.key, status=Status.PASS)
        for cell in plan.cells
    )
    decision = decide(plan, verdicts, findings, read_policy())
    return (
        Verdicts(
            source=plan.source.identity,
            sweep=plan.sweep,
            verdicts=verdicts,
            findings=findings,
            decision=decision,
        ),
        plan,
    )


def printed(verdicts: Verdicts, plan: Plan, *, terminal: bool = False) -> str:
    stream = io.StringIO()
    if terminal:
        console = Console(
            file=stream, width=80, force_terminal=True, color_system="standard", _environ={}
        )
    else:
        console = Console(file=stream, width=80, _environ={})
    print_report(verdicts, plan, console)
    return stream.getvalue()


def test_every_status_fits_into_80_columns() -> None:
    found = {key: a_finding(status) for key, status in zip(KEYS, Status, strict=False)}
    text = printed(*judged(found))
    assert max(len(line) for line in text.splitlines()) <= 80
    for status in Status:
        assert status in text


def test_the_modes_head_their_columns_in_order() -> None:
    lines = printed(*judged()).splitlines()
    start = next(i for i, line in enumerate(lines) if "FULL_AND_" in line)
    heads = " ".join(lines[start : start + 2])
    assert heads.split() == [
        *("break-", "FULL_", "FULL_AND_"),
        *("model", "able", "NONE", "PIECEWISE", "FULL", "DECODE_ONLY", "PIECEWISE"),
    ]


def test_a_long_model_name_does_not_break_the_table() -> None:
    name = "m" + "x" * 62
    text = printed(*judged(keys=[f"{name}.{mode}.bk0.contract" for mode in GraphMode]))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "PASS" in text


def test_colours_are_for_terminals_only() -> None:
    assert "\x1b" not in printed(*judged())
    assert "\x1b" in printed(*judged(), terminal=True)


def test_a_blocker_is_told_in_words_with_its_place() -> None:
    text = printed(*judged({KEYS[2]: a_finding("FAIL", "warm-up and capture share state")}))
    assert "What blocks the merge" in text
    assert f"FAIL {KEYS[2]}  [audit:C shared-state]" in text
    assert "warm-up and capture share state" in text
    assert "CudaGraphManager.capture" in text.replace("\n    ", "")
    assert "Merge BLOCKED (exit code 10)" in text


def test_equal_reasons_are_told_once() -> None:
    text = printed(*judged({key: a_finding("FAIL", "all alike") for key in KEYS[:4]}))
    assert text.count("all alike") == 1
    assert "and 3 more" in text


def test_many_reasons_are_cut_and_counted() -> None:
    found = {
        key: a_finding("FAIL", f"reason {key}").model_copy(update={"check": f"rule-{number}"})
        for number, key in enumerate(KEYS)
    }
    assert "and 10 more in verdicts.json" in printed(*judged(found))


def test_a_rule_that_fails_in_many_cells_is_told_once() -> None:
    text = printed(*judged({key: a_finding("FAIL", f"reason {key}") for key in KEYS}))
    assert f"{KEYS[0]} and {len(KEYS) - 1} more" in text
    assert f"reason {KEYS[0]}" in text
    assert f"reason {KEYS[1]}" not in text


def test_what_was_not_run_is_said_with_its_reason() -> None:
    why = "this machine has no GPU"
    left_out = tuple(Omission(tier=Tier.CANARY, model=model, reason=why) for model in MODELS)
    text = printed(*judged(omissions=left_out))
    assert "Not run, and why" in text
    assert f"canary tier (dsv4, inkling, llama): {why}" in text


def test_drift_and_what_it_asks_for_are_shown() -> None:
    drift = a_finding("PASS", "PIECEWISE now gets metadata", "drift")
    text = printed(*judged(findings=(drift,)))
    assert "the tree as a whole" in text
    assert "Incomplete" in text
    assert "asks for the canary tier" in text
    assert "(exit code 31)" in text


def test_variants_share_a_place() -> None:
    keys = [f"dsv4.FULL.bk0.contract.len{n}" for n in (128, 256, 512)]
    text = printed(*judged({keys[1]: a_finding("FAIL")}, keys=keys))
    assert "1 of 3" in text


@pytest.mark.parametrize("status", [status for status in Status if status.blocks])
def test_the_last_line_says_what_to_do_next(status: Status) -> None:
    last = printed(*judged({KEYS[1]: a_finding(status)})).splitlines()[-1]
    assert last == f"Next: {NEXT_STEPS[status.exit_code]}"


def test_every_exit_code_has_a_next_step_of_one_line() -> None:
    assert set(NEXT_STEPS) == set(ExitCode)
    assert all(len(f"Next: {text}") <= 80 for text in NEXT_STEPS.values())


def test_markup_and_escapes_of_a_child_are_plain_text() -> None:
    hostile = "[bold red]x[/bold red] \x1b[2J\x1b]0;title\x07 [/nonsense] \u202eback"
    text = printed(*judged({KEYS[1]: a_finding("CRASH", hostile)}))
    assert "[bold red]x[/bold red]  [/nonsense] back".replace("  ", " ") in text
    assert "\x1b" not in text


@given(st.text())
def test_clean_text_holds_nothing_that_acts(text: str) -> None:
    result = clean(text)
    assert clean(result) == result
    assert not any(ord(c) < 32 and c not in "\t\n" for c in result)
    assert not set(result) & set("\x7f\x85\x9b\u202e\u2066\ufffe\uffff")


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126)))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x1b\\", "link"),
        ("half \x1b[", "half "),
        ("a lone \x1b\x00 end", "a lone  end"),
        ("\ud800lone", "lone"),
        ("tab\tstays", "tab\tstays"),
    ],
)
def test_clean(raw: str, shown: str) -> None:
    assert clean(raw) == shown


@given(st.text(), st.integers(min_value=1, max_value=40))
def test_one_line_fits(text: str, width: int) -> None:
    line = one_line(text, width)
    assert len(line) <= width
    assert "\n" not in line


def events() -> list[RunEvent]:
    good, bad = a_run(a_cell(KEYS[0])), a_cell(KEYS[1])
    died = a_run(
        bad,
        attempts=(an_attempt(Exited(code=1)), an_attempt(Exited(code=1), index=1)),
        observation=None,
        crash=a_crash("INFRA", "busy [/bold] \x1b[2J"),
    )
    key = good.cell.key
    return [
        CellQueued(key=key),
        CellQueued(key=bad.key),
        CellStarted(key=key, attempt=0),
        CellProgress(key=key, phase="[/work]\x1b[2J", done=3, total=11, unit="graphs"),
        CellFinished(run=good),
        CellStarted(key=bad.key, attempt=1),
        Note(text="fork server [restarted]"),
        CellFinished(run=died),
    ]


def test_progress_in_a_log_is_a_line_per_cell() -> None:
    stream = io.StringIO()
    runs = follow(events(), Console(file=stream, width=80, _environ={}))
    assert [str(run.cell.key) for run in runs] == KEYS[:2]
    assert stream.getvalue().splitlines() == [
        f"[1/2] {KEYS[0]} completed (3.5 s)",
        "note: fork server [restarted]",
        f"[2/2] {KEYS[1]} did not complete: busy [/bold] (7.0 s, 2 attempts)",
    ]


def test_progress_on_a_terminal_shows_bars_and_tells_of_failures() -> None:
    stream = io.StringIO()
    follow(events(), Console(file=stream, width=80, force_terminal=True, _environ={}))
    text = stream.getvalue()
    assert "all cells" in text
    assert "did not complete: busy [/bold]" in text
    assert "\x1b[2J" not in text


@pytest.mark.parametrize("terminal", [False, True])
def test_the_verbs_show_the_same_and_no_escapes_of_a_child(terminal: bool) -> None:
    stream = io.StringIO()
    console = Console(
        file=stream, width=80, force_terminal=terminal, color_system=None, _environ={}
    )
    live = Live(console)
    with live.step("fetch [bold]\x1b]0;title\x07"):
        pass
    runs = live.follow(events(), 2)
    assert [str(run.cell.key) for run in runs] == KEYS[:2]
    assert "fetch [bold]" in stream.getvalue()
    assert f"[2/2] {KEYS[1]} did not complete: busy [/bold]" in stream.getvalue()
    assert "\x1b[2J" not in stream.getvalue()
    assert "title" not in stream.getvalue()
