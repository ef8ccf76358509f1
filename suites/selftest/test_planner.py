"""Models, sweeps, requests and the planner: what is planned, what is not, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.cells.axes import Breakable, GraphMode, Tier
from fixtures.cells.cell import Plan, Source
from fixtures.cells.machine import Gpu, MachineProbe, pci_gpus, probe_machine, usable_gpus
from fixtures.cells.planner import plan
from fixtures.cells.request import PlanRequest, Shard
from fixtures.cells.sweeps import SUITES, load_catalog
from fixtures.errors import ConfigError, InfraError

CATALOG = load_catalog()
NO_GPU = MachineProbe(nvml_error="NVML Shared Library Not Found")
H200 = MachineProbe(gpus=(Gpu(uuid="GPU-1", name="NVIDIA H200", memory_gib=139.8),))
RELEASES = [f"0.{minor}.0" for minor in range(20, 34)]


def a_source(version: str = "0.26.0") -> Source:
    return Source(
        kind="release",
        request=version,
        version=version,
        identity=f"release:{version}:0",
        python_path="/nowhere",
    )


def planned(version: str = "0.26.0", machine: MachineProbe = NO_GPU, **options: str) -> Plan:
    return plan(PlanRequest.parse(**options), a_source(version), machine, CATALOG)


def keys(made: Plan) -> list[str]:
    return [str(cell.key) for cell in made.cells]


class TestWhatIsPlanned:
    def test_the_whole_matrix_of_a_model(self) -> None:
        cells = planned(model="dsv4").cells
        default = [cell for cell in cells if cell.key.variant is None]
        assert {(cell.key.mode, cell.key.breakable) for cell in default} == {
            (mode, flag) for mode in GraphMode for flag in Breakable
        }

    def test_settings_where_a_request_can_outgrow_the_model_are_swept(self) -> None:
        for model in CATALOG.models.values():
            if model.contract is None:
                continue
            engine = model.variants["len128"].engine
            assert engine["max_model_len"] == 128
            assert engine["max_num_seqs"] == 256
            assert max(engine["cudagraph_capture_sizes"]) == 512

    def test_each_cell_tells_its_child_all_it_needs(self) -> None:
        cells = {str(cell.key): cell for cell in planned(model="dsv4").cells}
        cell = cells["dsv4.FULL.bk1.contract.len128"]
        assert cell.environment["VLLM_USE_BREAKABLE_CUDAGRAPH"] == "1"
        assert cell.environment["VLLM_USE_V2_MODEL_RUNNER"] == "1"
        assert cell.engine["max_model_len"] == 128
        assert cell.engine["block_size"] == CATALOG.models["dsv4"].engine["block_size"]
        assert cell.engine["compilation_config"] == {"cudagraph_mode": "FULL"}
        assert cell.model["family"] == "dsv4"

    def test_the_reference_differs_in_the_mode_alone(self) -> None:
        cells = {cell.key: cell for cell in planned().cells}
        for cell in cells.values():
            if cell.key.mode is GraphMode.NONE:
                assert cell.reference is None
                continue
            assert cell.reference is not None
            reference = cells[cell.reference]
            assert reference.environment == cell.environment
            differing = {
                name for name in cell.engine if cell.engine[name] != reference.engine[name]
            }
            assert differing == {"compilation_config"}

    def test_filters_keep_the_references(self) -> None:
        made = planned(model="llama", modes="FULL", breakable="on")
        assert {cell.key.mode for cell in made.cells} == {GraphMode.NONE, GraphMode.FULL}
        assert {cell.key.breakable for cell in made.cells} == {Breakable.ON}

    def test_equal_requests_make_equal_plans(self) -> None:
        assert planned().to_json() == planned().to_json()

    def test_a_model_that_the_release_lacks_is_left_out_and_said(self) -> None:
        made = planned("0.21.0")
        assert {cell.key.model for cell in made.cells} == {"dsv4", "llama"}
        (omission,) = [one for one in made.omissions if one.model == "inkling"]
        assert "0.21.0 does not have inkling" in omission.reason

    def test_naming_only_such_a_model_is_an_error(self) -> None:
        with pytest.raises(ConfigError, match=r"0\.21\.0 does not have inkling"):
            planned("0.21.0", model="inkling")

    @settings(max_examples=40, deadline=None)
    @given(count=st.integers(1, 40), sweep=st.sampled_from(sorted(CATALOG.sweeps)))
    def test_shards_are_a_partition_and_keep_references(self, count: int, sweep: str) -> None:
        whole = keys(planned(sweep=sweep))
        parts = [planned(sweep=sweep, shard=f"{index}/{count}") for index in range(1, count + 1)]
        assert sorted(key for part in parts for key in keys(part)) == sorted(whole)
        for part in parts:
            assert {str(cell.reference) for cell in part.cells if cell.reference} <= set(keys(part))


class TestTiers:
    def test_auto_says_in_words_what_is_left_out(self) -> None:
        made = planned()
        assert {cell.key.tier for cell in made.cells} == {Tier.CONTRACT}
        reasons = {omission.tier: omission.reason for omission in made.omissions}
        assert set(reasons) == {Tier.CANARY, Tier.SCORE}
        assert all("not available here: no NVIDIA GPU" in reason for reason in reasons.values())

    @pytest.mark.parametrize("tier", ["canary", "score", "contract,canary"])
    @pytest.mark.parametrize("machine", [NO_GPU, H200])
    def test_a_tier_named_that_cannot_run_is_infra_and_never_less_work(
        self, tier: str, machine: MachineProbe
    ) -> None:
        with pytest.raises(InfraError, match="not available here"):
            planned(machine=machine, tier=tier)

    def test_a_tier_named_that_the_sweep_has_not_for_a_model_is_no_silence(self) -> None:
        hopper = Gpu(uuid="GPU-1", name="NVIDIA H200", memory_gib=139.8, capability=(9, 0))
        built = a_source().model_copy(update={"kind": "installed", "compiled": True})
        request = PlanRequest.parse(tier="contract,score", model="llama")
        with pytest.raises(ConfigError, match="no score cells"):
            plan(request, built, MachineProbe(gpus=(hopper,)), CATALOG)

    @pytest.mark.parametrize("devices", [("/dev/nvidia0",), ("PCI 0000:19:00.0",)])
    def test_a_gpu_that_cannot_be_used_is_infra_in_auto(self, devices: tuple[str, ...]) -> None:
        broken = MachineProbe(nvml_error="Driver/library version mismatch", devices=devices)
        with pytest.raises(InfraError, match="Driver/library version mismatch"):
            planned(machine=broken)
        assert planned(machine=broken, tier="contract").cells

    def test_gpus_that_somebody_hid_are_said_to_be_hidden(self) -> None:
        hidden = H200.model_copy(update={"hidden": "CUDA_VISIBLE_DEVICES"})
        assert usable_gpus(hidden) == ()
        assert "hidden by CUDA_VISIBLE_DEVICES" in planned(machine=hidden).omissions[0].reason

    def test_gpus_are_found_on_the_bus_without_a_driver(self, tmp_path: Path) -> None:
        for name, vendor, kind in [
            ("0000:19:00.0", "0x10de", "0x030200"),
            ("0000:19:00.1", "0x10de", "0x040300"),  # its sound device
            ("0000:1a:00.0", "0x8086", "0x030000"),  # another vendor's
            ("0000:1b:00.0", "0x10de", "0x068000"),  # an NVSwitch
        ]:
            (tmp_path / name).mkdir()
            (tmp_path / name / "vendor").write_text(f"{vendor}\n")
            (tmp_path / name / "class").write_text(f"{kind}\n")
        (tmp_path / "unreadable").mkdir()
        assert pci_gpus(tmp_path) == ["PCI 0000:19:00.0"]

    def test_this_machine_can_be_probed(self) -> None:
        probe = probe_machine()
        assert probe.gpus or probe.nvml_error


class TestRequests:
    @pytest.mark.parametrize(
        ("options", "option", "hint"),
        [
            ({"model": "dsv5"}, "--model", "did you mean dsv4?"),
            ({"model": "DSV4"}, "--model", "did you mean dsv4?"),
            ({"model": ","}, "--model", "name one"),
            ({"tier": "cannary"}, "--tier", "did you mean canary?"),
            ({"tier": "auto,contract"}, "--tier", "alone"),
            ({"modes": "FULL_DECODE"}, "--modes", "did you mean FULL_DECODE_ONLY?"),
            ({"breakable": "yes"}, "--breakable", "known: off, on"),
            ({"sweep": "nigthly"}, "--sweep", "did you mean nightly?"),
            ({"shard": "5/4"}, "--shard", "1/4"),
            ({"shard": "0/4"}, "--shard", "1/4"),
            ({"shard": "one"}, "--shard", "1/4"),
        ],
    )
    def test_an_unknown_name_gets_option_and_remedy(
        self, options: dict[str, str], option: str, hint: str
    ) -> None:
        with pytest.raises(ConfigError) as refused:
            plan(PlanRequest.parse(**options), a_source(), NO_GPU, CATALOG)
        assert refused.value.source == option
        assert hint in str(refused.value)

    def test_words_are_read_whatever_their_case(self) -> None:
        request = PlanRequest.parse(modes="full, piecewise", breakable="ON", tier="Contract")
        assert request.modes == (GraphMode.PIECEWISE, GraphMode.FULL)
        assert request.breakable == (Breakable.ON,)
        assert request.tiers == (Tier.CONTRACT,)

    @given(st.text(max_size=12))
    def test_a_shard_is_read_or_refused(self, text: str) -> None:
        try:
            shard = PlanRequest.parse(shard=text).shard
        except ConfigError:
            return
        assert shard is None or 1 <= shard.index <= shard.count

    def test_a_shard_beyond_its_count_cannot_be_made(self) -> None:
        with pytest.raises(ValueError, match="exceed"):
            Shard(index=3, count=2)

    def test_filters_that_leave_nothing_are_an_error(self, tmp_path: Path) -> None:
        edit(
            tmp_path,
            "sweeps/pr.yaml",
            lambda data: data.update(
                blocks=[
                    {
                        "tiers": ["contract"],
                        "modes": ["NONE", "FULL"],
                        "breakable": ["off"],
                    }
                ]
            ),
        )
        catalog = load_catalog(tmp_path)
        with pytest.raises(ConfigError, match="nothing that these filters leave"):
            plan(PlanRequest.parse(breakable="on"), a_source(), NO_GPU, catalog)


class TestExpectations:
    @pytest.mark.parametrize("version", [*RELEASES, "0.26.0+tree", "0.34.1.dev7+gabc"])
    def test_every_request_has_one_with_its_reason(self, version: str) -> None:
        for cell in planned(version, sweep="nightly").cells:
            assert cell.expected.reason

    def test_the_reference_expects_no_graphs(self) -> None:
        assert {
            cell.expected.mode for cell in planned().cells if cell.key.mode is GraphMode.NONE
        } == {GraphMode.NONE}

    @pytest.mark.parametrize(
        ("version", "key", "becomes"),
        [
            ("0.21.0", "dsv4.PIECEWISE.bk0.contract", GraphMode.PIECEWISE),
            ("0.23.0", "dsv4.PIECEWISE.bk0.contract", GraphMode.NONE),
            ("0.22.1", "dsv4.PIECEWISE.bk1.contract", GraphMode.NONE),
            ("0.23.0", "dsv4.PIECEWISE.bk1.contract", GraphMode.PIECEWISE),
            ("0.26.0", "inkling.FULL.bk1.contract", GraphMode.FULL_DECODE_ONLY),
            ("0.26.0", "llama.FULL.bk0.contract", GraphMode.FULL),
        ],
    )
    def test_they_follow_the_release(self, version: str, key: str, becomes: GraphMode) -> None:
        cells = {str(cell.key): cell for cell in planned(version).cells}
        assert cells[key].expected.mode is becomes


Change = str | Callable[[Any], object]


def edit(folder: Path, name: str, change: Change) -> Path:
    """Copies suites' data into `folder` and changes one file there."""
    for part in ("models", "sweeps"):
        if not (folder / part).exists():
            shutil.copytree(SUITES / part, folder / part)
    path = folder / name
    if isinstance(change, str):
        path.write_text(change)
    else:
        data = yaml.safe_load(path.read_text())
        change(data)
        path.write_text(yaml.safe_dump(data))
    return path


