"""Recorded scores: the files, and the verb that makes one from runs or refuses to."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun
from fixtures.evidence.samples import Samples
from gates.evidence import judge_folder
from gates.policy import read_policy
from gates.scores.references import Reference, References, read_references, references_of
from gates.verdict import Status
from graphgate.cli import app
from suites.selftest.answers import (
    FULL,
    NONE,
    a_protocol,
    a_reference,
    a_task,
    some_right,
    some_samples,
    stored,
)
from suites.selftest.build import a_cell, a_plan, write_shard

HEALTHY = a_task(some_right(1258, 1319))
GPU: dict[str, Any] = {"driver": "580.1", "gpu": "NVIDIA H200"}


def a_night(out: Path, samples: Samples, key: str = NONE, **provenance: Any) -> Path:
    """An OUT folder with one cell's answers."""
    out.mkdir(parents=True, exist_ok=True)
    run: CellRun = stored(a_cell(key), samples, out)
    about = run.provenance.model_copy(update={**GPU, **provenance})
    run = run.model_copy(update={"provenance": about})
    return write_shard(out, a_plan(run.cell), [run])


def add(*arguments: object, model: str = "dsv4", task: str = "gsm8k") -> Any:
    words = ["reference", "add", *(str(one) for one in arguments), "--model", model]
    return CliRunner().invoke(app, [*words, "--task", task, "--date", "2026-11-01"])


def refused(result: Any) -> str:
    assert isinstance(result.exception, ConfigError), result.output
    return str(result.exception)


def test_the_shipped_files_are_valid_and_state_the_published_figures() -> None:
    dsv4 = references_of("dsv4", read_policy().references)
    stated = {(one.task, one.state): one.score for one in dsv4.published}
    assert stated == {
        ("gsm8k", "healthy"): 0.954,
        ("aime25", "healthy"): 0.942,
        ("gsm8k", "sick"): 0.169,
        ("aime25", "sick"): 0.0,
    }
    assert references_of("nobody", read_policy().references).references == ()


def test_a_reference_is_made_from_a_run_and_holds_the_next_one(tmp_path: Path) -> None:
    """The healthy score on record blocks the sick one, and lets a healthy one pass."""
    night = a_night(tmp_path / "night", some_samples(HEALTHY, revision="r1"))
    file = tmp_path / "references" / "dsv4.yaml"
    file.parent.mkdir()
    result = add(night, "--out", file, "--margin", "0.02", "--why", "two nights differ by 0.7")
    assert result.exit_code == 0, result.output
    (made,) = References.read_yaml(file).references
    assert (made.right, made.n, made.questions) == (1258, 1319, 1319)
    assert made.protocol == HEALTHY.protocol.digest
    assert made.origin.recorded == date(2026, 11, 1)
    assert (made.origin.driver, made.origin.revision) == ("580.1", "r1")
    assert made.origin.commit == "vllm-0.26.0"

    policy = read_policy().model_copy(update={"references": read_references(file.parent)})
    for right, status in ((1250, Status.PASS), (223, Status.FAIL)):
        later = a_night(tmp_path / str(right), some_samples(a_task(some_right(right, 1319))))
        (verdict,) = judge_folder([later], policy, (), date(2026, 11, 30)).verdicts
        assert verdict.status is status


def test_nights_under_one_condition_are_pooled(tmp_path: Path) -> None:
    nights = [a_night(tmp_path / name, some_samples(HEALTHY)) for name in ("one", "two")]
    result = add(*nights, "--out", tmp_path / "dsv4.yaml", "--json")
    made = Reference.model_validate_json(result.output)
    assert (made.right, made.n, made.questions) == (2516, 2638, 1319)


def test_invalid_answers_stand_beside_a_reference_and_count_for_nothing(tmp_path: Path) -> None:
    """Ninety-five of a hundred could be read: that is a score, of ninety-five answers."""
    task = a_task([True] * 90 + [False] * 5 + [None] * 5)
    night = a_night(tmp_path / "night", some_samples(task))
    file = tmp_path / "references" / "dsv4.yaml"
    file.parent.mkdir()
    assert add(night, "--out", file).exit_code == 0
    (made,) = References.read_yaml(file).references
    assert (made.right, made.n, made.invalid, made.questions) == (90, 95, 5, 100)
    policy = read_policy().model_copy(update={"references": read_references(file.parent)})
    (verdict,) = judge_folder([night], policy, (), date(2026, 11, 30)).verdicts
    assert verdict.status is Status.PASS


@pytest.mark.parametrize("name", ["driver", "gpu"])
def test_a_run_without_provenance_is_refused(tmp_path: Path, name: str) -> None:
    night = a_night(tmp_path / "night", some_samples(HEALTHY), **{**GPU, name: None})
    message = refused(add(night, "--out", tmp_path / "dsv4.yaml"))
    assert f"does not say its {name}" in message
    assert not (tmp_path / "dsv4.yaml").exists()


