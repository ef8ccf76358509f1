"""Which source names a failure, what a clean exit is, and what hostile input may do: nothing."""

from __future__ import annotations

import json
import os
import resource
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import Observation, Xid
from fixtures.evidence.crash import CrashKind, CrashReport
from fixtures.evidence.exits import Exit, Exited, Killed, KillReason, NeverStarted, Signaled
from fixtures.triage.log import read_log
from fixtures.triage.reader import read_failure, read_files
from fixtures.triage.scan import CHUNK, find_texts
from fixtures.triage.stacks import stood_still
from fixtures.triage.table import Pattern, PatternTable, default_table, lint, load_table
from fixtures.triage.titles import normalise_title
from graphgate.triage import triage
from suites.selftest.triage_corpus import CORPUS

FUZZ = settings(
    max_examples=int(os.environ.get("GRAPHGATE_FUZZ_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
ABORTED = Signaled(signo=6)
HUNG = Killed(reason=KillReason.NO_PROGRESS, phase="work")
LOST = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"


def put_core(folder: Path, name: str, to: str = "gpu.cudacore.xz") -> None:
    shutil.copy(CORPUS / "cores" / name / "core.cudacore.xz", folder / to)


def failure(folder: Path, exit_: Exit, **more: object) -> CrashReport:
    report = read_failure(folder, exit_, **more)  # type: ignore[arg-type]
    assert report is not None
    return report


def test_clean_exit_with_its_record_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "observation.json").write_text(Observation().to_json())
    (tmp_path / "stderr.log").write_text(LOST)
    assert read_failure(tmp_path, Exited(code=0)) is None


def test_clean_exit_without_a_record_is_fine_where_none_was_due(tmp_path: Path) -> None:
    assert read_failure(tmp_path, Exited(code=0), completion_record=False) is None


@pytest.mark.parametrize("text", ["", "{", '{"schema_version": 1, "passed": true}', "[]", "\xff"])
def test_truncated_or_lying_record_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "observation.json").write_text(text, encoding="latin-1")
    report = failure(tmp_path, Exited(code=0))
    assert report.title == "exit 0 with an unreadable completion record"
    assert report.kind is CrashKind.REG


def test_core_names_the_kernel_that_the_driver_could_not(tmp_path: Path) -> None:
    put_core(tmp_path, "illegal")
    shutil.copy(CORPUS / "logs/driver-illegal-driver-alone/stderr.log", tmp_path)
    report = failure(tmp_path, ABORTED)
    assert report.title == "illegal address in wild_store"
    assert report.sources == ("core", "driver")
    assert report.pc == "0x7f696f7a0fb0"
    assert report.frame is not None
    assert (report.frame.file, report.frame.line) == ("c_illegal.py", 6)
    assert "killed by SIGABRT" in report.secondary


def test_sources_that_disagree_are_shown(tmp_path: Path) -> None:
    put_core(tmp_path, "illegal")
    shutil.copy(CORPUS / "logs/driver-illegal-in-graph/stderr.log", tmp_path)
    report = failure(tmp_path, ABORTED)
    assert report.title == "illegal address in wild_store"
    assert report.sources == ("core",)
    expected = "sources disagree on the kernel: the core says wild_store, driver says gather_rows"
    assert expected in report.secondary


def test_hang_is_named_by_its_running_kernel(tmp_path: Path) -> None:
    assert failure(tmp_path, HUNG).title == "hang in phase work"
    put_core(tmp_path, "hang", "cuda_coredump_node.77.xz")
    (tmp_path / "host-stacks.txt").write_text("Thread 1\n  torch.cuda.synchronize\x1b[0m\n")
    report = failure(tmp_path, HUNG)
    assert (report.title, report.kind) == ("hang in spin", CrashKind.REG)
    assert report.host_stacks == ("Thread 1\n  torch.cuda.synchronize\n",)


PY_SPY = """
# py-spy, process 11
Process 11: /opt/python -m fixtures.child.main
Thread 11 (idle): "MainThread"
    Event.wait (threading.py:655)
    {child}
    run (fixtures/child/main.py:58)

# py-spy, process 12
Process 12: VLLM::Worker
Thread 12 (idle+gil): "MainThread"
    synchronize (torch/cuda/__init__.py:1083)
    Worker.execute_model (vllm/v1/worker/gpu_worker.py:70)

# py-spy, process 13
no stacks: Permission Denied
"""


def test_hang_without_a_kernel_is_named_by_where_the_child_waits(tmp_path: Path) -> None:
    (tmp_path / "stacks.txt").write_text(
        PY_SPY.format(child="Client.get_output (vllm/v1/engine/core_client.py:853)")
    )
    report = failure(tmp_path, HUNG)
    assert report.title == "hang in get_output while VLLM::Worker is idle"
    assert report.frame is not None and report.frame.file == "vllm/v1/engine/core_client.py"
    where = "VLLM::Worker idle in synchronize (torch/cuda/__init__.py:1083)"
    assert report.secondary == (where, "hang in phase work")
    put_core(tmp_path, "hang", "cuda_coredump_node.77.xz")
    assert failure(tmp_path, HUNG).title == "hang in spin"


@pytest.mark.parametrize(
    "stacks", [PY_SPY.format(child="f (suites/selftest/x.py:1)"), "# py-spy, process 1\nno stacks"]
)
def test_hang_inside_of_graphgate_keeps_its_plain_title(tmp_path: Path, stacks: str) -> None:
    (tmp_path / "stacks.txt").write_text(stacks)
    assert failure(tmp_path, HUNG).title == "hang in phase work"


@FUZZ
@given(st.text(max_size=300) | st.from_regex(r"(# py-spy, process 1\n|Thread 0x1 .*\n|  .*\n)*"))
def test_stacks_are_read_whatever_they_say(stacks: str) -> None:
    still = stood_still(stacks)
    assert still is None or still.title.startswith("hang in ")


def test_hang_is_not_called_by_a_symptom_that_may_mean_nothing(tmp_path: Path) -> None:
    shutil.copy(CORPUS / "logs/broadcast-block/stderr.log", tmp_path)
    report = failure(tmp_path, HUNG)
    assert (report.title, report.kind) == ("hang in phase work", CrashKind.REG)
    assert "no shared memory broadcast block" in report.secondary


def test_interruption_by_us_is_not_blamed_on_the_child(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("Traceback (most recent call last):\nKeyboardInterrupt\n")
    report = failure(tmp_path, Killed(reason=KillReason.INTERRUPTED, phase="start"))
    assert (report.title, report.kind) == ("interrupted in phase start", CrashKind.AMB)


@pytest.mark.parametrize("code", [48, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 154])
def test_hardware_xid_outranks_even_a_core(tmp_path: Path, code: int) -> None:
    put_core(tmp_path, "illegal")
    report = failure(tmp_path, ABORTED, xids=(Xid(code=code, device="GPU-0"),))
    assert (report.title, report.kind) == (f"hardware Xid {code}", CrashKind.INFRA)
    assert "illegal address in wild_store" in report.secondary


@pytest.mark.parametrize("code", [13, 31, 43, 45, 8, 1])
def test_other_xids_leave_the_core_its_title(tmp_path: Path, code: int) -> None:
    put_core(tmp_path, "illegal")
    report = failure(tmp_path, ABORTED, xids=(Xid(code=code, device="GPU-0"),))
    assert report.title == "illegal address in wild_store"


@pytest.mark.parametrize(
    ("exit_", "title", "kind"),
    [
        (Exited(code=3), "exit code 3 without a reason in the log", "REG"),
        (Signaled(signo=11), "killed by SIGSEGV", "REG"),
        (Signaled(signo=15), "terminated by SIGTERM from outside", "AMB"),
        (Signaled(signo=9), "killed by SIGKILL from outside (kernel OOM killer?)", "AMB"),
        (Signaled(signo=200), "killed by signal 200", "REG"),
        (Killed(reason=KillReason.LOG_LIMIT, phase="work"), "log without end in phase work", "REG"),
        (
            NeverStarted(errno=2, why="no such file"),
            "could not be started: No such file or directory",
            "CONFIG",
        ),
        (
            NeverStarted(errno=0, why="NVIDIA H200 is busy (1.3 of its 140.4 GiB are free)"),
            "could not be started: NVIDIA H200 is busy",
            "INFRA",
        ),
        (
            NeverStarted(errno=12, why="fork"),
            "could not be started: Cannot allocate memory",
            "INFRA",
        ),
    ],
)
def test_exit_by_itself(tmp_path: Path, exit_: Exit, title: str, kind: str) -> None:
    report = failure(tmp_path, exit_)
    assert (report.title, report.kind.value, report.sources) == (title, kind, ("exit",))


def test_last_words_do_not_explain_a_kill_from_outside(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("Traceback (most recent call last):\nKeyError: handled\n")
    report = failure(tmp_path, Signaled(signo=9))
    assert report.title.startswith("killed by SIGKILL")


def test_broken_core_is_told_and_the_log_speaks(tmp_path: Path) -> None:
    (tmp_path / "a.cudacore").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "stderr.log").write_text(LOST)
    report = failure(tmp_path, ABORTED)
    assert report.title == "illegal memory access"
    assert any(line.startswith("core not read: a.cudacore:") for line in report.secondary)
    assert not any(str(tmp_path) in line for line in report.secondary)


def test_links_and_pipes_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    attempt = tmp_path / "attempt-0"
    attempt.mkdir()
    (tmp_path / "secret").write_text(LOST)
    (attempt / "stderr.log").symlink_to(tmp_path / "secret")
    (attempt / "observation.json").symlink_to(tmp_path / "secret")
    os.mkfifo(attempt / "stdout.log")
    assert failure(attempt, Exited(code=0)).title == "exit 0 without a completion record"


def test_read_files_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file"):
        read_files([])
    with pytest.raises(ConfigError, match="cannot be opened"):
        read_files([tmp_path / "absent.log"])
    (tmp_path / "cut.cudacore").write_bytes(b"\x7fELF")
    with pytest.raises(ConfigError, match="not an ELF file"):
        read_files([tmp_path / "cut.cudacore"])


def test_verb_prints_the_facts(capsys: pytest.CaptureFixture[str]) -> None:
    core = CORPUS / "cores/illegal/core.cudacore.xz"
    triage([core], json=True)
    facts = json.loads(capsys.readouterr().out)
    assert facts["kernel"] == "wild_store"
    assert facts["exception"] == "CUDBG_EXCEPTION_WARP_ILLEGAL_ADDRESS"
    assert (facts["pc"], facts["location"]) == ("0x7f696f7a0fb0", "c_illegal.py:6")
    triage([core])
    text = capsys.readouterr().out
    assert "title      illegal address in wild_store\n" in text
    assert "kernel     wild_store\n" in text


def test_no_line_means_no_slowness_and_no_memory(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    block = b"token " * (1 << 17)
    with log.open("wb") as stream:
        for _ in range(90):
            stream.write(block)
        stream.write(LOST.rstrip().encode())
        for _ in range(4):
            stream.write(block)
    assert log.stat().st_size > 64 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert failure(tmp_path, ABORTED).title == "illegal memory access"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 24 << 10  # KiB


@pytest.mark.parametrize("shift", range(-3, 4))
def test_text_on_a_chunk_boundary_is_found_once(tmp_path: Path, shift: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"." * (CHUNK - 4 + shift) + b"needle" + b"." * CHUNK + b"needle")
    with path.open("rb") as stream:
        found = find_texts(stream, [b"needle", b"a much longer text than that"])
    assert found[b"needle"].offsets == [CHUNK - 4 + shift, 2 * CHUNK + 2 + shift]


@FUZZ
@given(
    st.lists(st.sampled_from([b"ab", b"a", b"b", b"\n", b"abab", b"x" * 50]), max_size=60),
    st.sampled_from([b"ab", b"aba", b"b\na"]),
)
def test_finds_are_the_plain_ones(tmp_path: Path, parts: list[bytes], text: bytes) -> None:
    data = b"".join(parts)
    (tmp_path / "log").write_bytes(data)
    with (tmp_path / "log").open("rb") as stream:
        found = find_texts(stream, [text])
    plain: list[int] = []
    at = data.find(text)
    while at >= 0:
        plain.append(at)
        at = data.find(text, at + len(text))
    assert (found[text].offsets if text in found else []) == plain


FRAGMENTS = [pattern.contains for pattern in default_table().patterns] + [
    "Traceback (most recent call last):\n",
    '  File "/a/b/vllm/x.py", line 3, in f\n',
    "ValueError: bad\n",
    "coredump: Detected an exception of type CUDBG_EXCEPTION_WARP_ASSERT (12)\n",
    "coredump:   - PC 0x7f00\n",
    "coredump:   #0\t0x7f00\t_ZN1aE\n",
    "The exception was triggered at PC 0x7f00  k  (a.py:1)\n",
    "(EngineCore pid=1) ERROR 11-30 10:00:00 [a.py:1] ",
    "\x1b[31m",
    "\x00",
    "\r",
    "\n",
]


@FUZZ
@given(
    parts=st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=30)), max_size=40),
    code=st.integers(0, 255),
)
def test_any_log_gives_a_title(tmp_path: Path, parts: list[str], code: int) -> None:
    (tmp_path / "stderr.log").write_text("".join(parts), encoding="utf-8", errors="replace")
    report = failure(tmp_path, Exited(code=code))
    assert report.title and "\n" not in report.title and len(report.title) <= 200
    assert "\x1b" not in report.to_json(indent=None)
    assert CrashReport.model_validate_json(report.to_json()) == report


