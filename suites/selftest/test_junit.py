"""JUnit: the mapping of statuses, attempts and provenance, and what XML can't hold."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.cells.axes import Tier
from fixtures.evidence.cellrun import CellRun, Observation
from fixtures.evidence.exits import Exited
from gates.evidence import Evidence, judge_evidence
from gates.judge import GATES_OF_TIER
from gates.policy import read_policy
from gates.verdict import Finding, Gate, Status, Verdict, Verdicts
from reports.junit import render_junit
from suites.selftest.build import a_cell, a_crash, a_plan, a_run, an_attempt, an_engagement

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
FULL = a_cell("dsv4.FULL.bk0.contract")
LEAKY = a_run(FULL, attempts=(an_attempt(leaked_pids=(4711,)),))
DEAD = a_run(FULL, attempts=(an_attempt(Exited(code=1)),), observation=None, crash=a_crash())
SICK = an_attempt(Exited(code=1), crash=a_crash("INFRA", "busy or unavailable"))


SCHEMA = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def judged(runs: Iterable[CellRun]) -> tuple[Verdicts, dict[str, CellRun]]:
    by_key = {str(run.cell.key): run for run in runs}
    plan = a_plan(*(run.cell for run in by_key.values()))
    evidence = Evidence(plan, by_key, (), ())
    return judge_evidence(evidence, read_policy(), (), date(2026, 11, 30)), by_key


def drawn(*runs: CellRun) -> ElementTree.Element:
    """The document of these runs, which the schema must allow."""
    verdicts, by_key = judged(runs)
    document = ElementTree.fromstring(render_junit(verdicts, by_key, NOW))  # noqa: S314
    SCHEMA.validate(document)
    return document


def case(document: ElementTree.Element, gate: str) -> ElementTree.Element:
    found = document.find(f".//testcase[@name='{gate}']")
    assert found is not None
    return found


def tags(element: ElementTree.Element) -> list[str]:
    return [child.tag for child in element if child.tag != "properties"]


def test_there_is_a_suite_per_tier_and_model_and_a_case_per_cell_and_gate() -> None:
    document = drawn(a_run(FULL), a_run(a_cell("llama.FULL.bk1.contract")))
    names = [suite.get("name") for suite in document]
    assert names == ["contract.dsv4", "contract.llama", "decision"]
    cases = [(c.get("classname"), c.get("name")) for c in document[0].iter("testcase")]
    assert cases == [(str(FULL.key), gate) for gate in GATES_OF_TIER[Tier.CONTRACT]]


def test_a_passed_run_has_no_bad_result() -> None:
    document = drawn(a_run(FULL))
    assert not list(document.iter("failure")) + list(document.iter("error"))
    assert (document.get("failures"), document.get("errors")) == ("0", "0")


@pytest.mark.parametrize(
    ("status", "tag"),
    [
        ("FAIL", "failure"),
        ("VACUOUS", "failure"),
        ("INVALID", "failure"),
        ("CRASH", "error"),
        ("HANG", "error"),
        ("INFRA", "error"),
        ("CONFIG", "error"),
        ("MISSING", "error"),
        ("UNSUPPORTED", "skipped"),
        ("XFAIL", "skipped"),
        ("XPASS", "system-out"),
        ("PASS", "system-out"),
    ],
)
def test_every_status_has_its_word(status: str, tag: str) -> None:
    finding = Finding(gate=Gate.AUDIT, check="any", status=Status(status), why="because")
    verdict = Verdict(key=FULL.key, status=Status(status), findings=(finding,))
    good, _ = judged([a_run(FULL)])
    document = render_junit(good.model_copy(update={"verdicts": (verdict,)}), {}, NOW)
    result = case(ElementTree.fromstring(document), "audit")  # noqa: S314
    assert tags(result) == [tag]
    assert "because" in "".join(result.itertext())


def test_a_failure_names_its_status_and_reason() -> None:
    failure = case(drawn(LEAKY), "hygiene").find("failure")
    assert failure is not None
    assert failure.get("type") == "FAIL"
    assert "outlived the child" in (failure.get("message") or "")


def test_a_crash_is_an_error_and_the_other_gates_are_skipped() -> None:
    document = drawn(DEAD)
    assert tags(case(document, "liveness")) == ["error"]
    assert tags(case(document, "audit")) == ["skipped"]
    assert (document.get("errors"), document.get("failures")) == ("1", "0")


def test_an_attempt_before_a_pass_is_flaky() -> None:
    liveness = case(drawn(a_run(FULL, attempts=(SICK, an_attempt(index=1)))), "liveness")
    assert tags(liveness) == ["system-out", "flakyFailure"]
    flaky = liveness.find("flakyFailure")
    assert flaky is not None
    assert flaky.get("message") == "attempt 1: busy or unavailable"


def test_an_attempt_before_a_failure_is_a_rerun() -> None:
    run = a_run(FULL, attempts=(SICK, SICK), observation=None, crash=SICK.crash)
    assert tags(case(drawn(run), "liveness")) == ["error", "rerunFailure"]


def test_times_and_provenance_are_written_down() -> None:
    document = drawn(a_run(FULL))
    assert case(document, "liveness").get("time") == "3.5"
    properties = {p.get("name"): p.get("value") for p in document[0].findall("properties/property")}
    assert properties["torch"] == "2.13.0"
    assert properties["source"] == "vllm-0.26.0"
    assert document[0].get("timestamp") == "2026-11-30T12:00:00+00:00"


def test_the_schema_refuses_what_readers_do_not_know() -> None:
    document = drawn(a_run(FULL))
    case(document, "liveness").append(ElementTree.Element("retried"))
    assert not SCHEMA.is_valid(document)


def test_no_property_is_written_twice() -> None:
    for properties in drawn(a_run(FULL), DEAD).iter("properties"):
        names = [p.get("name") for p in properties if p.get("name") != "finding"]
        assert len(names) == len(set(names))


def test_an_incomplete_decision_is_a_failure_of_its_own() -> None:
    cell = a_cell("dsv4.PIECEWISE.bk0.contract", expected="NONE")
    failure = case(drawn(a_run(cell)), "decision").find("failure")
    assert failure is not None
    assert "nothing was proven" in (failure.get("message") or "")


def test_the_same_verdicts_give_the_same_bytes() -> None:
    verdicts, runs = judged([DEAD, a_run(a_cell("llama.FULL.bk1.contract"))])
    again = Verdicts.model_validate_json(verdicts.to_json())
    reordered = dict(reversed(runs.items()))
    assert render_junit(verdicts, runs, NOW) == render_junit(again, reordered, NOW)


@settings(max_examples=60)
@given(st.text(st.characters()))
def test_no_text_of_a_child_breaks_the_xml(text: str) -> None:
    crash = a_crash(title=text).model_copy(update={"excerpt": text})
    attempts = (an_attempt(Exited(code=1), crash=crash, index=0), an_attempt(index=1))
    engagement = an_engagement(FULL, refusal=text)
    drawn(
        a_run(FULL, attempts=attempts, observation=Observation(engagement=engagement)),
        a_run(a_cell("llama.FULL.bk1.contract"), attempts=attempts, crash=crash, observation=None),
    )