def test_a_run_on_a_cpu_says_so(tmp_path: Path) -> None:
    samples = some_samples(HEALTHY, backend="hf")
    night = a_night(tmp_path / "night", samples, driver=None, gpu=None)
    assert add(night, "--out", tmp_path / "dsv4.yaml").exit_code == 0
    (made,) = References.read_yaml(tmp_path / "dsv4.yaml").references
    assert made.origin.driver == "none: CPU"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (some_samples(a_task(some_right(9, 10), protocol=a_protocol(shots=8))), "protocol"),
        (some_samples(a_task(some_right(8, 9))), "documents"),
        (some_samples(a_task(some_right(9, 10)), checkpoint="made-up/other"), "checkpoint"),
        (some_samples(a_task(some_right(9, 10)), revision="r2"), "revision"),
    ],
)
def test_runs_under_two_conditions_are_refused(tmp_path: Path, change: Samples, named: str) -> None:
    same = some_samples(a_task(some_right(9, 10)), revision="r1" if named == "revision" else None)
    nights = [a_night(tmp_path / "one", same), a_night(tmp_path / "two", change)]
    assert f"{named}: the runs differ" in refused(add(*nights, "--out", tmp_path / "x.yaml"))


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (some_samples(a_task([True] * 50 + [None] * 50)), "50.0% are unparsable"),
        (
            some_samples(HEALTHY.model_copy(update={"samples": HEALTHY.samples[1:]})),
            "1 of 1319 requests left no record",
        ),
    ],
)
def test_what_is_no_score_is_no_reference(tmp_path: Path, samples: Samples, words: str) -> None:
    night = a_night(tmp_path / "night", samples)
    assert words in refused(add(night, "--out", tmp_path / "x.yaml"))


@pytest.mark.parametrize("key", [FULL, f"{NONE}.tp8"])
def test_graphs_and_variants_make_no_reference(tmp_path: Path, key: str) -> None:
    night = a_night(tmp_path / "night", some_samples(HEALTHY), key=key)
    assert "no run without graphs" in refused(add(night, "--out", tmp_path / "x.yaml"))


def test_a_reference_is_replaced_only_on_request(tmp_path: Path) -> None:
    file = tmp_path / "dsv4.yaml"
    first = a_night(tmp_path / "one", some_samples(HEALTHY))
    second = a_night(tmp_path / "two", some_samples(a_task(some_right(1300, 1319))))
    assert add(first, "--out", file).exit_code == 0
    assert "--replace" in refused(add(second, "--out", file))
    assert add(second, "--out", file, "--replace").exit_code == 0
    (made,) = References.read_yaml(file).references
    assert made.right == 1300


def test_a_file_of_another_model_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("schema_version: 1\nmodel: llama\n", encoding="utf-8")
    night = a_night(tmp_path / "night", some_samples(HEALTHY))
    assert "'llama'" in refused(add(night, "--out", file))


@pytest.mark.parametrize("arguments", [("--margin", "0"), ("--margin", "nan")])
def test_a_margin_is_a_share(tmp_path: Path, arguments: tuple[str, str]) -> None:
    night = a_night(tmp_path / "night", some_samples(HEALTHY))
    assert "--margin" in refused(add(night, *arguments, "--out", tmp_path / "x.yaml"))


def test_a_margin_has_a_reason(tmp_path: Path) -> None:
    night = a_night(tmp_path / "night", some_samples(HEALTHY))
    assert "--why" in refused(add(night, "--why", " ", "--out", tmp_path / "x.yaml"))


def entry(**changes: object) -> dict[str, Any]:
    return {**a_reference(HEALTHY, 1258, 1319).plain(), **changes}


def file_of(folder: Path, entries: list[dict[str, Any]], name: str = "dsv4.yaml") -> Path:
    content = {"schema_version": 1, "model": "dsv4", "references": entries}
    (folder / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize("field", ["commit", "driver", "recorded", "checkpoint", "cells"])
def test_a_file_without_provenance_is_refused(tmp_path: Path, field: str) -> None:
    whole = entry()
    del whole["origin"][field]
    with pytest.raises(ConfigError, match=f"references.0.origin.{field}"):
        read_references(file_of(tmp_path, [whole]))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"right": 1320}, "1320 right of 1319"),
        ({"n": 100, "right": 90}, "to 1319"),
        ({"n": 1300, "invalid": 18}, "18 more invalid, to 1319"),
        ({"protocol": "unknown"}, "references.0.protocol"),
        ({"margin": 0}, "references.0.margin"),
        ({"margin_why": " "}, "references.0.margin_why"),
    ],
)
def test_a_bad_entry_is_refused_by_key(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        read_references(file_of(tmp_path, [entry(**changes)]))


def test_two_references_for_the_same_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one protocol and documents"):
        read_references(file_of(tmp_path, [entry(), entry(right=1200)]))


def test_a_file_is_named_after_its_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name the file after its model"):
        read_references(file_of(tmp_path, [entry()], name="other.yaml"))