@FUZZ
@given(st.binary(max_size=2000))
def test_any_bytes_give_a_title(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "stderr.log").write_bytes(data)
    assert failure(tmp_path, Exited(code=1)).title


@FUZZ
@given(st.text(max_size=400))
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise_title(text)
    assert normalise_title(once) == once
    assert once.isprintable()


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("bad size 17 at 0x7f00ab on rank 3, pid=991", "bad size N at ADDR on rank N, pid N"),
        ("no /home/ci/build/vllm/a.py after 3.5s", "no a.py after Ns"),
        ("bf16 on sm_90 in fused_add_3 at 10:57:31.123", "bf16 on sm_90 in fused_add_3 at TIME"),
        ("cuda:1 has 12.5 GiB of 139GiB", "cuda:N has N GiB of NGiB"),
        ("run 123e4567-e89b-12d3-a456-426614174000\nnext", "run UUID next"),
        ("commit 1645abb0c93dae8d3b78 of 2026-11-30", "commit HEX of DATE"),
    ],
)
def test_titles_hold_nothing_of_the_run(text: str, title: str) -> None:
    assert normalise_title(text) == title


def _pattern(key: str, contains: str, **more: object) -> Pattern:
    fields = {"title": "some title", "kind": "REG", "role": "cause", **more}
    return Pattern.model_validate({"key": key, "contains": contains, **fields})


