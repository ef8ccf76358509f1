"""vLLM's accuracy configurations as sweeps: what is carried over, and what is said not to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import Source
from fixtures.cells.imported.arguments import read_arguments, read_variables
from fixtures.cells.imported.configs import Gsm8kFile, HarnessFile
from fixtures.cells.imported.keys import keys
from fixtures.cells.imported.reading import Imported, is_path, joined, read_sweep
from fixtures.cells.machine import Gpu, MachineProbe
from fixtures.cells.planner import plan
from fixtures.cells.request import PlanRequest
from fixtures.cells.score import ScoreSection
from fixtures.cells.sweeps import load_catalog
from fixtures.errors import ConfigError, InfraError
from graphgate.cli import app

CATALOG = load_catalog()

GSM8K: dict[str, Any] = {
    "model_name": "made-up/Flash-7B",
    "accuracy_threshold": 0.91,
    "tolerance": 0.05,
    "num_questions": 1319,
    "num_fewshot": 5,
    "startup_max_wait_seconds": 2400,
    "server_args": "--enforce-eager --max-model-len 4096 --tensor-parallel-size 4 "
    "--kv-cache-dtype fp8 --gpu-memory-utilization 0.85 --port 8000 "
    '--speculative-config \'{"method": "mtp", "num_speculative_tokens": 3}\' '
    '--compilation-config \'{"cudagraph_mode": "NONE", "cudagraph_capture_sizes": [1, 8]}\'',
    "env": {"VLLM_USE_V2_MODEL_RUNNER": 1, "VLLM_USE_BREAKABLE_CUDAGRAPH": "1", "HF_TOKEN": "x"},
}
HARNESS: dict[str, Any] = {
    "model_name": "made-up/Large-70B",
    "tasks": [
        {
            "name": "gsm8k",
            "metrics": [
                {"name": "exact_match,strict-match", "value": 0.71},
                {"name": "exact_match,flexible-extract", "value": 0.46},
            ],
        }
    ],
    "limit": 250,
    "num_fewshot": 8,
    "max_model_len": 8192,
    "rtol": 0.05,
    "kv_cache_dtype": "fp8",
    "enforce_eager": False,
    "trust_remote_code": True,
    "apply_chat_template": True,
    "required_gpu_arch": ["sm90"],
    "env_vars": {"VLLM_FLAG": "1"},
}


def written(folder: Path, name: str, data: object) -> Path:
    path = folder / name
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data), encoding="utf-8")
    return path


def imported(folder: Path, data: object, name: str = "Flash-7B.FP8.yaml") -> Imported:
    return read_sweep(written(folder, name, data), CATALOG)


def section(found: Imported) -> ScoreSection:
    (spec,) = found.models.values()
    assert spec.score is not None
    return spec.score


def remarks(found: Imported) -> str:
    return "\n".join(remark.reason for remark in found.remarks)


def test_a_gsm8k_file_becomes_a_model_and_a_sweep(tmp_path: Path) -> None:
    found = imported(tmp_path, GSM8K)
    assert list(found.models) == ["flash-7b-fp8"]
    score = section(found)
    assert score.checkpoint == "made-up/Flash-7B"
    (task,) = score.tasks
    assert (task.name, task.shots, task.limit, task.token_cap) == ("gsm8k", 5, None, 256)
    assert score.engine == {
        "max_model_len": 4096,
        "tensor_parallel_size": 4,
        "kv_cache_dtype": "fp8",
        "gpu_memory_utilization": 0.85,
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 3},
        "cudagraph_capture_sizes": [1, 8],
    }
    assert score.environment == {"VLLM_USE_V2_MODEL_RUNNER": "1"}
    (block,) = found.sweep.blocks
    assert block.tiers == (Tier.SCORE,)
    assert (set(block.modes), set(block.breakable)) == (set(GraphMode), set(Breakable))
    assert found.sweep.deadlines[Tier.SCORE].start == 2400


@pytest.mark.parametrize(
    "said",
    [
        "accuracy_threshold 0.91",
        "tolerance 0.05",
        "--enforce-eager",
        "--port",
        "cudagraph_mode",
        "VLLM_USE_BREAKABLE_CUDAGRAPH",
        "HF_TOKEN",
        "not those of vLLM's own script",
        "memory needs",
        "no revision",
        "expected to come true",
    ],
)
def test_what_a_gsm8k_file_loses_is_said(tmp_path: Path, said: str) -> None:
    assert said in remarks(imported(tmp_path, GSM8K))


def test_a_harness_file_becomes_a_model(tmp_path: Path) -> None:
    found = imported(tmp_path, HARNESS)
    score = section(found)
    (task,) = score.tasks
    assert task.metric == "exact_match,strict-match"
    assert (task.shots, task.limit, task.chat) == (8, 250, True)
    assert score.engine == {
        "max_model_len": 8192,
        "kv_cache_dtype": "fp8",
        "trust_remote_code": True,
    }
    assert score.environment == {"VLLM_FLAG": "1"}


@pytest.mark.parametrize(
    "said",
    [
        "strict-match 0.71: not compared",
        "flexible-extract 0.46: not compared",
        "judged by exact_match,strict-match alone",
        "rtol 0.05",
        "enforce_eager False",
        "first 250 questions",
        "required_gpu_arch sm90",
    ],
)
def test_what_a_harness_file_loses_is_said(tmp_path: Path, said: str) -> None:
    assert said in remarks(imported(tmp_path, HARNESS))


@pytest.mark.parametrize("base", [GSM8K, HARNESS], ids=["gsm8k", "harness"])
@given(key=st.from_regex(r"\A[a-z]{3,12}\Z"), value=st.one_of(st.integers(), st.booleans()))
def test_no_key_is_dropped_in_silence(
    tmp_path_factory: pytest.TempPathFactory, base: dict[str, Any], key: str, value: object
) -> None:
    found = imported(tmp_path_factory.mktemp("x"), {**base, f"{key}_zz": value})
    assert f"{key}_zz {value!r}: not known here, left out" in remarks(found)


def test_every_field_of_both_kinds_is_carried_or_spoken_of() -> None:
    """The fields that the two kinds have, as the issue of this reader lists them."""
    known = {*Gsm8kFile.model_fields, *HarnessFile.model_fields, *keys().engine, *keys().left_out}
    listed = (
        "model_name accuracy_threshold tolerance num_questions num_fewshot server_args env "
        "startup_max_wait_seconds tasks limit max_model_len rtol kv_cache_dtype enforce_eager "
        "trust_remote_code required_gpu_arch env_vars"
    )
    assert set(listed.split()) <= known


def test_a_list_names_files_beside_it(tmp_path: Path) -> None:
    written(tmp_path, "One.yaml", GSM8K)
    written(tmp_path, "Two.yaml", HARNESS)
    amd = {**HARNESS, "required_gpu_arch": ["gfx950"]}
    written(tmp_path, "Amd.yaml", amd)
    path = written(
        tmp_path, "models-small.txt", "# both\nOne.yaml\n\nTwo.yaml  # large\nAmd.yaml\n"
    )
    found = read_sweep(path, CATALOG)
    assert found.sweep.models == ("one", "two")
    assert found.sweep.name == "models-small"
    left = [remark for remark in found.remarks if remark.model == "amd"]
    assert [remark.reason for remark in left] == ["it asks for gfx950, no Hopper GPU"]


@pytest.mark.parametrize("line", ["../One.yaml", "/etc/passwd", "sub/One.yaml", "One.json"])
def test_a_list_reaches_no_other_folder(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, "models.txt", f"\n{line}\n")
    with pytest.raises(ConfigError, match="line 2 names"):
        read_sweep(path, CATALOG)


def test_an_imported_model_hides_none_of_the_catalogue(tmp_path: Path) -> None:
    found = read_sweep(written(tmp_path, "dsv4.yaml", GSM8K), CATALOG)
    whole = joined(CATALOG, found)
    assert list(found.models) == ["dsv4-imported"]
    assert whole.models["dsv4"] == CATALOG.models["dsv4"]
    found = read_sweep(written(tmp_path, "pr.yaml", GSM8K), CATALOG)
    assert joined(CATALOG, found).sweeps["pr"] == CATALOG.sweeps["pr"]


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({**GSM8K, "num_questions": -1}, "num_questions"),
        ({**GSM8K, "accuracy_threshold": "high"}, "accuracy_threshold"),
        ({**GSM8K, "server_args": "--x 'open"}, "server_args"),
        ({**GSM8K, "server_args": {"x": 1}}, "server_args"),
        ({key: value for key, value in GSM8K.items() if key != "model_name"}, "model_name"),
        ({**HARNESS, "tasks": []}, "tasks"),
        (
            {**HARNESS, "tasks": [{"name": "../x", "metrics": HARNESS["tasks"][0]["metrics"]}]},
            "name",
        ),
        ({**HARNESS, "required_gpu_arch": ["gfx950"]}, "no Hopper GPU"),
        ({"a": 1}, "neither"),
        (["a"], "no accuracy configuration"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_bad_file_is_refused_by_name_and_key(tmp_path: Path, data: object, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        imported(tmp_path, data)
    assert named in str(caught.value)
    assert "Flash-7B.FP8.yaml" in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_sweep(tmp_path / "none.yaml", CATALOG)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("--a-b 1 --c --no-d --e=x --f -1", {"a_b": 1, "c": True, "d": False, "e": "x", "f": -1}),
        ("-tp 8", {"tensor_parallel_size": 8}),
        ("--x on --y true --z auto", {"x": "on", "y": True, "z": "auto"}),
        ("--x '; rm -rf /'", {"x": "; rm -rf /"}),
        ("", {}),
        (["--x", "two words"], {"x": "two words"}),
    ],
)
def test_arguments_are_data(text: str | list[str], values: dict[str, Any]) -> None:
    carried = read_arguments(text)
    assert carried.values == values
    assert carried.notes == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-O3", "-O3: a short flag"),
        ("stray", "stray"),
        ("--compilation-config 3", "level of compilation"),
        ("--compilation-config.mode 3", "left to vLLM"),
        ("--hf-overrides.x 1", "part of a setting"),
    ],
)
def test_what_cannot_be_an_argument_is_said(text: str, said: str) -> None:
    carried = read_arguments(text)
    assert carried.values == {}
    assert said in "\n".join(carried.notes)


def test_variables_are_texts_with_names() -> None:
    carried = read_variables({"A": 1, "B": "x", "bad name": 1, "C": True})
    assert carried.values == {"A": "1", "B": "x", "C": "true"}
    assert "bad name" in carried.notes[0]


@pytest.mark.parametrize(
    ("text", "path"),
    [("pr", False), ("nightly", False), ("./pr.yaml", True), ("x.yaml", True), ("l.txt", True)],
)
def test_a_path_is_known_from_a_name(text: str, path: bool) -> None:
    assert is_path(text) is path


RELEASE = Source(
    kind="installed",
    request="installed",
    version="0.33.0",
    identity="vllm-0.33.0",
    python_path="src",
    compiled=True,
)
GPUS = tuple(
    Gpu(uuid=f"GPU-{index}", name="NVIDIA H200", memory_gib=139, capability=(9, 0))
    for index in range(8)
)


def test_an_imported_sweep_is_planned_like_any_other(tmp_path: Path) -> None:
    found = imported(tmp_path, GSM8K)
    request = PlanRequest(sweep=found.sweep.name, tiers=(Tier.SCORE,))
    made = plan(request, RELEASE, MachineProbe(gpus=GPUS), joined(CATALOG, found))
    assert {cell.key.mode for cell in made.cells} == set(GraphMode)
    assert len(made.cells) == 2 * len(GraphMode)
    cell = next(cell for cell in made.cells if str(cell.key) == "flash-7b-fp8.FULL.bk1.score")
    assert cell.engine["compilation_config"] == {
        "cudagraph_mode": "FULL",
        "cudagraph_capture_sizes": [1, 8],
    }
    assert cell.engine["tensor_parallel_size"] == cell.requirements.gpus == 4
    assert cell.environment["VLLM_USE_BREAKABLE_CUDAGRAPH"] == "1"
    assert str(cell.reference) == "flash-7b-fp8.NONE.bk1.score"


def test_without_a_gpu_it_is_said_what_is_missing(tmp_path: Path) -> None:
    """Nothing but score cells, and nobody named the tier: the reason is the machine."""
    found = imported(tmp_path, GSM8K)
    request, nowhere = PlanRequest(sweep=found.sweep.name), MachineProbe(nvml_error="no library")
    with pytest.raises(InfraError, match=r"score: not available here: no NVIDIA GPU"):
        plan(request, RELEASE, nowhere, joined(CATALOG, found))
    small = MachineProbe(gpus=GPUS[:1])
    with pytest.raises(InfraError, match=r"it needs 4 GPU\(s\)"):
        plan(request, RELEASE, small, joined(CATALOG, found))
    eager = PlanRequest(sweep=found.sweep.name, modes=())
    with pytest.raises(ConfigError, match="nothing that these filters leave"):
        plan(eager, RELEASE, nowhere, joined(CATALOG, found))


def test_the_command_line_takes_a_path(tmp_path: Path) -> None:
    """Here no GPU can be used or the vLLM is not built: the file is read before that is said."""
    path = written(tmp_path, "Flash-7B.yaml", {**GSM8K, "num_fewshot": "many"})
    result = CliRunner().invoke(app, ["plan", "--sweep", str(path), "--tier", "score"])
    assert isinstance(result.exception, ConfigError)
    assert "num_fewshot" in str(result.exception)