class TestFiles:
    @pytest.mark.parametrize(
        ("name", "change", "told"),
        [
            ("models/dsv4.yaml", "a: [1", "is not valid YAML"),
            ("models/dsv4.yaml", "[]", "(top level)"),
            ("models/dsv4.yaml", lambda d: d.update(colour="red"), "colour: Extra inputs"),
            ("models/dsv4.yaml", lambda d: d.pop("title"), "title: Field required"),
            ("models/dsv4.yaml", lambda d: d.update(name="dsv5"), "holds a model named 'dsv5'"),
            ("models/dsv4.yaml", lambda d: d["variants"].pop("default"), "variants: "),
            ("models/dsv4.yaml", lambda d: d.update(versions="new"), "no range of versions"),
            (
                "models/dsv4.yaml",
                lambda d: d["expectations"][0].update(requested=["FUL"]),
                "expectations.0.requested.0",
            ),
            ("sweeps/pr.yaml", lambda d: d.update(models=["dsv5"]), "did you mean dsv4?"),
            (
                "sweeps/pr.yaml",
                lambda d: d["blocks"][0].update(variants=["len127"]),
                "did you mean len128?",
            ),
            ("sweeps/pr.yaml", lambda d: d["blocks"][0].update(modes=["FULL"]), "NONE is missing"),
            ("sweeps/pr.yaml", lambda d: d["blocks"][2].update(models=["x"]), "blocks.2.models"),
        ],
    )
    def test_what_is_wrong_is_named_with_file_key_and_remedy(
        self, name: str, change: Change, told: str, tmp_path: Path
    ) -> None:
        path = edit(tmp_path, name, change)
        with pytest.raises(ConfigError) as refused:
            load_catalog(tmp_path)
        assert told in str(refused.value)
        assert str(path) in str(refused.value)
        assert refused.value.remedy

    def test_an_expectation_that_is_missing_is_named(self, tmp_path: Path) -> None:
        edit(tmp_path, "models/llama.yaml", lambda d: d["expectations"].pop())
        with pytest.raises(ConfigError, match=r"llama\.yaml: expectations: no rule covers"):
            plan(PlanRequest.parse(), a_source(), NO_GPU, load_catalog(tmp_path))
