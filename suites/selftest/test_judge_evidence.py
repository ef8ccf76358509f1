"""Judging stored evidence: shards, strangers, broken lines, absent files."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.exits import Exited
from gates.evidence import judge_folder
from gates.policy import read_policy
from gates.verdict import ExitCode, Status, Verdicts
from graphgate.judge import judge
from graphgate.report import report
from suites.selftest.build import SOURCE, a_cell, a_crash, a_plan, a_run, an_attempt, write_shard

POLICY = read_policy()
TODAY = date(2026, 11, 30)
FULL = a_cell("dsv4.FULL.bk0.contract")
EAGER = a_cell("dsv4.NONE.bk0.contract")
LLAMA = a_cell("llama.FULL.bk0.contract")

GOOD = a_run(FULL)
DEAD = a_run(FULL, attempts=(an_attempt(Exited(code=1)),), observation=None)
SICK = a_run(FULL, attempts=(an_attempt(Exited(code=1)),), crash=a_crash("INFRA"))
LEAKY = a_run(FULL, attempts=(an_attempt(leaked_pids=(4711,)),))


def judged(*folders: Path) -> Verdicts:
    return judge_folder(list(folders), POLICY, (), TODAY)


def statuses(verdicts: Verdicts) -> dict[str, str]:
    return {str(verdict.key): str(verdict.status) for verdict in verdicts.verdicts}


def test_a_whole_run_is_allowed(tmp_path: Path) -> None:
    verdicts = judged(write_shard(tmp_path, a_plan(FULL, EAGER), [GOOD, a_run(EAGER)]))
    assert verdicts.decision.allow
    assert verdicts.source == SOURCE.identity
    assert verdicts.notes == ()


def test_an_interrupted_run_leaves_missing_cells(tmp_path: Path) -> None:
    verdicts = judged(write_shard(tmp_path, a_plan(FULL, EAGER), [a_run(EAGER)]))
    assert statuses(verdicts)[str(FULL.key)] == "MISSING"
    assert verdicts.decision.exit_code is ExitCode.MISSING


def test_a_plan_without_a_ledger_is_all_missing(tmp_path: Path) -> None:
    verdicts = judged(write_shard(tmp_path, a_plan(FULL), None))
    assert statuses(verdicts) == {str(FULL.key): "MISSING"}
    assert "no ledger.jsonl" in verdicts.notes[0]


def test_a_broken_line_is_told_and_the_rest_is_kept(tmp_path: Path) -> None:
    write_shard(tmp_path, a_plan(FULL, EAGER), [a_run(EAGER)])
    with (tmp_path / "ledger.jsonl").open("a", encoding="utf-8") as ledger:
        ledger.write('{"cell": {"key"\n' + GOOD.to_json(indent=None) + "\n")
    verdicts = judged(tmp_path)
    assert verdicts.decision.allow
    assert "line 2" in verdicts.notes[0]


def test_the_latest_run_of_a_ledger_counts(tmp_path: Path) -> None:
    verdicts = judged(write_shard(tmp_path, a_plan(FULL), [DEAD, GOOD]))
    assert verdicts.decision.allow
    assert "run 2 times" in verdicts.notes[0]


@pytest.mark.parametrize(
    ("stranger", "named"),
    [
        (a_run(FULL, source="vllm-0.21.0"), "vllm-0.21.0"),
        (a_run(FULL.model_copy(update={"mutant": "shared-state"})), "differs"),
        (a_run(LLAMA), "not planned"),
    ],
)
def test_a_run_of_something_else_is_no_evidence(
    tmp_path: Path, stranger: CellRun, named: str
) -> None:
    verdicts = judged(write_shard(tmp_path, a_plan(FULL), [stranger]))
    assert statuses(verdicts) == {str(FULL.key): "MISSING"}
    assert named in verdicts.notes[0]


def test_shards_are_merged(tmp_path: Path) -> None:
    one = write_shard(tmp_path / "one", a_plan(FULL, hardware_tiers_due=("dsv4",)), [GOOD])
    two = write_shard(tmp_path / "two", a_plan(LLAMA), [a_run(LLAMA)])
    verdicts = judged(one, two)
    assert set(statuses(verdicts)) == {str(FULL.key), str(LLAMA.key)}
    assert "no canary cell was judged of dsv4" in verdicts.decision.incomplete[0]


def test_a_shard_that_never_came_back_is_known_from_the_whole_plan(tmp_path: Path) -> None:
    whole = write_shard(tmp_path / "whole", a_plan(FULL, LLAMA), None)
    one = write_shard(tmp_path / "one", a_plan(FULL), [GOOD])
    assert statuses(judged(whole, one))[str(LLAMA.key)] == "MISSING"


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (a_plan(FULL, source=SOURCE.model_copy(update={"identity": "vllm-0.21.0"})), "source"),
        (a_plan(FULL, sweep="nightly"), "sweep"),
        (a_plan(FULL.model_copy(update={"engine": {"max_model_len": 128}})), "cells"),
    ],
)
def test_folders_of_different_runs_are_not_mixed(tmp_path: Path, other: object, named: str) -> None:
    one = write_shard(tmp_path / "one", a_plan(FULL), [GOOD])
    two = write_shard(tmp_path / "two", other, [GOOD])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"two/plan\.json: {named}: .*shards of one run"):
        judged(one, two)


@pytest.mark.parametrize(
    ("runs", "status"),
    [
        ((GOOD, LEAKY), Status.FAIL),
        ((GOOD, DEAD), Status.CRASH),
        ((SICK, GOOD), Status.PASS),
        ((SICK, LEAKY), Status.FAIL),
    ],
)
def test_of_two_shards_runs_the_more_telling_counts(
    tmp_path: Path, runs: tuple[CellRun, CellRun], status: Status
) -> None:
    for names in (("a", "b"), ("b", "a")):
        for name, run in zip(names, runs, strict=True):
            write_shard(tmp_path / name, a_plan(FULL), [run])
        verdicts = judged(tmp_path / "a", tmp_path / "b")
        assert statuses(verdicts) == {str(FULL.key): str(status)}
        assert "more than one shard" in verdicts.notes[0]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shards=st.lists(
        st.lists(st.sampled_from([GOOD, DEAD, SICK, LEAKY, a_run(EAGER), a_run(LLAMA)])),
        min_size=1,
        max_size=3,
    ),
    order=st.randoms(use_true_random=False),
)
def test_the_order_of_shards_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, shards: list[list[CellRun]], order: object
) -> None:
    root = tmp_path_factory.mktemp("shards")
    names = [f"s{index}" for index in range(len(shards))]
    renamed = list(names)
    order.shuffle(renamed)  # type: ignore[attr-defined]
    plan = a_plan(FULL, EAGER, LLAMA)
    for name, other, runs in zip(names, renamed, shards, strict=True):
        write_shard(root / "named" / name, plan, runs)
        write_shard(root / "renamed" / other, plan, runs)
    first = judged(*(root / "named" / name for name in names))
    second = judged(*(root / "renamed" / name for name in reversed(names)))
    assert first.verdicts == second.verdicts
    assert first.decision == second.decision


@pytest.mark.parametrize("text", [None, "{", '{"schema_version": 1}'])
def test_a_folder_without_a_plan_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "plan.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"plan\.json"):
        judged(tmp_path)


def test_a_plan_of_an_unknown_version_is_refused(tmp_path: Path) -> None:
    write_shard(tmp_path, a_plan(FULL, schema_version=99), [GOOD])
    with pytest.raises(ConfigError, match="schema_version"):
        judged(tmp_path)


def test_the_verb_exits_with_the_decisions_code_and_writes_the_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_shard(tmp_path, a_plan(FULL), [LEAKY])
    with pytest.raises(typer.Exit) as ended:
        judge([tmp_path])
    assert ended.value.exit_code == 10
    assert Verdicts.read_json(tmp_path / "verdicts.json").decision.exit_code == 10
    assert "Next: " in capsys.readouterr().out.splitlines()[-1]


def test_a_report_is_drawn_from_stored_verdicts(tmp_path: Path) -> None:
    write_shard(tmp_path / "run", a_plan(FULL), [GOOD])
    with pytest.raises(typer.Exit):
        judge([tmp_path / "run"], out=tmp_path / "out")
    report([tmp_path / "out", tmp_path / "run"])
    assert (tmp_path / "out" / "junit.xml").read_bytes().startswith(b"<?xml")
