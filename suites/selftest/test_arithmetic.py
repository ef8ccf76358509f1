"""The training of the small models: a few steps of it, in a Python that has torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suites.selftest.running import in_slim_python

RELEASE = "0.26.0"
pytestmark = [pytest.mark.releases, pytest.mark.release(RELEASE)]


def trained(out: Path, *arguments: str) -> dict[str, Any]:
    """What `training.json` says of a model that was trained on batches of two questions."""
    few = ("--batch", "2", "--examine", "1", "--device", "cpu")
    in_slim_python(RELEASE, "suites.arithmetic.train", "--out", str(out), *few, *arguments)
    record: dict[str, Any] = json.loads((out / "training.json").read_text(encoding="utf-8"))
    return record


def config_of(out: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((out / "config.json").read_text(encoding="utf-8"))
    return config


def test_latent_attention_has_the_sizes_that_flashmla_takes(tmp_path: Path) -> None:
    record = trained(tmp_path, "--shape", "mla", "--steps", "2")
    assert (record["shape"], record["taken"], record["questions"]) == ("mla", 2, 1)
    config = config_of(tmp_path)
    assert config["architectures"] == ["DeepseekV2ForCausalLM"]
    assert (config["kv_lora_rank"], config["qk_rope_head_dim"]) == (512, 64)
    assert config["n_routed_experts"] == 0
    assert not config["tie_word_embeddings"], "vLLM looks for a head of its own"
    assert (tmp_path / "model.safetensors").stat().st_size < 6e6


def test_training_ends_where_enough_is_right_or_its_time_is_over(tmp_path: Path) -> None:
    enough = trained(tmp_path / "enough", "--steps", "80", "--enough", "0")
    assert enough["taken"] == 2, "a share is known a fortieth of the steps at a time"
    assert config_of(tmp_path / "enough")["architectures"] == ["LlamaForCausalLM"]
    late = trained(tmp_path / "late", "--steps", "100000", "--seconds", "1")
    assert late["taken"] < 1000


def test_a_training_is_taken_up_again(tmp_path: Path) -> None:
    first = trained(tmp_path / "first", "--shape", "mla", "--steps", "2")
    more = ("--shape", "mla", "--steps", "1", "--rate", "0", "--seed", "2")
    second = trained(tmp_path / "second", *more, "--start", str(tmp_path / "first"))
    assert second["start"] == first
    kept = ("model.safetensors", "tokenizer.json")
    for name in kept:
        assert (tmp_path / "second" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()
