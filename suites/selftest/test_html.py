"""The HTML report as text: what is in it, what never is, and that it stays the same."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.cells.cell import CellKey, Source
from fixtures.evidence.cellrun import Observation
from fixtures.evidence.exits import Exited
from gates.verdict import Finding, Gate, Status, Verdict
from reports.annotation import render_annotation
from reports.html import render_html
from reports.html.cellpage import EXCERPT, cut
from reports.html.figures import CellFigures, ParitySeries, Score
from reports.html.plots import parity_plot
from reports.html.timeline import WIDTH, timeline
from reports.junit import render_junit
from reports.reasons import causes_of
from reports.reproduce import cell_alone, cell_with_kin
from suites.selftest.build import SOURCE, a_cell, a_crash, a_run, an_attempt, an_engagement
from suites.selftest.nights import NOW, Night, a_night, night
from suites.selftest.snapshots import is_as_before

KEY = "llama.FULL.bk0.canary"


class Page(HTMLParser):
    """The elements, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def drawn(given: Night | None = None, figures: dict[str, CellFigures] | None = None) -> str:
    verdicts, plan, runs = given or a_night()
    return render_html(verdicts, plan, runs, NOW, figures or {}).decode()


def body(text: str) -> str:
    """The page without style, script and their digests, which change with every touch."""
    bare = re.sub(r"<(style|script)>.*?</\1>", r"<\1></\1>", text, flags=re.DOTALL)
    return re.sub(r"sha256-[A-Za-z0-9+/=]+", "sha256", bare)


def test_reports_of_the_same_night_look_as_before() -> None:
    verdicts, plan, runs = a_night()
    assert is_as_before("index.html", body(drawn()))
    assert is_as_before("annotation.md", render_annotation(verdicts, plan, runs))
    assert is_as_before("junit.xml", render_junit(verdicts, runs, NOW).decode())


def test_equal_evidence_gives_equal_bytes() -> None:
    verdicts, plan, runs = a_night()
    again = type(verdicts).model_validate_json(verdicts.to_json())
    assert drawn() == drawn(Night(again, plan, dict(reversed(list(runs.items())))))


def test_every_link_leads_to_a_place_in_the_page() -> None:
    page = Page(drawn())
    ids = {value for _, name, value in page.attributes if name == "id"}
    links = [value or "" for _, name, value in page.attributes if name == "href"]
    inside = [link for link in links if link.startswith("#")]
    assert len(inside) > 12
    assert {link[1:] for link in inside} <= ids
    assert [link for link in links if not link.startswith("#")] == ["data:,"]


