"""The GPU core reader against real cores of an H200, and against broken and hostile ones."""

from __future__ import annotations

import json
import lzma
import os
import resource
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures.evidence.crash import Frame
from fixtures.triage import core_tables
from fixtures.triage.core import CoreError, GpuCore, read_core
from fixtures.triage.core_layout import Table
from fixtures.triage.core_lines import lines_of
from fixtures.triage.demangle import full_name, short_name
from suites.selftest.triage_corpus import CORPUS

CORES = sorted((CORPUS / "cores").glob("*/core.cudacore.xz"))
FUZZ = settings(
    max_examples=int(os.environ.get("GRAPHGATE_FUZZ_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
SECTION = struct.Struct("<IIQQQQIIQQ")


@pytest.fixture(scope="module")
def plain() -> bytes:
    """The bytes of the core whose faulting warp had gone."""
    return lzma.decompress((CORPUS / "cores/illegal/core.cudacore.xz").read_bytes())


@pytest.fixture(scope="module")
def small(plain: bytes) -> bytes:
    """The same core without the large library images: quick to damage many times."""
    return shrunk(plain)


def headers(core: bytes) -> Iterator[tuple[int, list[int]]]:
    start = struct.unpack_from("<Q", core, 40)[0]
    count = struct.unpack_from("<H", core, 60)[0]
    for index in range(count):
        at = start + index * SECTION.size
        yield at, list(SECTION.unpack_from(core, at))


def shrunk(core: bytes) -> bytes:
    out = bytearray(core[:64])
    table = bytearray()
    for _at, header in headers(core):
        large = header[1] == Table.IMAGE and header[5] > 10_000
        data = b"" if large else core[header[4] : header[4] + header[5]]
        header[4], header[5] = len(out), len(data)
        out += data
        table += SECTION.pack(*header)
    struct.pack_into("<Q", out, 40, len(out))
    return bytes(out + table)


def place(frame: Frame | None) -> str:
    assert frame is not None
    return f"{frame.file}:{frame.line}"


@pytest.mark.parametrize("path", CORES, ids=lambda path: path.parent.name)
def test_real_core(path: Path) -> None:
    expected: dict[str, Any] = json.loads((path.parent / "expected.json").read_text())
    core = read_core(path)
    assert (core.driver, core.cuda) == (expected["driver"], expected["cuda"])
    device = core.devices[0]
    assert device.name == expected["device"]
    assert (device.architecture, device.sms) == (expected["architecture"], expected["sms"])
    assert len(core.exceptions) == len(expected["exceptions"])
    for found, wanted in zip(core.exceptions, expected["exceptions"], strict=True):
        assert (found.name, found.code) == (wanted["name"], wanted["code"])
        assert hex(found.pc or 0) == wanted["pc"]
        assert found.kernel is not None and found.kernel.function == wanted["kernel"]
        assert place(found.kernel) == wanted["place"]
        assert (found.device, found.sm, found.warp) == (
            wanted["device"],
            wanted["sm"],
            wanted["warp"],
        )
        assert found.block == (tuple(wanted["block"]) if wanted["block"] else None)
        assert found.launch is not None and found.launch.grid == expected["grid"]
    for seen, wanted in zip(core.running, expected["running"], strict=True):
        assert seen.kernel is not None and seen.kernel.function == wanted["kernel"]
        assert (hex(seen.pc or 0), place(seen.kernel)) == (wanted["pc"], wanted["place"])
        assert (seen.sm, seen.warps, seen.blocks) == (
            wanted["sm"],
            wanted["warps"],
            wanted["blocks"],
        )
    launch = core.launches[0]
    assert launch.grid_dim == tuple(expected["grid_dim"])
    assert launch.block_dim == tuple(expected["block_dim"])
    assert launch.params == expected["params"]
    assert core.notes == ()


def test_faulting_lanes_and_thread_are_read_where_the_warp_is_still_there() -> None:
    fault = read_core(CORPUS / "cores/illegal_in_graph/core.cudacore.xz").exceptions[0]
    assert fault.lanes == tuple(range(32))
    assert fault.thread == (0, 0, 0)


def test_core_record_comes_back_equal(tmp_path: Path, small: bytes) -> None:
    core = read_bytes(small, tmp_path)
    (tmp_path / "core.json").write_text(core.to_json())
    assert GpuCore.read_json(tmp_path / "core.json") == core


def read_bytes(data: bytes, folder: Path) -> GpuCore:
    path = folder / "core"
    path.write_bytes(data)
    return read_core(path)


def read_damaged(data: bytes, folder: Path) -> GpuCore | None:
    """Reads damaged bytes: a report or a CoreError, nothing else."""
    try:
        return read_bytes(data, folder)
    except CoreError as error:
        assert str(error)
        return None


def with_longer_rows(core: bytes, kind: Table, extra: int) -> bytes:
    """The core as a later driver would write it: rows of one table have grown."""
    out = bytearray(core)
    for at, header in headers(core):
        if header[1] == kind and header[9]:
            data, size = core[header[4] : header[4] + header[5]], header[9]
            rows = [data[i : i + size] + b"\xaa" * extra for i in range(0, len(data), size)]
            header[4], header[5], header[9] = len(out), sum(map(len, rows)), size + extra
            out += b"".join(rows)
            SECTION.pack_into(out, at, *header)
    return bytes(out)


@pytest.mark.parametrize(
    "kind", [Table.DEVICE, Table.SM, Table.GRID, Table.BLOCK, Table.WARP, Table.LANE]
)
def test_rows_may_grow(tmp_path: Path, small: bytes, kind: Table) -> None:
    assert read_bytes(with_longer_rows(small, kind, 24), tmp_path) == read_bytes(small, tmp_path)


def test_names_inside_a_core_are_cleaned(tmp_path: Path, small: bytes) -> None:
    hostile = small.replace(b"wild_store", b"wild\x1b[31mX").replace(
        b"c_illegal.py", b"c\x1b[2J\x07lll.py"
    )
    fault = read_bytes(hostile, tmp_path).exceptions[0]
    assert fault.kernel is not None
    assert fault.kernel.function == "wild[31mX"
    assert (fault.kernel.file or "").isprintable()


def test_old_drivers_sm_rows_leave_the_fault_to_the_lanes(tmp_path: Path) -> None:
    packed = (CORPUS / "cores/illegal_in_graph/core.cudacore.xz").read_bytes()
    core = bytearray(shrunk(lzma.decompress(packed)))
    for at, header in headers(bytes(core)):
        if header[1] == Table.SM:
            rows = core[header[4] : header[4] + header[5]]
            short = b"".join(rows[i : i + 8] for i in range(0, len(rows), 48))
            header[4], header[5], header[9] = len(core), len(short), 8
            core += short
            SECTION.pack_into(core, at, *header)
    fault = read_bytes(bytes(core), tmp_path).exceptions[0]
    assert (fault.code, hex(fault.pc or 0), fault.sm) == (14, "0x7f47137a1fc0", 124)
    assert fault.kernel is not None and fault.kernel.function == "gather_rows"


@pytest.mark.parametrize("keep", [0, 3, 63, 64, 4000, 100_000])
def test_truncated_core_is_refused_in_words(tmp_path: Path, plain: bytes, keep: int) -> None:
    with pytest.raises(CoreError, match=r"truncated|ELF"):
        read_bytes(plain[:keep], tmp_path)


def test_core_cut_inside_the_section_table_says_so(tmp_path: Path, plain: bytes) -> None:
    core = read_bytes(plain[:-2000], tmp_path)
    assert core.exceptions[0].kernel is not None
    assert "the section table is truncated" in core.notes


def test_other_files_are_refused(tmp_path: Path) -> None:
    for data in (b"hello\n", b"\x7fELF" + b"\0" * 200, Path("/bin/true").read_bytes()):
        with pytest.raises(CoreError, match="core"):
            read_bytes(data, tmp_path)
    with pytest.raises(CoreError, match="cannot be opened"):
        read_core(tmp_path / "absent")
    with pytest.raises(CoreError, match="not a regular file"):
        read_core(tmp_path)


def test_pipes_and_links_are_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CoreError, match="not a regular file"):
        read_core(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(CORES[0])
    with pytest.raises(CoreError, match="cannot be opened"):
        read_core(tmp_path / "link")


def test_packed_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_tables, "MAX_UNPACKED_BYTES", 8 << 20)
    (tmp_path / "core").write_bytes(lzma.compress(b"\0" * (32 << 20), preset=0))
    with pytest.raises(CoreError, match="unpacks to more"):
        read_core(tmp_path / "core")


@FUZZ
@given(data=st.data())
def test_damaged_core_never_crashes(tmp_path: Path, small: bytes, data: st.DataObject) -> None:
    core = bytearray(small)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(core) - 8))
        value = data.draw(st.sampled_from([0, 1, 0x7F, 0xFF, 1 << 31, 1 << 63, (1 << 64) - 1]))
        core[at : at + 8] = value.to_bytes(8, "little")
    read_damaged(bytes(core[: data.draw(st.integers(0, len(core)))] if at % 3 else core), tmp_path)


