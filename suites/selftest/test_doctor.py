"""`graphgate doctor`: what a recorded machine means, and what this one shows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fixtures.cells.axes import Tier
from fixtures.cells.cell import Source
from fixtures.cells.machine import Gpu, MachineProbe
from fixtures.cells.tiers import obstacle
from fixtures.doctor.caches import CacheContents, contents, kept_caches
from fixtures.doctor.findings import FINDINGS, State
from fixtures.doctor.judge import (
    Diagnosis,
    DoctorReport,
    Outcome,
    diagnose,
    load_checks,
)
from fixtures.doctor.look import ask_python, look
from fixtures.doctor.probe import ChildPython, Disk, Module, PlantedFault, Probe, Tool
from fixtures.errors import ConfigError
from fixtures.evidence.node import GpuProcess, NodeReading
from gates.verdict import ExitCode
from graphgate import cli
from graphgate.doctor import with_planted
from graphgate.live import Live

GPU = Gpu(uuid="GPU-1", name="NVIDIA H200", memory_gib=139.7, capability=(9, 0))
READING = NodeReading(
    uuid="GPU-1",
    name="NVIDIA H200",
    driver="580.159.04",
    sm_count=132,
    memory_total_mib=143771,
    memory_used_mib=4,
)
PYTHON = ChildPython(
    path="/opt/venv/bin/python3",
    version="3.12.3",
    modules=tuple(
        Module(name=name, version=version)
        for name, version in (("torch", "2.11.0"), ("vllm", "0.26.0"), ("lm_eval", "0.4.13"))
    ),
    cuda_devices=1,
)
H200 = Probe(
    machine=MachineProbe(gpus=(GPU,), driver="580.159.04", devices=("/dev/nvidia0",)),
    readings=(READING,),
    tools=(
        Tool(name="nvcc", path="/usr/local/cuda/bin/nvcc", version="release 13.0, V13.0.88"),
        Tool(name="cuda-gdb", path="/usr/local/cuda/bin/cuda-gdb", version="13.0 release"),
    ),
    python=PYTHON,
    disks=(Disk(use="evidence and reports", path="out", free=50 * 10**9),),
    caches=(CacheContents(name="triton", path="/root/.triton/cache", files=9, size=33_000_000),),
    planted=PlantedFault(
        named=True,
        status="CRASH",
        title="illegal address in wild_store",
        kernel="wild_store",
        sources=("core",),
    ),
)
"""What was seen on an H200, driver 580.159, CUDA 13.0, torch 2.11.0, vLLM 0.26.0."""
NO_GPU = H200.model_copy(
    update={
        "machine": MachineProbe(nvml_error="NVML Shared Library Not Found"),
        "readings": (),
        "planted": None,
    }
)


def changed(fields: dict[str, object] | None = None, *, probe: Probe = H200) -> Diagnosis:
    return diagnose(probe.model_copy(update=fields), load_checks())


def state(made: Diagnosis, name: str) -> tuple[State, str]:
    row = next(row for row in made.rows if row.name == name)
    return row.state, row.found


def lacks(made: Diagnosis) -> dict[Tier, tuple[str, ...]]:
    return {row.tier: row.lacks for row in made.tiers}


class TestRecordedMachines:
    def test_an_h200_is_ready_for_all(self) -> None:
        made = changed()
        assert made.outcome is Outcome.READY
        assert {row.state for row in made.rows} == {State.OK}
        assert not any(lacks(made).values())
        assert state(made, "sm-count")[1] == "132 SMs"
        assert "wild_store" in state(made, "coredump")[1]

    def test_a_machine_without_a_gpu_is_in_order_and_runs_the_contract_tier(self) -> None:
        made = changed(probe=NO_GPU)
        assert made.outcome is Outcome.NO_GPU
        assert lacks(made) == {
            Tier.CONTRACT: (),
            Tier.CANARY: ("gpu",),
            Tier.SCORE: ("gpu",),
        }
        assert state(made, "nvcc")[0] is State.UNCHECKED
        assert state(made, "ptrace")[0] is State.OK

    def test_hidden_gpus_are_no_gpus(self) -> None:
        hidden = H200.machine.model_copy(update={"hidden": "CUDA_VISIBLE_DEVICES"})
        made = changed({"machine": hidden})
        assert made.outcome is Outcome.NO_GPU
        assert "hidden by CUDA_VISIBLE_DEVICES" in state(made, "gpu")[1]

    @pytest.mark.parametrize(
        ("name", "expected", "words", "fields"),
        [
            (
                "gpu",
                State.BROKEN,
                "Driver/library version mismatch",
                {
                    "machine": MachineProbe(
                        devices=("/dev/nvidia0",), nvml_error="Driver/library version mismatch"
                    )
                },
            ),
            (
                "hopper",
                State.BROKEN,
                "8.0",
                {
                    "machine": MachineProbe(
                        gpus=(GPU.model_copy(update={"capability": (8, 0)}),), driver="580"
                    )
                },
            ),
            ("nvml", State.BROKEN, "no reading", {"readings": ()}),
            (
                "nvml",
                State.BROKEN,
                "processes: Not Supported",
                {
                    "readings": (
                        READING.model_copy(update={"unread": {"processes": "Not Supported"}}),
                    )
                },
            ),
            (
                "torch",
                State.BROKEN,
                "driver too old",
                {"python": PYTHON.model_copy(update={"cuda_error": "driver too old"})},
            ),
            (
                "torch",
                State.BROKEN,
                "sees no GPU",
                {"python": PYTHON.model_copy(update={"cuda_devices": 0})},
            ),
            (
                "vllm",
                State.MISSING,
                "No module named",
                {"python": PYTHON.model_copy(update={"modules": (
                    PYTHON.modules[0],
                    Module(name="vllm", error="ModuleNotFoundError: No module named 'vllm'"),
                )})},
            ),
            (
                "vllm",
                State.BROKEN,
                "undefined symbol",
                {"python": PYTHON.model_copy(update={"modules": (
                    PYTHON.modules[0],
                    Module(name="vllm", error="ImportError: _C.so: undefined symbol: x"),
                )})},
            ),
            (
                "vllm",
                State.BROKEN,
                "doesn't run",
                {"python": ChildPython(path="/gone/python", error="No such file or directory")},
            ),
            ("nvcc", State.MISSING, "no nvcc", {"tools": ()}),
            (
                "nvcc",
                State.BROKEN,
                "status 1",
                {"tools": (Tool(name="nvcc", path="/bin/nvcc", error="exit status 1"),)},
            ),
            (
                "disk",
                State.BROKEN,
                "/full",
                {"disks": (Disk(use="shared memory", path="/full", free=64 * 2**20),)},
            ),
        ],
    )  # fmt: skip
    def test_what_the_canary_tier_needs_makes_the_gpu_of_no_use(
        self, name: str, expected: State, words: str, fields: dict[str, object]
    ) -> None:
        made = changed(fields)
        assert made.outcome is Outcome.GPU_UNUSABLE
        found = state(made, name)
        assert found[0] is expected
        assert words in found[1]
        assert name in lacks(made)[Tier.CANARY]
        assert lacks(made)[Tier.CONTRACT] == ()
        row = next(row for row in made.rows if row.name == name)
        assert row.costs
        assert row.remedy

    @pytest.mark.parametrize(
        ("name", "expected", "words", "fields"),
        [
            ("cuda-gdb", State.MISSING, "no cuda-gdb", {"tools": H200.tools[:1]}),
            ("ptrace", State.MISSING, "not installed", {"stacks": "py-spy is not installed"}),
            ("ptrace", State.BROKEN, "Permission", {"stacks": "Permission Denied: ptrace"}),
            ("xid", State.MISSING, "Not Supported", {"xid_events": "Not Supported"}),
            ("caches", State.MISSING, "nothing is compiled", {"caches": ()}),
            (
                "coredump",
                State.BROKEN,
                "kernel is None",
                {
                    "planted": PlantedFault(
                        named=False, status="CRASH", why="kernel is None, not wild_store"
                    )
                },
            ),
            ("coredump", State.UNCHECKED, "no fault was planted", {"planted": None}),
            (
                "free",
                State.BROKEN,
                "30000 MiB of GPU-1 in use by process 77",
                {
                    "readings": (
                        READING.model_copy(
                            update={
                                "memory_used_mib": 30000,
                                "processes": (GpuProcess(pid=77),),
                            }
                        ),
                    )
                },
            ),
            (
                "sm-count",
                State.MISSING,
                "doesn't tell",
                {"readings": (READING.model_copy(update={"sm_count": None}),)},
            ),
            (
                "mig",
                State.OK,
                "1 slice(s), of 16 SMs",
                {"readings": (READING.model_copy(update={"mig": True, "sm_count": 16}),)},
            ),
        ],
    )
    def test_what_is_only_lost_keeps_the_tier(
        self, name: str, expected: State, words: str, fields: dict[str, object]
    ) -> None:
        made = changed(fields)
        assert made.outcome is Outcome.READY
        found = state(made, name)
        assert found[0] is expected
        assert words in found[1]
        assert lacks(made)[Tier.CANARY] == ()

    @pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0), None])
    def test_a_kind_of_gpu_bars_the_tiers_that_the_planner_bars(
        self, capability: tuple[int, int] | None
    ) -> None:
        machine = MachineProbe(gpus=(GPU.model_copy(update={"capability": capability}),))
        installed = Source(
            kind="installed",
            request="",
            version="0.26.0",
            identity="",
            python_path="",
            compiled=True,
        )
        lacking = lacks(changed({"machine": machine}))
        for tier in Tier:
            barred = obstacle(tier, machine, installed) is not None
            assert ("hopper" in lacking[tier]) is barred, tier

    def test_lm_eval_is_the_score_tiers_alone(self) -> None:
        modules = PYTHON.modules[:2]
        made = changed({"python": PYTHON.model_copy(update={"modules": modules})})
        assert made.outcome is Outcome.READY
        assert lacks(made)[Tier.SCORE] == ("lm-eval",)
        assert lacks(made)[Tier.CANARY] == ()


class TestTable:
    def test_every_check_has_a_row_and_every_row_a_check(self) -> None:
        assert {check.name for check in load_checks()} == set(FINDINGS)

    def test_a_row_for_an_unknown_check_is_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "checks.yaml"
        row = "{name: aura, needed_by: [], gpu: true, costs: good vibes, remedy: burn incense}"
        file.write_text(f"checks:\n  - {row}\n")
        with pytest.raises(ConfigError, match=r"checks\.yaml: .* must stand once"):
            load_checks(file)


class TestCaches:
    def test_what_lies_there_is_counted(self, tmp_path: Path) -> None:
        (tmp_path / "triton" / "a").mkdir(parents=True)
        (tmp_path / "triton" / "a" / "kernel").write_bytes(b"12345")
        found = contents(tmp_path / "triton")
        assert (found.name, found.files, found.size) == ("triton", 1, 5)
        assert contents(tmp_path / "none").files == 0

    def test_without_a_vllm_there_are_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GRAPHGATE_PYTHON", str(tmp_path / "no-python"))
        assert kept_caches(H200.machine) == ()

    def test_those_of_the_installed_vllm_are_looked_at(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        info = tmp_path / "site" / "vllm-0.26.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.26.0\n")
        (tmp_path / "site" / "vllm").mkdir()
        (tmp_path / "site" / "vllm" / "__init__.py").write_text("")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
        monkeypatch.setenv("GRAPHGATE_CACHE", str(tmp_path / "cache"))
        by_name = {cache.name: cache for cache in kept_caches(H200.machine)}
        assert {"vllm", "triton", "tilelang", "deep_gemm", "flashinfer"} <= set(by_name)
        kernel = Path(by_name["triton"].path) / "kernel.cubin"
        kernel.parent.mkdir(parents=True)
        kernel.write_bytes(b"123")
        assert kernel.is_relative_to(tmp_path / "cache")
        assert {c.name: c.files for c in kept_caches(H200.machine)}["triton"] == 1


class TestThisMachine:
    def test_another_python_is_asked_what_it_can_import(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "noisy.py").write_text("print('x' * 999); import sys; sys.exit('bye')")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        made = ask_python(sys.executable, ["pydantic", "noisy", "not_there"])
        versions = {module.name: module.version for module in made.modules}
        errors = {module.name: module.error for module in made.modules if module.error}
        assert made.error is None
        assert versions["pydantic"]
        assert errors == {
            "noisy": "SystemExit: bye",
            "not_there": "ModuleNotFoundError: No module named 'not_there'",
        }

    def test_a_python_that_does_not_run_is_said(self, tmp_path: Path) -> None:
        assert ask_python(str(tmp_path / "none"), ["json"]).error
        broken = tmp_path / "python"
        broken.write_text("#!/bin/sh\necho no libpython >&2\nexit 127\n")
        broken.chmod(0o755)
        assert ask_python(str(broken), ["json"]).error == "no libpython"

    def test_tools_are_found_and_broken_ones_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, script in (
            ("nvcc", "echo 'nvcc: NVIDIA compiler'; echo 'Cuda, release 13.0, V13.0.88'; echo B"),
            ("cuda-gdb", "exit 3"),
        ):
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        seen = look(tmp_path / "out" / "deeper")
        assert seen.tool("nvcc").version == "Cuda, release 13.0, V13.0.88"
        assert "3" in (seen.tool("cuda-gdb").error or "")
        assert all(disk.free for disk in seen.disks)
        assert not (tmp_path / "out").exists(), "looking changes nothing"

    @pytest.mark.skipif(bool(list(Path("/dev").glob("nvidia[0-9]*"))), reason="there is a GPU")
    def test_without_a_gpu_it_ends_with_0_and_its_json_can_be_judged_again(
        self, tmp_path: Path
    ) -> None:
        done = CliRunner().invoke(cli.app, ["doctor", "--json"])
        assert done.exit_code == ExitCode.ALLOW, done.output
        report = DoctorReport.model_validate_json(done.stdout)
        assert report.outcome is Outcome.NO_GPU
        (tmp_path / "probe.json").write_text(done.stdout)
        again = CliRunner().invoke(cli.app, ["doctor", "--probe", str(tmp_path / "probe.json")])
        assert again.exit_code == ExitCode.ALLOW
        assert "contract  can run here" in again.stdout
        assert "canary    can't run here: gpu" in again.stdout

    @pytest.mark.skipif(bool(list(Path("/dev").glob("nvidia[0-9]*"))), reason="there is a GPU")
    def test_a_fault_that_can_not_be_planted_is_told(self) -> None:
        bare = H200.model_copy(update={"planted": None})
        seen = with_planted(bare, Live())
        assert seen.planted is not None
        assert not seen.planted.named
        made = diagnose(seen, load_checks())
        assert state(made, "coredump")[0] is State.BROKEN
        assert "INFRA" in state(made, "coredump")[1]

    def test_none_is_planted_where_torch_can_not_use_the_gpu(self) -> None:
        python = PYTHON.model_copy(update={"cuda_error": "driver too old"})
        bare = H200.model_copy(update={"planted": None, "python": python})
        seen = with_planted(bare, Live())
        assert (seen.planted, seen.planted_not) == (None, "torch can't use the GPU")
        assert with_planted(NO_GPU, Live()) == NO_GPU

    def test_a_recorded_gpu_of_no_use_ends_with_20_and_says_what_that_costs(
        self, tmp_path: Path
    ) -> None:
        probe = H200.model_copy(update={"tools": ()})
        report = DoctorReport(**dict(changed(probe=probe)), probe=probe)
        (tmp_path / "probe.json").write_text(report.to_json())
        done = CliRunner().invoke(cli.app, ["doctor", "--probe", str(tmp_path / "probe.json")])
        assert done.exit_code == ExitCode.INFRA
        words = " ".join(done.stdout.split())
        assert "missing nvcc" in words
        assert "costs: DeepGEMM, TileLang and FlashInfer can't compile" in words
        assert "canary can't run here: nvcc" in words