def test_nothing_is_fetched_or_handled_by_attributes() -> None:
    page = Page(drawn())
    assert not {"img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert page.tags.count("script") == page.tags.count("style") == 1
    names = {name for _, name, _ in page.attributes}
    assert not {name for name in names if name.startswith("on")} | ({"src", "style"} & names)


def test_the_first_screen_names_decision_blockers_and_matrix() -> None:
    text = drawn()
    order = ["Merge BLOCKED", "What blocks the merge", "illegal memory access", "The matrix"]
    places = [text.index(part, text.index("<h1")) for part in order]
    assert places == sorted(places)


def test_a_cell_with_many_failed_rules_is_one_cause() -> None:
    def failed(key: str, *checks: str) -> Verdict:
        found = tuple(
            Finding(gate=Gate.AUDIT, check=check, status=Status.FAIL, why=f"{check} is wrong")
            for check in checks
        )
        return Verdict(key=CellKey.parse(key), status=Status.FAIL, findings=found)

    one = failed("a.FULL.bk0.contract", "inputs", "shape")
    other = failed("a.FULL.bk1.contract", "inputs", "inputs", "order")
    alone = failed("a.NONE.bk0.contract", "shape")
    verdicts = a_night().verdicts.model_copy(update={"verdicts": (one, other, alone)})
    told = [(cause.finding.check, cause.keys, cause.also) for cause in causes_of(verdicts)]
    both = [str(one.key), str(other.key)]
    assert told == [
        ("inputs", both, ["audit shape", "audit order"]),
        ("shape", [str(alone.key)], []),
    ]


def test_a_crash_has_kernel_place_exception_and_excerpt() -> None:
    text = Page(drawn()).text
    for fact in ("kernel gather_rows", "kernels.cu:42", "0x7f696f7a0fb0", "ended by SIGABRT"):
        assert fact in text
    assert "CUDA error: an illegal memory access was encountered" in text


def test_an_earlier_attempt_is_kept_with_its_reason() -> None:
    text = Page(drawn()).text
    assert "exited with code 1 in phase exit after 3.5 s: INFRA, GPU has fallen off the bus" in text
    assert "Xid 79 on GPU-0" in text


def test_a_planned_cell_without_a_run_has_a_page() -> None:
    verdicts, plan, _ = a_night()
    assert f'id="cell-{KEY}"' in drawn(Night(verdicts, plan, {}))


def test_many_blockers_are_cut_and_counted() -> None:
    runs = [
        a_run(
            a_cell(f"m{number}.FULL.bk0.canary"),
            attempts=(an_attempt(Exited(code=1)),),
            observation=None,
            crash=a_crash(title=f"fault {number}"),
        )
        for number in range(60)
    ]
    assert "And 20 more; the list of all cells has each." in Page(drawn(night(runs))).text


def test_no_figures_no_sections() -> None:
    assert "<h3>Parity</h3>" not in drawn()
    assert "<h3>Scores</h3>" not in drawn()


def test_figures_are_drawn_where_there_are_some() -> None:
    series = ParitySeries(differences=(0.0, 0.1, 0.4), band=(0.1, 0.2, 0.2))
    score = Score(task="gsm8k", score=0.95, low=0.94, high=0.96, questions=1319, p_value=0.25)
    text = drawn(figures={KEY: CellFigures(parity=series, scores=(score,))})
    assert "1 of 3 steps lie outside" in text
    assert "0.940 to 0.960" in text


def test_a_parity_plot_spans_its_picture() -> None:
    plot = parity_plot(ParitySeries(differences=(0.0, 0.4), band=(0.2, 0.2)))
    assert plot.line == "0.0,160.0 600.0,0.0"
    assert (plot.top, plot.steps, plot.outside) == (0.4, 2, 1)


@given(st.lists(st.dictionaries(st.text(max_size=3), st.floats(-1, 1e6)), max_size=4))
def test_bars_stay_inside_of_their_picture(rows: list[dict[str, float]]) -> None:
    attempts = [an_attempt().model_copy(update={"timings": row}) for row in rows]
    drawing = timeline(attempts)
    for bar in drawing.bars if drawing else ():
        assert 0 <= bar.x <= WIDTH
        assert bar.x + bar.width <= WIDTH + 2.1


def test_megabytes_of_log_are_cut() -> None:
    assert len(cut("x" * 5_000_000)) < EXCERPT + 100
    crash = a_crash().model_copy(update={"excerpt": "y" * 4_000_000})
    run = a_run(a_cell(KEY), attempts=(an_attempt(Exited(code=1)),), observation=None, crash=crash)
    assert len(drawn(night([run]))) < 100_000


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(), max_size=60))
def test_no_text_of_a_child_becomes_an_element(text: str) -> None:
    def page(said: str) -> Page:
        cell = a_cell(KEY)
        died = an_attempt(Exited(code=1), crash=a_crash("INFRA", said), notes=(said,))
        crash = a_crash(title=f"T{said}").model_copy(
            update={"excerpt": f"E{said}", "secondary": (said,), "host_stacks": (said,)}
        )
        refused = an_engagement(cell, refusal=f"R{said}", notes=(said,))
        runs = (
            a_run(cell, attempts=(died, an_attempt(Exited(code=1), index=1)), crash=crash),
            a_run(a_cell("llama.FULL.bk1.canary"), observation=Observation(engagement=refused)),
        )
        return Page(drawn(night(runs)))

    hostile, tame = page(text), page("x")
    assert hostile.tags == tame.tags
    assert [a[:2] for a in hostile.attributes] == [a[:2] for a in tame.attributes]


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "</code></pre><h1>x", '" onload="x', "&lt;b&gt;", "{{ 7 }}"],
)
def test_hostile_text_is_shown_as_it_is(text: str) -> None:
    crash = a_crash(title=text)
    died = (an_attempt(Exited(code=1)),)
    page = Page(drawn(night([a_run(a_cell(KEY), attempts=died, observation=None, crash=crash)])))
    assert f"Failure: {text}" in page.text


def test_commands_hold_a_request_as_one_word() -> None:
    key = a_cell("llama.FULL.bk0.contract.len128").key
    source = Source(**{**SOURCE.plain(), "request": "a b; rm"})
    assert cell_alone(key, source, "pr") == (
        "pytest suites/contract -k llama.FULL.bk0.contract.len128- --vllm 'a b; rm' --sweep pr"
    )
    assert "--vllm 'a b; rm'" in cell_with_kin(key, source, "pr")
