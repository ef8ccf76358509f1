"""Canary cells: what their engines are given, where they can run, and that vLLM takes it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fixtures.cells.assembly import default_capture_sizes
from fixtures.cells.axes import GraphMode, Tier
from fixtures.cells.cell import Cell, Plan, Source
from fixtures.cells.machine import Gpu, MachineProbe
from fixtures.cells.models import CanaryModel, Setting
from fixtures.cells.planner import plan
from fixtures.cells.request import PlanRequest
from fixtures.cells.sweeps import load_catalog
from fixtures.cells.tiers import Obstacle, score_obstacle
from fixtures.errors import InfraError
from fixtures.run.environment import REPOSITORY
from fixtures.source.environment import slim_python
from fixtures.source.resolve import resolve

CATALOG = load_catalog()
H200 = Gpu(uuid="GPU-1", name="NVIDIA H200", memory_gib=139.8, capability=(9, 0))
L4 = Gpu(uuid="GPU-2", name="NVIDIA L4", memory_gib=22.5, capability=(8, 9))
NODE = MachineProbe(gpus=(H200,))


def a_source(*, version: str = "0.26.0", kind: str = "installed", compiled: bool = True) -> Source:
    return Source(
        kind=kind,
        request=version if kind == "release" else kind,
        version=version,
        identity=f"{kind}:{version}",
        python_path="/nowhere",
        compiled=compiled,
    )


def planned(*, machine: MachineProbe = NODE, source: Source | None = None, **options: str) -> Plan:
    request = PlanRequest.parse(**{"tier": "canary", **options})
    return plan(request, source or a_source(), machine, CATALOG)


def cells_by_key(made: Plan) -> dict[str, Cell]:
    return {str(cell.key): cell for cell in made.cells}


class TestWhatIsPlanned:
    def test_three_models_in_all_modes_with_both_flags(self) -> None:
        cells = planned().cells
        assert len(cells) == 3 * len(GraphMode) * 2
        assert {cell.key.variant for cell in cells} == {None}

    def test_the_longest_are_started_first_and_references_before_their_cells(self) -> None:
        order = list(cells_by_key(planned()))
        models = [key.partition(".")[0] for key in order]
        assert list(dict.fromkeys(models)) == ["dsv4", "inkling", "llama"]
        assert order[:2] == ["dsv4.NONE.bk0.canary", "dsv4.NONE.bk1.canary"]

    def test_the_nightly_sweep_has_the_variants(self) -> None:
        variants = {cell.key.variant for cell in planned(sweep="nightly").cells}
        assert variants == {None, "mtp", "v1runner", "triton-attn", "len128", "default-sizes"}

    @pytest.mark.parametrize("version", ["0.21.0", "0.26.0", "0.30.0", "0.33.0"])
    def test_every_cell_has_an_expectation_with_its_reason(self, version: str) -> None:
        cells = planned(source=a_source(version=version), sweep="nightly").cells
        assert all(cell.expected.reason for cell in cells)


class TestWhatTheChildIsTold:
    CELLS = cells_by_key(planned(sweep="nightly"))

    def test_a_cell_holds_the_whole_of_its_engine(self) -> None:
        cell = self.CELLS["dsv4.FULL_AND_PIECEWISE.bk1.canary"]
        assert cell.engine["load_format"] == "graphgate"
        assert cell.engine["kv_cache_dtype"] == "fp8"
        assert cell.engine["compilation_config"] == {
            "cudagraph_mode": "FULL_AND_PIECEWISE",
            "cudagraph_capture_sizes": [1, 2, 4, 8, 16],
        }
        assert "cudagraph_capture_sizes" not in cell.engine
        assert cell.environment["VLLM_USE_V2_MODEL_RUNNER"] == "1"
        assert cell.environment["VLLM_USE_BREAKABLE_CUDAGRAPH"] == "1"
        assert "CUDA_VISIBLE_DEVICES" not in cell.environment
        assert cell.requirements.gpus == 1
        assert cell.requirements.capability == H200.capability
        assert 0 < cell.requirements.gpu_memory_gib <= H200.memory_gib / 8

    def test_a_reference_differs_in_the_mode_alone(self) -> None:
        for cell in self.CELLS.values():
            if cell.reference is None:
                continue
            reference = self.CELLS[str(cell.reference)]
            as_reference = {
                **cell.engine,
                "compilation_config": {
                    **cell.engine["compilation_config"],
                    "cudagraph_mode": "NONE",
                },
            }
            assert reference.engine == as_reference
            assert reference.environment == cell.environment
            assert reference.model == cell.model

    def test_the_workload_knows_what_the_engine_can_take(self) -> None:
        for cell in self.CELLS.values():
            limits = CanaryModel.model_validate(cell.model).workload
            assert limits.vocab == cell.model["config"]["vocab_size"]
            assert limits.max_num_seqs == cell.engine["max_num_seqs"]
        sizes = self.CELLS["llama.FULL.bk0.canary.default-sizes"].model["workload"]["capture_sizes"]
        assert sizes == default_capture_sizes(256)

    def test_variants_change_what_they_name(self) -> None:
        v1 = self.CELLS["dsv4.FULL_DECODE_ONLY.bk0.canary.v1runner"]
        assert v1.environment["VLLM_USE_V2_MODEL_RUNNER"] == "0"
        own = self.CELLS["llama.FULL.bk0.canary.default-sizes"]
        assert own.engine["compilation_config"] == {"cudagraph_mode": "FULL"}
        drafting = self.CELLS["inkling.FULL_DECODE_ONLY.bk0.canary.mtp"]
        assert drafting.model["workload"]["spec_tokens"] == 1

    def test_a_setting_is_for_its_releases_alone(self) -> None:
        setting = Setting(versions=">=0.26,<0.30", reason="it came and went")
        assert [setting.fits(v) for v in ("0.25.1", "0.26.0", "0.29.0", "0.30.0")] == [
            *(False, True, True, False)
        ]


class TestWhereItRuns:
    @pytest.mark.parametrize(
        ("machine", "source", "told"),
        [
            (MachineProbe(gpus=(L4,)), a_source(), r"NVML shows NVIDIA L4 \(8\.9\)"),
            (
                MachineProbe(gpus=(H200.model_copy(update={"capability": None}),)),
                a_source(),
                "capability it doesn't tell",
            ),
            (NODE, a_source(kind="release", compiled=False), r"0\.26\.0 \(release\).*installed"),
            (NODE, a_source(kind="checkout", compiled=False), "compiled extensions"),
            (NODE, a_source(compiled=False), "compiled extensions"),
            (MachineProbe(nvml_error="no driver"), a_source(), "no NVIDIA GPU"),
        ],
    )
    def test_what_is_missing_is_infra_by_name_and_said_in_auto(
        self, machine: MachineProbe, source: Source, told: str
    ) -> None:
        with pytest.raises(InfraError, match=told):
            planned(machine=machine, source=source)
        made = planned(machine=machine, source=source, tier="auto")
        assert {cell.key.tier for cell in made.cells} == {Tier.CONTRACT}
        reasons = [one.reason for one in made.omissions if one.tier is Tier.CANARY]
        assert "not available here" in reasons[0]

    def test_auto_takes_the_tier_where_it_can_run(self) -> None:
        assert {cell.key.tier for cell in planned(tier="auto").cells} >= {
            *(Tier.CONTRACT, Tier.CANARY)
        }

    def test_one_hopper_gpu_among_others_is_enough(self) -> None:
        assert planned(machine=MachineProbe(gpus=(L4, H200))).cells

    def test_gpus_of_another_kind_do_not_make_up_for_small_hopper_ones(self) -> None:
        spec = CATALOG.models["arithmetic"]
        assert spec.score is not None
        section = spec.score.model_copy(update={"memory_gib": 40, "memory_gib_each": 0})
        wide = L4.model_copy(update={"memory_gib": 80})
        small = H200.model_copy(update={"memory_gib": 20})
        variant = spec.variants["default"]

        def found(*gpus: Gpu) -> Obstacle | None:
            return score_obstacle(section, variant, MachineProbe(gpus=gpus), a_source())

        assert found(wide, H200) is None
        told = found(wide, small)
        assert told is not None
        assert told.why.endswith(
            "needs 1 GPU(s) of 40 GiB each, and here are: NVIDIA H200 (20 GiB)"
        )


CHOSEN = (
    *("dsv4.FULL_AND_PIECEWISE.bk1.canary", "dsv4.FULL_DECODE_ONLY.bk1.canary.mtp"),
    *("inkling.FULL_AND_PIECEWISE.bk1.canary", "inkling.FULL_DECODE_ONLY.bk1.canary.mtp"),
    *("llama.FULL.bk0.canary", "llama.FULL.bk0.canary.triton-attn"),
    *("llama.FULL_AND_PIECEWISE.bk0.canary.default-sizes", "llama.FULL.bk0.canary.v1runner"),
)


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("0.26.0", marks=pytest.mark.release("0.26.0")),
        pytest.param("0.33.0", marks=[pytest.mark.release("0.33.0"), pytest.mark.releases]),
    ],
)
def test_the_release_takes_config_and_arguments_as_on_a_hopper_gpu(
    version: str, tmp_path: Path
) -> None:
    cells = cells_by_key(planned(source=a_source(version=version), sweep="nightly"))
    settled = {one["key"]: one for one in settle([cells[key] for key in CHOSEN], version, tmp_path)}
    for key, one in settled.items():
        cell = cells[key]
        assert one["mode"] == cell.key.mode.value, key
        assert one["sizes"] == cell.model["workload"]["capture_sizes"], key
        assert one["architectures"] == cell.model["config"]["architectures"], key
        assert one["mrv2"] is (cell.key.variant != "v1runner"), key
        assert not one["autotune"], key
    assert settled["dsv4.FULL_AND_PIECEWISE.bk1.canary"]["kv_cache"] == "fp8"
    assert settled["dsv4.FULL_AND_PIECEWISE.bk1.canary"]["quantization"] == "deepseek_v4_fp8"
    assert settled["dsv4.FULL_DECODE_ONLY.bk1.canary.mtp"]["drafter"] == ["DeepSeekV4MTPModel"]
    assert settled["inkling.FULL_DECODE_ONLY.bk1.canary.mtp"]["drafter"] == ["InklingMTPModel"]
    assert settled["llama.FULL.bk0.canary.triton-attn"]["attention"] == "TRITON_ATTN"


def settle(cells: list[Cell], version: str, folder: Path) -> list[dict[str, Any]]:
    """What the release's own configuration comes to for each cell."""
    file = folder / "cells.json"
    file.write_text(json.dumps([cell.plain() for cell in cells]))
    done = subprocess.run(
        [slim_python(), REPOSITORY / "suites/selftest/child/canary_specs.py", file],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": resolve(version).python_path,
            "VLLM_LOGGING_LEVEL": "ERROR",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found
