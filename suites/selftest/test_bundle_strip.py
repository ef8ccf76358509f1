"""What is stripped from a bundle's files, and how they are cut into parts."""

from __future__ import annotations

import struct
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.bundle.archive import parse_size, write_parts
from fixtures.bundle.fatbin import pruned, strip_library
from fixtures.bundle.rules import read_rules
from fixtures.bundle.target import Target
from fixtures.bundle.unpack import Strip
from fixtures.errors import ConfigError
from suites.selftest.wheels import write_wheel

HOPPER = Target(python="3.12", arch="sm_90")
PTX, CUBIN = 1, 2


def fat_binary(*entries: tuple[int, int, bytes]) -> bytes:
    """A container of (kind, architecture, payload)."""
    body = b""
    for kind, architecture, payload in entries:
        head = struct.pack("<HHIQ", kind, 1, 64, len(payload)) + bytes(12)
        body += (head + struct.pack("<I", architecture)).ljust(64, b"\0") + payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def shared_library(**sections: bytes) -> bytes:
    """A small ELF file whose sections are named `.<keyword>`."""
    names, places, body = b"\0", [], b""
    for name, content in sections.items():
        places.append((len(names), 1, 64 + len(body), len(content)))
        names += f".{name}\0".encode()
        body += content
    places.append((len(names), 3, 64 + len(body), len(names) + len(".shstrtab\0")))
    names += b".shstrtab\0"
    table = bytes(64)
    for name_at, kind, start, size in places:
        table += struct.pack("<IIQQQQIIQQ", name_at, kind, 0, 0, start, size, 0, 0, 1, 0)
    at = 64 + len(body) + len(names)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, at, 0, 64, 0, 0, 64, len(places) + 1,
                       len(places))  # fmt: skip
    return ident + head + body + names + table


HOPPER_CODE, OLD_CODE, NEW_CODE, TEXT = b"H" * 40, b"O" * 48, b"N" * 56, b"P" * 24
MIXED = ((CUBIN, 80, OLD_CODE), (PTX, 80, TEXT), (CUBIN, 90, HOPPER_CODE))
FOREIGN = ((CUBIN, 120, NEW_CODE), (CUBIN, 86, OLD_CODE))
DEVICE_CODE = fat_binary(*MIXED) + bytes(8) + fat_binary(*FOREIGN)
FREED_ON_HOPPER = (64 + len(OLD_CODE)) + (64 + len(NEW_CODE))


class TestMachineCode:
    def test_what_is_left_is_a_fat_binary_for_fewer_gpus(self) -> None:
        made, freed = pruned(DEVICE_CODE, 90)
        first = fat_binary(*MIXED[1:])
        second = fat_binary(FOREIGN[1])
        assert made.startswith(first)
        at = len(fat_binary(*MIXED)) + 8
        assert made[at:].startswith(second), "each container begins where it began"
        rest = made[len(first) : at] + made[at + len(second) :]
        assert rest.strip(b"\0") == b""
        assert (len(made), freed) == (len(DEVICE_CODE), FREED_ON_HOPPER)
        assert pruned(made, 90) == (made, 0)

    def test_code_of_the_same_major_stays(self) -> None:
        data = fat_binary((CUBIN, 100, OLD_CODE), (CUBIN, 103, NEW_CODE), (CUBIN, 120, TEXT))
        assert pruned(data, 100)[0].startswith(
            fat_binary((CUBIN, 100, OLD_CODE), (CUBIN, 103, NEW_CODE))
        )

    def test_a_stripped_library_keeps_its_layout(self, tmp_path: Path) -> None:
        library = tmp_path / "lib.so"
        whole = shared_library(nv_fatbin=DEVICE_CODE, debug_info=b"D" * 100, text=OLD_CODE)
        library.write_bytes(whole)
        assert strip_library(library, 90) == (FREED_ON_HOPPER, 100)
        left = library.read_bytes()
        assert len(left) == len(whole)
        assert HOPPER_CODE in left
        assert TEXT in left
        assert b"DDDD" not in left
        assert left.count(OLD_CODE) == 2, "the CPU's code, and the only entry of a container"

    @pytest.mark.parametrize("content", [b"", b"no library", b"\x7fELF", b"\x7fELF\x02\x01" * 40])
    def test_what_is_no_library_is_not_changed(self, content: bytes, tmp_path: Path) -> None:
        file = tmp_path / "lib.so"
        file.write_bytes(content)
        assert strip_library(file, 90) == (0, 0)
        assert file.read_bytes() == content

    @given(st.binary(max_size=400), st.integers(0, 300))
    def test_a_cut_or_garbled_fat_binary_is_left_alone_or_stays_one(
        self, junk: bytes, cut: int
    ) -> None:
        for data in (junk, DEVICE_CODE[:cut] + junk, fat_binary((CUBIN, 80, junk))[:-1] + junk):
            made, freed = pruned(data, 90)
            assert len(made) == len(data)
            assert 0 <= freed < max(len(data), 1)
            assert pruned(made, 90)[1] == 0

    @given(st.lists(st.tuples(st.sampled_from([PTX, CUBIN]), st.sampled_from([80, 90, 100]),
                              st.binary(max_size=9)), min_size=1))  # fmt: skip
    def test_all_that_a_gpu_can_load_stays_in_order(
        self, entries: list[tuple[int, int, bytes]]
    ) -> None:
        kept = [entry for entry in entries if entry[0] == PTX or entry[1] == 90]
        kept = kept or [min(entries, key=lambda entry: len(entry[2]))]
        assert pruned(fat_binary(*entries), 90)[0].startswith(fat_binary(*kept))