def test_table_lint_finds_doubles_and_shadows() -> None:
    wide, narrow = _pattern("wide", "CUDA error"), _pattern("narrow", "CUDA error: bad")
    assert lint((narrow, wide)) == []
    assert lint((wide, narrow)) == ["pattern narrow is shadowed by wide"]
    assert lint((wide, _pattern("wide", "something else"))) == ["pattern wide stands twice"]
    one, two = _pattern("one", "abc", match="a(?:bc)"), _pattern("two", "abc", match="a(?:bc)")
    assert lint((one, two)) == ["pattern two repeats one"]


@pytest.mark.parametrize(
    "match", [r"(a+)+b", r"(?:a*)*", r"(?:\w+\s?)+x", r"a.*b.*c", r"(", r"(?:ab){2,}"]
)
def test_table_refuses_regexes_that_may_run_away(match: str) -> None:
    with pytest.raises(ValueError, match=r"linear|no regex"):
        _pattern("slow", "aaa", match=match)


def test_title_may_only_name_groups_that_exist() -> None:
    with pytest.raises(ValueError, match="title names"):
        _pattern("lost", "aaa", title="some {what}")


def test_broken_table_names_file_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "patterns.yaml"
    path.write_text("patterns:\n- {key: a, contains: abc, title: some title, kind: BAD, role: x}\n")
    with pytest.raises(ConfigError, match=r"patterns\.yaml: patterns\.0\.kind: .*docs/triage\.md"):
        load_table(path)


def test_another_table_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("the flux capacitor overheated\n")
    table = PatternTable(patterns=(_pattern("flux", "flux capacitor", title="overheated flux"),))
    assert failure(tmp_path, Exited(code=1), table=table).title == "overheated flux"


def test_many_hits_of_one_pattern_stay_few(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOST * 200_000)
    findings = read_log(tmp_path / "log", default_table())
    assert [hit.offset for hit in findings.hits] == [0]
