"""The canary's child up to the engine, which needs a GPU: its plugin and what it refuses."""

from __future__ import annotations

from pathlib import Path

from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import Cell, CellKey, Resolution
from fixtures.cells.spec import OBSERVATION_FILE, ChildSpec
from fixtures.evidence.cellrun import Observation, RefusalKind
from suites.selftest.running import in_slim_python

RELEASE = "0.33.0"
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
}


def observed(
    folder: Path, engine: dict[str, object], environment: dict[str, str] | None = None
) -> Observation:
    """What the child of a canary cell leaves, run in the Python of the CPU tiers."""
    key = CellKey(
        model="llama", mode=GraphMode.NONE, breakable=Breakable.OFF, tier=Tier.CANARY, variant=None
    )
    cell = Cell(
        key=key,
        model={"config": LLAMA},
        engine=engine,
        expected=Resolution(mode=GraphMode.NONE, reason="a test of the child"),
    )
    spec = ChildSpec(cell=cell, attempt_dir=str(folder), source_version=RELEASE)
    (folder / "spec.json").write_text(spec.to_json())
    in_slim_python(
        RELEASE, "fixtures.child.main", "--spec", "spec.json", folder=folder, **(environment or {})
    )
    return Observation.read_json(folder / OBSERVATION_FILE)


def test_an_argument_that_vllm_does_not_know_is_refused_in_its_words(tmp_path: Path) -> None:
    refusal = observed(tmp_path, {"max_modle_len": 64}).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.CONFIG
    assert "max_modle_len" in refusal.why
    assert list((tmp_path / "probe").glob("frontend.*.json")), "the plugin proves that it loaded"


def test_a_plugin_that_is_not_loaded_is_the_nodes_fault_and_no_engine_starts(
    tmp_path: Path,
) -> None:
    refusal = observed(tmp_path, {}, {"VLLM_PLUGINS": "somebody_elses"}).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.INFRA
    assert "graphgate_probe" in refusal.why


def test_a_forked_engine_process_loads_the_plugin_too(tmp_path: Path) -> None:
    module = "suites.selftest.child.forked_engine"
    in_slim_python(RELEASE, module, folder=tmp_path, GRAPHGATE_PROBE_FOLDER=str(tmp_path))
    assert proven_roles(tmp_path) == {"frontend", "core"}


def proven_roles(folder: Path) -> set[str]:
    return {path.name.split(".")[0] for path in folder.glob("*.json")}