class TestParts:
    def folder(self, root: Path) -> Path:
        (root / "a").mkdir(parents=True)
        (root / "a" / "tool").write_bytes(b"#!/bin/sh\n" + b"x" * 9000)
        (root / "a" / "tool").chmod(0o755)
        (root / "a" / "same").write_bytes(b"y" * 9000)
        (root / "b.so").write_bytes(b"y" * 9000)
        (root / "b.so.1").symlink_to("b.so")
        (root / "empty").write_bytes(b"")
        (root / "noise").write_bytes(b"".join(sha256(bytes([i])).digest() for i in range(160)))
        return root

    def test_they_come_back_as_they_were(self, tmp_path: Path) -> None:
        root = self.folder(tmp_path / "root")
        (tmp_path / "out").mkdir()
        parts = write_parts(root, tmp_path / "out", 1024, lambda done, whole: None)
        assert len(parts) > 1
        assert [part.size for part in parts[:-1]] == [1024] * (len(parts) - 1)
        target = tmp_path / "back"
        target.mkdir()
        joined = b"".join((tmp_path / "out" / part.name).read_bytes() for part in parts)
        (tmp_path / "joined").write_bytes(joined)
        command = "tar -xJf joined -C back && diff -r --no-dereference root back"
        done = subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
        assert (target / "a" / "tool").stat().st_mode & 0o777 == 0o755
        assert (target / "b.so").samefile(target / "a" / "same")

    def test_equal_folders_give_equal_parts(self, tmp_path: Path) -> None:
        made = []
        for name in ("one", "two"):
            root, out = self.folder(tmp_path / name / "root"), tmp_path / name / "out"
            out.mkdir()
            made.append(write_parts(root, out, 10_000, lambda done, whole: None))
        assert made[0] == made[1]

    @pytest.mark.parametrize(
        ("text", "size"), [("57MB", 57_000_000), ("50 MiB", 52_428_800), ("1.5gb", 1_500_000_000)]
    )
    def test_sizes_are_read(self, text: str, size: int) -> None:
        assert parse_size(text) == size

    @pytest.mark.parametrize("text", ["", "much", "57 apples", "-1MB", "12"])
    def test_a_size_that_is_none_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError, match="--part-size"):
            parse_size(text)


class TestStripping:
    def strip(self, folder: Path, files: dict[str, bytes], **wheel: dict[str, bytes]) -> Strip:
        strip = Strip(folder / "root", read_rules(), HOPPER)
        strip.unpack(write_wheel(folder, files=files, **wheel))  # type: ignore[arg-type]
        return strip

    def test_files_go_where_an_installer_puts_them(self, tmp_path: Path) -> None:
        self.strip(
            tmp_path,
            {
                "vllm/__init__.py": b"",
                "vllm-1.2.3.data/purelib/more.py": b"",
                "vllm-1.2.3.data/scripts/tool": b"#!python\nprint()\n",
                "vllm-1.2.3.data/headers/x.h": b"int x;",
            },
        )
        root = tmp_path / "root"
        assert (root / "site/vllm-1.2.3.dist-info/METADATA").is_file()
        assert (root / "site/more.py").is_file()
        assert (root / "bin/tool").read_text() == "#!/usr/bin/env python3\nprint()\n"
        assert (root / "bin/tool").stat().st_mode & 0o100
        assert not list(root.rglob("x.h"))

    def test_what_is_stripped_is_counted_with_its_reason(self, tmp_path: Path) -> None:
        library = shared_library(nv_fatbin=DEVICE_CODE, debug_line=b"D" * 10)
        made = self.strip(
            tmp_path,
            {
                "vllm/__init__.py": b"",
                "vllm/vllm-rs": b"r" * 500,
                "vllm/lib.a": b"a" * 70,
                "vllm/_C.abi3.so": library,
            },
        )
        counted = {(e.what, e.files, e.size, e.blanked) for e in made.stripped}
        assert counted == {
            ("vllm/vllm-rs", 1, 500, False),
            ("*.a", 1, 70, False),
            ("site/vllm/_C.abi3.so", 1, FREED_ON_HOPPER, True),
            ("site/vllm/_C.abi3.so", 1, 10, True),
        }
        blanked = {e.size: e.reason for e in made.stripped if e.blanked}
        assert blanked.pop(10) == "debug information"
        assert "sm_90" in blanked.popitem()[1]

    def test_a_tampered_wheel_is_refused(self, tmp_path: Path) -> None:
        files = {"vllm/__init__.py": b"evil"}
        with pytest.raises(ConfigError, match=r"vllm/__init__\.py isn't what its RECORD says"):
            self.strip(tmp_path, files, recorded={"vllm/__init__.py": b"good"})

    def test_a_member_that_leads_out_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="leads out of the folder"):
            self.strip(tmp_path, {"../evil.py": b""})
        assert not list(tmp_path.rglob("evil.py"))