@FUZZ
@given(data=st.data())
def test_damaged_section_headers_never_crash(
    tmp_path: Path, small: bytes, data: st.DataObject
) -> None:
    core = bytearray(small)
    places = [at for at, _header in headers(small)]
    field = st.sampled_from([4, 8, 24, 32, 40, 44, 56])
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.sampled_from(places)) + data.draw(field)
        struct.pack_into("<I", core, at, data.draw(st.integers(0, (1 << 32) - 1)))
    read_damaged(bytes(core), tmp_path)


@FUZZ
@given(tail=st.binary(max_size=400))
def test_any_bytes_behind_a_core_header_never_crash(
    tmp_path: Path, small: bytes, tail: bytes
) -> None:
    read_damaged(small[:64] + tail, tmp_path)


def test_sections_that_claim_everything_stay_in_bounds(tmp_path: Path, small: bytes) -> None:
    core = bytearray(small)
    for at, header in headers(small):
        if header[1] in set(Table):
            header[4], header[5] = 64, 1 << 62
            SECTION.pack_into(core, at, *header)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read_damaged(bytes(core), tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KiB


@FUZZ
@given(table=st.binary(max_size=300), address=st.integers(0, 1 << 64))
def test_line_decoder_takes_any_bytes(table: bytes, address: int) -> None:
    wanted = frozenset({address, 0, 64})
    lines_of(table, wanted)
    lines_of(struct.pack("<IH", len(table) + 2, 2) + table, wanted)
    lines_of(struct.pack("<IHBB", len(table) + 4, 5, 8, 0) + table, wanted, table)


def test_line_decoder_reads_version_5() -> None:
    strings = b"dir\0kernel.cu\0"
    header = struct.pack("<BBBbBB", 1, 1, 1, -5, 14, 10) + bytes([0, 1, 1, 1, 1, 0, 0, 0, 1])
    folders = b"\x01\x01\x1f\x01" + struct.pack("<I", 0)
    files = b"\x01\x01\x1f\x01" + struct.pack("<I", 4)
    program = b"\x04\x00" + b"\x00\x09\x02" + struct.pack("<Q", 0x1000)
    program += b"\x03\x29\x01\x02\x20\x03\x01\x01\x02\x20\x00\x01\x01"
    head = header + folders + files
    unit = struct.pack("<HBBI", 5, 8, 0, len(head)) + head + program
    table = struct.pack("<I", len(unit)) + unit
    wanted = frozenset({0x1010, 0x1030, 0x1040})
    found = lines_of(table, wanted, strings)
    assert found == {0x1010: ("kernel.cu", 42), 0x1030: ("kernel.cu", 43)}
    assert lines_of(table[:-9], wanted, strings) == {}


NESTED = "_ZN2at6native24index_elementwise_kernelILi128ELi4EZNS0_16gpu_index_kernelEEvlT1_"


def test_short_names_are_the_same_everywhere() -> None:
    assert short_name(NESTED) == "at::native::index_elementwise_kernel"
    assert short_name("_Z4spinPi") == "spin"
    assert short_name("wild_store") == "wild_store"
    flash = "_ZN7cutlass13device_kernelIN5flash20enable_sm90_or_laterINS1_16FlashAttnFwdSm90IL"
    assert short_name(flash) == "cutlass::device_kernel<FlashAttnFwdSm90>"


@FUZZ
@given(st.text(alphabet="_ZNKSEILtvi0123456789ab", max_size=60))
def test_short_name_takes_any_text(text: str) -> None:
    assert short_name("_Z" + text)


def test_full_name_survives_a_name_made_to_explode() -> None:
    bomb = "_Z1fI" + "1aI" * 300 + "S_" * 300 + "E" * 301 + "vT_"
    assert 0 < len(full_name(bomb)) <= 600
    assert full_name("_Z" + "1a" * 5000)
