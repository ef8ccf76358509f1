"""Node health: what readings mean, who is to blame, and what a run may leave on a GPU."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.evidence.cellrun import Attempt, Xid
from fixtures.evidence.crash import CrashKind
from fixtures.evidence.exits import Exited, Signaled
from fixtures.evidence.node import NodeReading, NodeWatch
from fixtures.run.blame import Circumstances, SeenTitle, SeenTitles, blame, hardware_failures
from fixtures.run.gpu.health import reading_of, settled
from fixtures.run.gpu.nvml import GpuId, RawReading
from fixtures.run.hostmemory import MemoryGroup, own_group
from fixtures.schema import Record
from gates.hygiene import judge_hygiene
from gates.liveness import judge_liveness
from gates.policy import read_policy
from gates.verdict import Status
from suites.selftest.build import a_crash, a_run, an_attempt
from suites.selftest.nvml_replay import NODES, recorded, with_values
from suites.selftest.scrubbed import machine_path

GPU = GpuId("GPU-one", 0, 143771)
SLICE = GpuId("MIG-one", 0, 18 * 1024, mig=True)
IDLE = recorded("h200", "idle")
DIED = Signaled(signo=signal.SIGABRT)


class ExpectedNode(Record):
    """`expected.json` of an attempt: what failed in hardware, and the checks of hygiene."""

    hardware: tuple[str, ...]
    findings: tuple[str, ...]
    left_mib: int
    processes_left: int
    provenance: str


def node_folders() -> list[Path]:
    return sorted(path.parent for path in NODES.glob("*/expected.json"))


@pytest.mark.parametrize("folder", node_folders(), ids=lambda path: path.name)
def test_every_node_of_the_corpus_is_read_as_expected(folder: Path) -> None:
    expected = ExpectedNode.read_json(folder / "expected.json")
    attempt = Attempt.read_json(folder / "attempt.json")
    seen = Circumstances(exit=attempt.exit, xids=attempt.xids, nodes=attempt.nodes)
    assert hardware_failures(seen) == expected.hardware
    assert blame(None, seen).quarantine == expected.hardware
    findings = judge_hygiene(a_run(attempts=(attempt,)), None, read_policy())
    assert tuple(finding.check for finding in findings) == expected.findings
    assert sum(watch.memory_left_mib for watch in attempt.nodes) == expected.left_mib
    assert sum(len(watch.processes_left) for watch in attempt.nodes) == expected.processes_left


def test_the_corpus_names_no_machine() -> None:
    for path in NODES.rglob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert machine_path(text) is None, path
        uuids = [word for word in text.split('"') if word.startswith(("GPU-", "MIG-"))]
        assert set(uuids) <= {"GPU-00000000-0000-0000-0000-000000000001"}, path


class TestReadings:
    def test_an_h200_reads_as_what_it_is(self) -> None:
        reading = reading_of(GPU, IDLE)
        assert reading.name == "NVIDIA H200" and reading.sm_count == 132 and not reading.mig
        assert reading.memory_used_mib == 615 and reading.processes == ()
        assert reading.ecc_uncorrected == 0 and reading.remap_failed is False
        assert reading.throttle == ("GpuIdle",) and reading.unread == {}
        assert not reading.in_use

    def test_who_holds_memory_is_seen_and_gives_it_back(self) -> None:
        before, held, after = (
            reading_of(GPU, recorded("h200", moment)) for moment in ("idle", "held", "given-back")
        )
        assert held.in_use and len(held.processes) == 1
        assert NodeWatch(before=before, after=held).memory_left_mib == 1642
        assert NodeWatch(before=before, after=after).memory_left_mib == 0

    def test_a_mig_slice_has_its_own_multiprocessors(self) -> None:
        raw = with_values(IDLE, sm_count=16)
        assert reading_of(SLICE, raw).sm_count == 16 and reading_of(SLICE, raw).mig
        assert reading_of(GPU, raw).sm_count == 132

    def test_a_gpu_of_unknown_make_has_no_sm_count_rather_than_a_wrong_one(self) -> None:
        assert reading_of(GPU, with_values(IDLE, compute_capability=[99, 0])).sm_count is None

    @given(st.sets(st.sampled_from(sorted(IDLE.values))))
    def test_whatever_the_driver_does_not_tell_is_absent_and_named(self, silent: set[str]) -> None:
        told = {name: value for name, value in IDLE.values.items() if name not in silent}
        reading = reading_of(GPU, RawReading(told, dict.fromkeys(silent, "Not Supported")))
        assert set(reading.unread) == silent
        watch = NodeWatch(before=reading_of(GPU, IDLE), after=reading)
        assert watch.failures == () and watch.memory_left_mib == 0

    def test_a_gpu_is_waited_for_until_it_is_empty(self) -> None:
        before = reading_of(GPU, IDLE)
        held = reading_of(GPU, recorded("h200", "held"))
        answers = [held, held, before]
        assert settled(lambda: answers.pop(0), before, seconds=5) == before
        assert answers == []

    def test_a_gpu_that_stays_full_is_not_waited_for_for_ever(self) -> None:
        before = reading_of(GPU, IDLE)
        held = reading_of(GPU, recorded("h200", "held"))
        assert settled(lambda: held, before, seconds=0.3) == held


def node(*, shared: bool = False, **after: object) -> NodeWatch:
    before = reading_of(GPU, IDLE)
    return NodeWatch(before=before, after=before.model_copy(update=after), shared=shared)


def xid(code: int) -> Xid:
    return Xid(code=code, device="GPU-one")


class TestBlame:
    def test_a_hardware_xid_outranks_an_illegal_address(self) -> None:
        told = blame(a_crash(), Circumstances(DIED, xids=(xid(31), xid(94)), nodes=(node(),)))
        assert told.crash is not None and told.crash.kind is CrashKind.INFRA
        assert told.crash.title == "hardware Xid 94"
        assert told.crash.secondary[0] == "illegal memory access"
        assert told.quarantine == ("hardware Xid 94",)

    @pytest.mark.parametrize("code", [13, 31, 43, 45])
    def test_an_xid_of_the_application_or_of_a_teardown_blames_nobody(self, code: int) -> None:
        told = blame(a_crash(), Circumstances(DIED, xids=(xid(code),), nodes=(node(),)))
        assert told == (a_crash(), ())

    def test_counters_tell_where_no_event_came(self) -> None:
        told = blame(a_crash(), Circumstances(DIED, nodes=(node(ecc_uncorrected=1),)))
        assert told.crash is not None and told.crash.kind is CrashKind.INFRA
        assert told.quarantine == ("GPU failure: 1 new uncorrectable ECC error(s)",)

    def test_a_sick_gpu_is_told_of_though_the_child_lived(self) -> None:
        told = blame(None, Circumstances(Exited(code=0), xids=(xid(63),)))
        assert told.crash is None and told.quarantine == ("hardware Xid 63",)

    @pytest.mark.parametrize(
        ("title", "gpu", "healthy", "kind"),
        [
            ("illegal memory access", "GPU-other", True, CrashKind.REG),
            ("illegal memory access", "GPU-other", False, CrashKind.INFRA),
            ("illegal memory access", "GPU-one", True, CrashKind.INFRA),
            ("misaligned address", "GPU-other", True, CrashKind.INFRA),
        ],
    )
    def test_a_failure_that_a_healthy_gpu_showed_too_is_the_codes(
        self, title: str, gpu: str, healthy: bool, kind: CrashKind
    ) -> None:
        seen = SeenTitles(titles=(SeenTitle(title=title, gpu=gpu, healthy=healthy),))
        told = blame(a_crash(), Circumstances(DIED, xids=(xid(94),), nodes=(node(),)), seen)
        assert told.crash is not None and told.crash.kind is kind
        assert bool(told.quarantine) is (kind is CrashKind.INFRA)
        assert any("Xid 94" in line for line in (told.crash.title, *told.crash.secondary))

    @pytest.mark.parametrize(
        ("peak", "kind"), [(60_000.0, CrashKind.REG), (900.0, CrashKind.INFRA)]
    )
    def test_the_oom_killer_is_named_and_the_childs_share_tells_whose_fault_it_was(
        self, peak: float, kind: CrashKind
    ) -> None:
        killed = a_crash("AMB", "killed by SIGKILL from outside (kernel OOM killer?)")
        seen = Circumstances(
            Signaled(signo=9), oom_kills=1, peak_rss_mib=peak, host_memory_mib=64_000.0
        )
        told = blame(killed, seen).crash
        assert told is not None and told.title == "host out of memory" and told.kind is kind

    def test_a_kill_that_the_kernel_did_not_count_stays_ambiguous(self) -> None:
        killed = a_crash("AMB", "killed by SIGKILL from outside (kernel OOM killer?)")
        assert blame(killed, Circumstances(Signaled(signo=9))).crash == killed
        # The kernel killed somebody, but this child fell by itself.
        assert blame(a_crash(), Circumstances(DIED, oom_kills=1)).crash == a_crash()

    @pytest.mark.parametrize(
        ("title", "used", "shared", "kind"),
        [
            ("GPU out of memory", 615, False, "AMB"),
            ("GPU out of memory", 90_000, False, "INFRA"),
            ("GPU out of memory", 90_000, True, "AMB"),
            ("too little free GPU memory at start", 615, False, "AMB"),
            ("too little free GPU memory at start", 90_000, False, "INFRA"),
            ("too little free GPU memory at start", 615, True, "INFRA"),
        ],
    )
    def test_gpu_memory_is_the_nodes_fault_where_strangers_had_it(
        self, title: str, used: int, shared: bool, kind: str
    ) -> None:
        before = reading_of(GPU, IDLE).model_copy(update={"memory_used_mib": used})
        watch = NodeWatch(before=before, after=before, shared=shared)
        out_of_memory = a_crash("AMB", title)
        told = blame(out_of_memory, Circumstances(Exited(code=1), nodes=(watch,))).crash
        assert told is not None and told.kind.value == kind


class TestHostMemory:
    @pytest.mark.parametrize(
        ("line", "folder", "file", "limit"),
        [
            ("0::/a/b", "a/b", "memory.events", "memory.max"),
            ("0::/not/mounted", "", "memory.events", "memory.max"),
            ("4:cpu,memory:/a", "memory/a", "memory.oom_control", "memory.limit_in_bytes"),
            ("4:memory:/gone", "memory", "memory.oom_control", "memory.limit_in_bytes"),
        ],
    )
    def test_the_group_is_found_in_every_layout(
        self, tmp_path: Path, line: str, folder: str, file: str, limit: str
    ) -> None:
        where = tmp_path / "fs" / folder
        where.mkdir(parents=True)
        (where / file).write_text("oom_kill_disable 0\noom 7\noom_kill 3\n")
        (where / limit).write_text(f"{512 * 2**20}\n")
        (tmp_path / "membership").write_text(f"9:name=systemd:/\n{line}\n")
        group = own_group(tmp_path / "membership", tmp_path / "fs")
        assert group.oom_kills() == 3 and group.limit_mib() == 512

    def test_nothing_to_read_is_nothing_known(self, tmp_path: Path) -> None:
        group = own_group(tmp_path / "absent", tmp_path)
        assert group == MemoryGroup(None, None) and group.oom_kills() is None
        assert group.limit_mib() > 0

    def test_no_limit_is_all_of_the_machine(self, tmp_path: Path) -> None:
        (tmp_path / "memory.max").write_text("max\n")
        assert MemoryGroup(None, tmp_path / "memory.max").limit_mib() > 64


class TestJudgement:
    def test_memory_left_is_told_with_its_figures(self) -> None:
        run = a_run(attempts=(an_attempt(nodes=(node(memory_used_mib=4711),)),))
        (finding,) = judge_hygiene(run, None, read_policy())
        assert finding.status is Status.FAIL
        assert (finding.measured, finding.limit) == ("4096 MiB", "256 MiB")

    def test_quarantine_is_asked_for_also_where_the_second_try_passed(self) -> None:
        bad = an_attempt(
            Exited(code=1),
            crash=a_crash("INFRA", "hardware Xid 79"),
            gpu="GPU-one",
            quarantine=("hardware Xid 79",),
        )
        (finding,) = judge_liveness(a_run(attempts=(bad, an_attempt(index=1))), None, read_policy())
        assert finding.status is Status.PASS
        assert "attempt 1 was INFRA: hardware Xid 79" in finding.why
        assert "quarantine of GPU-one is asked for: hardware Xid 79" in finding.why

    def test_records_come_back_equal(self) -> None:
        text = json.loads((NODES / "h200-wild/attempt.json").read_text(encoding="utf-8"))
        attempt = Attempt.model_validate(text)
        assert attempt.nodes[0].before == NodeReading.model_validate(
            attempt.nodes[0].before.plain()
        )
        assert [event.code for event in attempt.xids] == [31]
