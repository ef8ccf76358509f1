"""The HTML report in a real browser: links, keyboard, filter, themes, widths, silence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from fixtures.evidence.exits import Exited
from reports.history.page import render_history, trends
from reports.history.store import History
from reports.html import render_html
from reports.html.figures import CellFigures, Score
from suites.selftest.browser import Browser, find_browser
from suites.selftest.build import a_cell, a_crash, a_run, an_attempt
from suites.selftest.nights import NOW, Night, a_night, night

KEY = "llama.FULL.bk0.canary"
HOSTILE = (
    "</script><script>window.broken = 1</script><img src='https://example.org/x' "
    "onerror='window.broken = 1'><style>*{display:none}</style>\u202e\x1b[31m\x00"
)
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        if os.environ.get("GRAPHGATE_BROWSER") == "required":
            pytest.fail("GRAPHGATE_BROWSER=required, but there is no Chromium on this machine")
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with Browser(program) as started:
        yield started


def saved(folder: Path, given: Night) -> Path:
    page = folder / "index.html"
    page.write_bytes(render_html(*given, NOW))
    return page


@pytest.fixture
def page(tmp_path: Path, browser: Browser) -> Iterator[Path]:
    browser.requests.clear()
    browser.errors.clear()
    made = saved(tmp_path, a_night())
    yield made
    assert browser.errors == []
    assert set(browser.requests) - {"about:blank"} == {made.as_uri()}


def focused(browser: Browser) -> str:
    return str(browser.run("document.activeElement.id || document.activeElement.hash"))


def settle(browser: Browser) -> None:
    browser.run("new Promise(done => setTimeout(done, 100))")


def visible(browser: Browser, selector: str) -> bool:
    script = f"document.querySelector({selector!r}).checkVisibility()"
    return bool(browser.run(script))


def test_a_link_opens_a_cell_and_escape_goes_back(page: Path, browser: Browser) -> None:
    browser.open(page)
    browser.run(f"document.querySelector('.matrix a[href=\"#cell-{KEY}\"]').focus()")
    browser.press("Enter")
    settle(browser)
    assert focused(browser) == f"cell-{KEY}"
    assert not visible(browser, "#overview")
    browser.press("Escape")
    settle(browser)
    assert visible(browser, "#overview")
    assert focused(browser) == f"#cell-{KEY}"


def test_arrow_keys_move_inside_of_the_matrix(page: Path, browser: Browser) -> None:
    browser.open(page)
    browser.run("document.querySelector('.matrix a').focus()")
    first = focused(browser)
    browser.press("ArrowRight")
    second = focused(browser)
    assert second.startswith("#cell-")
    assert second != first
    browser.press("ArrowLeft")
    assert focused(browser) == first


def test_the_first_tab_offers_to_skip_the_bar(page: Path, browser: Browser) -> None:
    browser.open(page)
    browser.press("Tab")
    assert focused(browser) == "#main"


def test_the_filter_narrows_the_list_and_says_so(page: Path, browser: Browser) -> None:
    browser.open(page)
    browser.run("document.getElementById('filter-text').focus()")
    browser.type("LLAMA")
    assert browser.run("document.getElementById('filter-count').textContent") == "3 of 6 cells"
    browser.run(
        "document.getElementById('filter-status').value = 'CRASH';"
        "document.getElementById('filter').dispatchEvent(new Event('input'))"
    )
    assert browser.run("document.getElementById('filter-count').textContent") == "1 of 6 cells"


def test_a_page_is_inert_text_until_it_is_opened(page: Path, browser: Browser) -> None:
    browser.open(page)
    inside = f"document.getElementById('cell-{KEY}').querySelectorAll('*').length"
    assert browser.run(inside) == 1
    browser.run(f"location.hash = '#cell-{KEY}'")
    settle(browser)
    assert browser.run(inside) > 20
    assert "<" not in browser.run(f"document.getElementById('cell-{KEY}').innerText")


def test_a_link_from_elsewhere_opens_its_cell(page: Path, browser: Browser) -> None:
    browser.open(page, at=f"cell-{KEY}")
    assert visible(browser, f"article[id='cell-{KEY}'] h2")


def test_a_long_list_shows_a_part_and_searches_all(tmp_path: Path, browser: Browser) -> None:
    cells = [a_run(a_cell(f"m{number}.FULL.bk0.contract")) for number in range(1201)]
    browser.errors.clear()
    browser.open(saved(tmp_path, night(cells)))
    rows = "document.getElementById('cell-list').tBodies[0].rows.length"
    count = "document.getElementById('filter-count').textContent"
    assert (browser.run(rows), browser.run(count)) == (500, "1201 of 1201 cells")
    for expected in (1000, 1201):
        browser.run("document.getElementById('more').click()")
        assert browser.run(rows) == expected
    assert not visible(browser, "#more")
    browser.run("document.getElementById('filter-text').focus()")
    browser.type("M1200.full")
    assert (browser.run(rows), browser.run(count)) == (1, "1 of 1201 cells")
    assert browser.errors == []


@pytest.mark.parametrize("width", [1280, 380])
@pytest.mark.parametrize("dark", [False, True])
def test_both_themes_fit_both_widths(page: Path, browser: Browser, width: int, dark: bool) -> None:
    browser.open(page, width=width, dark=dark)
    for target in ("overview", *(f"cell-{verdict.key}" for verdict in a_night().verdicts.verdicts)):
        browser.run(f"location.hash = '#{target}'")
        settle(browser)
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.run(wide) == 0, target
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is not dark


def test_the_button_overrides_the_system_s_theme(page: Path, browser: Browser) -> None:
    browser.open(page)
    light = browser.run("getComputedStyle(document.body).backgroundColor")
    for _ in range(2):
        browser.run("document.getElementById('theme').click()")
    assert browser.run("document.getElementById('theme-name').textContent") == "dark"
    assert browser.run("getComputedStyle(document.body).backgroundColor") != light
    browser.run("document.getElementById('theme').click()")


CONTRAST = """
(() => {
  const linear = (c) => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const channel = (c) => linear(c / 255);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  let worst = 99;
  for (const e of document.querySelectorAll("#overview *")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    worst = Math.min(worst, (Math.max(a, b) + .05) / (Math.min(a, b) + .05));
  }
  return worst;
})()
"""


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_what_is_behind_it(page: Path, browser: Browser, dark: bool) -> None:
    """4.5 to 1 is what WCAG 2.2 asks for at level AA."""
    browser.open(page, dark=dark)
    assert browser.run(CONTRAST) >= 4.5


def test_a_screen_reader_finds_its_landmarks_and_headers(page: Path, browser: Browser) -> None:
    browser.open(page, width=380)
    wanted = {"banner", "main", "contentinfo", "search", "table", "columnheader", "rowheader"}
    assert wanted <= browser.roles()


def test_what_a_child_says_does_nothing(tmp_path: Path, browser: Browser) -> None:
    crash = a_crash(title=HOSTILE).model_copy(update={"excerpt": HOSTILE * 50})
    died = (an_attempt(Exited(code=1), notes=(HOSTILE,)),)
    run = a_run(a_cell(KEY), attempts=died, observation=None, crash=crash)
    made = saved(tmp_path, night([run]))
    browser.requests.clear()
    browser.errors.clear()
    browser.open(made, width=380)
    browser.run(f"location.hash = '#cell-{KEY}'")
    settle(browser)
    assert browser.run("window.broken ?? 'whole'") == "whole"
    assert visible(browser, f"article[id='cell-{KEY}'] h2")
    assert "onerror" in browser.run("document.body.innerText")
    assert browser.errors == []
    assert set(browser.requests) - {"about:blank"} == {made.as_uri()}


@pytest.mark.parametrize("width", [1280, 380])
def test_the_trend_page_fits_and_is_as_silent(tmp_path: Path, browser: Browser, width: int) -> None:
    score = Score(task="gsm8k", score=0.95, low=0.94, high=0.96, questions=1319)
    with History(tmp_path / "h.db") as history:
        for day in range(3):
            figures = {KEY: CellFigures(scores=(score,))}
            history.add_night(*a_night(), NOW + timedelta(days=day), figures)
        made = tmp_path / "trends.html"
        made.write_bytes(render_history(trends(history), NOW))
    browser.requests.clear()
    browser.errors.clear()
    browser.open(made, width=width)
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.run(wide) == 0
    assert browser.run("document.querySelectorAll('svg').length") == 3
    assert browser.errors == []
    assert set(browser.requests) - {"about:blank"} == {made.as_uri()}


def test_the_page_may_not_fetch_even_if_it_tried(page: Path, browser: Browser) -> None:
    browser.open(page)
    refused = browser.run("fetch('https://example.org').then(() => 'sent', () => 'refused')")
    assert refused == "refused"
    assert any("Content Security Policy" in error for error in browser.errors)
    browser.errors.clear()
