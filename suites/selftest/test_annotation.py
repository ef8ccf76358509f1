"""The Markdown: what stands first, what fits, and text that must stay text."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fixtures.evidence.exits import Exited
from gates.verdict import ExitCode, Finding, Verdicts
from reports.annotation import (
    ANNOTATION_BYTES,
    COMMENT_BYTES,
    COMMENT_MARK,
    render_annotation,
    render_comment,
)
from reports.markdown import block, code, plain
from reports.text import clean, one_line
from suites.selftest.build import a_cell, a_crash, a_run, an_attempt
from suites.selftest.test_terminal import KEYS, a_finding, judged

MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})
HOSTILE = (
    "<script>alert(1)</script>",
    "</details><img src=x onerror=alert(1)>",
    "**bold** _it_ `tick` ~~gone~~ [link](http://x) ![pic](http://x)",
    "| a | b |",
    "@everyone see #123, GH-7 and :rocket:",
    "https://example.org www.example.org a@example.org",
    "# heading\n- item\n1. one\n> quote\n```\nfence",
    "\x1b[31mred\x1b[0m \u202eback\x00",
    "&lt;b&gt; &amp; &#64;",
    "``` ```` `",
)


def text_of(markdown: str) -> tuple[str, set[str]]:
    """What a reader sees of rendered Markdown, and the elements that carry it."""
    page = MARKDOWN.render(markdown)
    tags = set(re.findall(r"</?([a-z0-9]+)", page))
    seen = html.unescape(re.sub(r"<[^>]*>", "", page)).replace("\u2060", "")
    return seen, tags


def text_alone(text: str) -> None:
    seen, tags = text_of(f"x{plain(text)}x")
    assert tags == {"p"}
    assert seen.strip() == f"x{one_line(text)}x"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_it_is(text: str) -> None:
    text_alone(text)


@settings(max_examples=300)
@given(st.text(st.characters(max_codepoint=0x2FFF), max_size=80))
def test_any_text_is_shown_as_it_is(text: str) -> None:
    if "\u2060" not in text:
        text_alone(text)


@settings(max_examples=200)
@given(st.text("`ab |\\<&\n", max_size=40))
def test_code_is_shown_as_it_is(text: str) -> None:
    seen, tags = text_of(f"x {code(text)} x")
    assert tags == {"p", "code"}
    assert " ".join(seen.split()) == " ".join(f"x {one_line(text)} x".split())
    seen, tags = text_of(block(text))
    assert tags == {"pre", "code"}
    assert seen.rstrip("\n") == clean(text).rstrip("\n")


@pytest.mark.parametrize("trigger", ["@team", "#12", "a/b#12", "GH-12", ":tada:", "https://x.y"])
def test_what_forges_make_links_of_is_taken_apart(trigger: str) -> None:
    assert trigger not in MARKDOWN.render(plain(trigger))


def drawn(why: str = "because", findings: tuple[Finding, ...] = ()) -> str:
    verdicts, plan = judged({KEYS[2]: a_finding("FAIL", why)}, findings=findings)
    return render_annotation(verdicts, plan, {})


def test_the_decision_and_the_blockers_come_first() -> None:
    text = drawn("state is shared")
    order = ["merge BLOCKED", "**FAIL** `audit:C shared-state`: state is shared", "**Next:**"]
    places = [text.index(part) for part in [*order, "<details>"]]
    assert places == sorted(places)
    assert f"`{KEYS[2]}`" in text[: places[-1]]


def test_a_green_night_says_so_in_one_breath() -> None:
    verdicts, plan = judged()
    text = render_annotation(verdicts, plan, {})
    assert "merge allowed" in text
    assert "30 PASS" in text
    assert "FAIL" not in text


def test_every_blocked_cell_has_the_command_that_runs_it_alone() -> None:
    assert f"pytest suites/contract -k {KEYS[2]}- --vllm 0.26.0 --sweep pr" in drawn()


def test_a_crash_is_folded_with_kernel_and_excerpt() -> None:
    cell = a_cell(KEYS[2])
    verdicts, plan = judged({KEYS[2]: a_finding("CRASH", "illegal access")})
    died = (an_attempt(Exited(code=1)),)
    run = a_run(cell, attempts=died, observation=None, crash=a_crash())
    text = render_annotation(verdicts, plan, {KEYS[2]: run})
    assert "in `gather_rows` (`kernels.cu:42`)" in text
    assert "CUDA error: an illegal memory access was encountered" in text


def huge() -> tuple[Verdicts, str]:
    keys = [f"m{n}.FULL.bk0.contract" for n in range(4000)]
    found = {key: a_finding("FAIL", f"{key} " + "<b>*long*</b> " * 60) for key in keys}
    verdicts, plan = judged(found, keys=keys)
    return verdicts, render_annotation(verdicts, plan, {})


def test_an_annotation_stays_below_its_limit_and_says_what_is_left_out() -> None:
    verdicts, text = huge()
    assert len(text.encode()) < ANNOTATION_BYTES
    assert "don't fit here" in text
    assert verdicts.decision.exit_code is ExitCode.FAIL
    assert "merge BLOCKED" in text
    assert text.count("<details>") == text.count("</details>")


def test_a_comment_carries_its_mark_and_fits() -> None:
    keys = [f"m{n}.FULL.bk0.contract" for n in range(600)]
    verdicts, plan = judged({key: a_finding("FAIL", key * 9) for key in keys}, keys=keys)
    text = render_comment(verdicts, plan, {})
    assert text.startswith(COMMENT_MARK)
    assert len(text.encode()) < COMMENT_BYTES
    assert "merge BLOCKED" in text


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=200))
def test_no_text_of_a_child_adds_an_element(text: str) -> None:
    _, usual = text_of(drawn())
    _, tags = text_of(drawn(text, findings=(a_finding("PASS", text, "drift"),)))
    assert tags - usual <= {"p", "strong"}


def test_equal_verdicts_give_equal_text() -> None:
    assert drawn() == drawn()
