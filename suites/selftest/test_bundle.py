"""Offline bundles: what goes in, what is stripped, and that the printed line unpacks them."""

from __future__ import annotations

import io
import json
import shutil
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version
from typer.testing import CliRunner

from fixtures.bundle.archive import parse_size, write_parts
from fixtures.bundle.build import BundleRequest, make_bundle
from fixtures.bundle.closure import MISSING, Closure, close
from fixtures.bundle.contents import own_requirements, write_activation
from fixtures.bundle.fatbin import pruned, strip_library
from fixtures.bundle.haslist import parse_has, read_has
from fixtures.bundle.manifest import MANIFEST_FILE, SUMS_FILE, Manifest
from fixtures.bundle.resolution import Resolution, Resolved
from fixtures.bundle.rules import Rules, read_rules
from fixtures.bundle.target import Target
from fixtures.bundle.unpack import Strip
from fixtures.errors import ConfigError, InfraError
from graphgate import cli
from suites.selftest.wheels import pip_sees_only, pip_without_network, write_wheel

HERE = Target(python=f"3.{sys.version_info.minor}", arch="sm_90")
HOPPER = Target(python="3.12", arch="sm_90")
BLACKWELL = Target(python="3.12", arch="sm_100")
PTX, CUBIN = 1, 2


class TestHasList:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("torch==2.11.0+cu130\nnumpy==2.5.2\n", {"torch": "2.11.0+cu130", "numpy": "2.5.2"}),
            ("Package Version\n------- -------\nPyYAML  6.0.4\n", {"pyyaml": "6.0.4"}),
            ("Package Version Editable project location\nmine 1.0 /src/mine\n", {"mine": "1.0"}),
            ("numba\n# a remark\n\nHugging_Face.Hub  # known\n", None),
            ("tool @ file:///wheels/tool.whl\n-e git+ssh://host/repo\n", {"tool": None}),
        ],
    )
    def test_it_is_read_as_pip_and_people_write_it(
        self, text: str, expected: dict[str, str | None] | None
    ) -> None:
        found = {name: version and str(version) for name, version in parse_has(text).items()}
        assert found == (expected or {"numba": None, "hugging-face-hub": None})

    @pytest.mark.parametrize("line", ["what is this", "numpy==latest", "../../etc", "a=1"])
    def test_a_line_that_is_no_package_is_named(self, line: str, tmp_path: Path) -> None:
        file = tmp_path / "node.txt"
        file.write_text(f"torch==2.11.0\n{line}\n")
        with pytest.raises(
            ConfigError, match=r"node\.txt: line 2: .* no package .*--format=freeze"
        ):
            read_has(file)

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"none\.txt: cannot be read"):
            read_has(tmp_path / "none.txt")

    @given(
        st.dictionaries(
            st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,4})?", fullmatch=True).filter(
                lambda name: name != "package"
            ),
            st.tuples(st.integers(0, 99), st.integers(0, 99)),
        )
    )
    def test_what_pip_freezes_comes_back(self, packages: dict[str, tuple[int, int]]) -> None:
        text = "\n".join(f"{name}=={a}.{b}" for name, (a, b) in packages.items())
        assert parse_has(text) == {n: Version(f"{a}.{b}") for n, (a, b) in packages.items()}


def resolution(**packages: tuple[str, tuple[str, ...]]) -> Resolution:
    made = (Resolved(name=n, version=v, requires=r) for n, (v, r) in packages.items())
    return {entry.name: entry for entry in made}  # type: ignore[misc]


def closed(found: Resolution, has: str = "", rules: Rules | None = None) -> Closure:
    return close([Requirement("top")], found, parse_has(has), rules or Rules(), HOPPER)


def shipped(closure: Closure) -> dict[str, str]:
    return {entry.package.name: entry.why for entry in closure.shipped}


class TestWhatIsShipped:
    CHAIN = resolution(
        top=("1.0", ("middle>=2", 'odd; python_version < "3.12"', "extra-only; extra == 'all'")),
        middle=("2.0", ("low", "fast; extra == 'speed'")),
        low=("3.0", ()),
        fast=("1.0", ()),
    )

    def test_all_that_is_needed_where_the_node_has_nothing(self) -> None:
        assert shipped(closed(self.CHAIN)) == dict.fromkeys(("low", "middle", "top"), MISSING)

    def test_a_fitting_package_of_the_node_stays_out_with_what_it_needs(self) -> None:
        made = closed(self.CHAIN, "middle==2.4")
        assert set(shipped(made)) == {"top"}
        assert [(e.name, e.has, e.why) for e in made.left_out] == [
            ("middle", "2.4", "the node has it")
        ]

    def test_one_that_does_not_satisfy_is_shipped_and_said(self) -> None:
        made = closed(self.CHAIN, "middle==1.9\nlow==1.0")
        assert shipped(made)["middle"] == "the node's 1.9 doesn't satisfy >=2"
        assert [entry.name for entry in made.left_out] == ["low"]

    def test_a_name_without_a_version_counts_as_fitting(self) -> None:
        made = closed(self.CHAIN, "middle")
        assert set(shipped(made)) == {"top"}
        assert "isn't said" in made.left_out[0].why

    def test_a_later_demand_overturns_an_earlier_one(self) -> None:
        found = resolution(
            top=("1.0", ("a", "b>=2", "b")), a=("1.0", ("b>=1",)), b=("2.0", ("c",)), c=("1", ())
        )
        made = closed(found, "b==1.5")
        assert set(shipped(made)) == {"top", "a", "b", "c"}
        assert made.left_out == ()

    def test_an_extra_of_a_package_that_the_node_has_is_not_forgotten(self) -> None:
        found = resolution(
            **{
                "top": ("1.0", ("middle[speed]",)),
                "middle": ("2.0", ("low", "fast; extra == 'speed'")),
                "fast": ("1.0", ()),
            }
        )
        assert set(shipped(closed(found, "middle==2.0"))) == {"top", "fast"}

    def test_a_rule_takes_out_a_package_with_what_only_it_needs(self) -> None:
        rules = Rules.model_validate({"packages": [{"name": "Middle", "reason": "not for us"}]})
        made = closed(self.CHAIN, rules=rules)
        assert set(shipped(made)) == {"top"}
        assert made.left_out[0].why == "not for us"

    def test_a_hole_in_the_resolution_is_an_error(self) -> None:
        with pytest.raises(InfraError, match="pip resolved no gone"):
            closed(resolution(top=("1.0", ("gone>=1",))))


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
        done = in_bash("tar -xJf joined -C back && diff -r --no-dereference root back", tmp_path)
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


class TestRules:
    def test_the_table_is_sound_and_gives_reasons(self) -> None:
        rules = read_rules()
        assert all(rule.reason for rule in (*rules.packages, *rules.files))

    @pytest.mark.parametrize(
        ("path", "target", "taken"),
        [
            ("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", HOPPER, True),
            ("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", BLACKWELL, False),
            ("vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", HOPPER, False),
            ("vllm/third_party/deep_gemm/_C.cpython-312-x86_64-linux-gnu.so", HOPPER, False),
            ("vllm/third_party/deep_gemm/_C.cpython-313-x86_64-linux-gnu.so", HOPPER, True),
            ("vllm/third_party/deep_gemm/include/cute/arch/util.hpp", HOPPER, False),
            ("tilelang/3rdparty/cutlass/include/cute/arch/util.hpp", HOPPER, False),
            ("flashinfer/data/include/flashinfer/attention/decode.cuh", HOPPER, False),
            ("vllm/model_executor/models/llama.py", HOPPER, False),
            ("vllm-0.26.0.dist-info/METADATA", HOPPER, False),
        ],
    )
    def test_which_files_stay_out(self, path: str, target: Target, taken: bool) -> None:
        assert (read_rules().for_target(target).file(path, target) is not None) is taken

    def test_a_wrong_table_names_file_and_key(self, tmp_path: Path) -> None:
        file = tmp_path / "rules.yaml"
        file.write_text(
            "files:\n  - pattern: '*.a'\n    reason: static libraries\n    arches: [9]\n"
        )
        with pytest.raises(ConfigError, match=r"rules\.yaml: files\.0\.arches"):
            read_rules(file)

    @pytest.mark.parametrize(
        ("python", "arch", "glibc", "option"),
        [("3", "sm_90", "2.35", "--python"), ("3.12", "hopper", "2.35", "--arch"),
         ("3.12", "sm_90", "musl", "--glibc")],
    )  # fmt: skip
    def test_a_target_that_is_none_names_the_option(
        self, python: str, arch: str, glibc: str, option: str
    ) -> None:
        with pytest.raises(ConfigError, match=option):
            Target.of(python, arch, glibc)


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


NEEDS = (
    "tiny>=2",
    "held>=1",
    "stale>=2",
    f"marked; python_version > '3.{sys.version_info.minor - 1}'",
)


@pytest.fixture(scope="module")
def settings() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory, settings: pytest.MonkeyPatch) -> Path:
    """The only folder that pip sees: vLLM 1.2.3 with what it needs, and all of GraphGate's."""
    folder = tmp_path_factory.mktemp("shelf")
    files = {"vllm/__init__.py": b"__version__ = '1.2.3'\n", "vllm/vllm-rs": b"r" * 100}
    write_wheel(folder, files=files, requires=NEEDS)
    for name in ("tiny", "held", "stale", "marked"):
        write_wheel(folder, "2.1", {f"{name}.py": b"VERSION = '2.1'\n"}, name=name)
    for requirement in own_requirements():
        oldest = next(s.version for s in requirement.specifier if s.operator == ">=")
        write_wheel(folder, oldest, {}, name=requirement.name.replace("-", "_"))
    pip_sees_only(folder, settings)
    return folder


@pytest.fixture(scope="module")
def has(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node that has GraphGate's own packages, one that vLLM needs, and a stale one."""
    file = tmp_path_factory.mktemp("node") / "has.txt"
    names = [requirement.name for requirement in own_requirements()]
    file.write_text("\n".join([*names, "held==1.5", "stale==1.0", "torch==2.11.0"]) + "\n")
    return file


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, shelf: Path, has: Path) -> Path:
    """The folder of a bundle with JIT caches; made once, as each takes pip several seconds."""
    caches = tmp_path_factory.mktemp("kept")
    for version in ("1.2.3", "1.2.4"):
        folder = caches / "jit" / f"vllm-{version}-0123abcd" / "triton"
        folder.mkdir(parents=True)
        (folder / "kernel.cubin").write_bytes(b"compiled")
    out = tmp_path_factory.mktemp("bundle") / "out"
    told = bundle(out, has, "--part-size", "400kB", "--json", "--caches", str(caches))
    assert told == (out / MANIFEST_FILE).read_text() + "\n"
    return out


def bundle(out: Path, has: Path, *more: str) -> str:
    options = ["--vllm", "1.2.3", "--has", str(has), "--out", str(out), "--python", HERE.python]
    done = CliRunner().invoke(cli.app, ["bundle", *options, *more])
    assert done.exit_code == 0, done.output
    return done.stdout


def in_bash(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


def unpack(out: Path) -> subprocess.CompletedProcess[str]:
    """Runs what the manifest says in the folder of the parts, and the Python that it makes."""
    line = Manifest.read_json(out / MANIFEST_FILE).unpack
    asked = "import vllm, tiny, marked, json, fixtures; print(json.dumps([vllm.__file__, "
    asked += "tiny.VERSION, fixtures.__path__[0]]))"
    return in_bash(
        f"{line} && python -c '{asked}' && echo cache=$GRAPHGATE_CACHE && graphgate --help", out
    )


class TestEndToEnd:
    def test_the_manifest_says_what_is_in_and_what_is_not(self, made: Path) -> None:
        manifest = Manifest.read_json(made / MANIFEST_FILE)
        assert {w.name: w.why for w in manifest.wheels} == {
            "vllm": MISSING,
            "tiny": MISSING,
            "marked": MISSING,
            "stale": "the node's 1.0 doesn't satisfy >=2",
        }
        assert "held" in {entry.name for entry in manifest.left_out}
        assert [(e.what, e.size) for e in manifest.stripped] == [("vllm/vllm-rs", 100)]
        assert manifest.caches is not None
        assert (manifest.caches.files, manifest.caches.size) == (1, 8)
        for part in manifest.parts:
            content = (made / part.name).read_bytes()
            assert (part.size, part.sha256) == (len(content), sha256(content).hexdigest())

    def test_the_printed_line_makes_it_usable(self, made: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        shutil.copytree(made, out)
        done = unpack(out)
        assert done.returncode == 0, done.stderr
        where, version, sources = json.loads(done.stdout.splitlines()[0])
        root = out / "graphgate-bundle"
        assert Path(where) == root / "site/vllm/__init__.py"
        assert version == "2.1"
        assert Path(sources) == root / "src/fixtures"
        assert "doctor" in done.stdout
        kept = [path.relative_to(root / "cache/jit") for path in root.rglob("kernel.cubin")]
        assert kept == [Path("vllm-1.2.3-0123abcd/triton/kernel.cubin")]
        assert f"cache={root}/cache" in done.stdout

        moved = tmp_path / "elsewhere"
        root.rename(moved)
        answer = subprocess.run(
            [moved / "venv/bin/python", "-c", "import tiny; print(tiny.__file__)"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert Path(answer.stdout.strip()) == moved / "site/tiny.py"

    def test_a_tampered_part_is_not_unpacked(self, made: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        shutil.copytree(made, out)
        part = max(out.glob("bundle.tar.xz.*"))
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)
        done = unpack(out)
        assert done.returncode != 0
        assert part.name in done.stdout + done.stderr
        assert not (out / "graphgate-bundle").exists()

    def test_another_python_is_refused(self, tmp_path: Path) -> None:
        other = HERE.model_copy(update={"python": f"3.{sys.version_info.minor + 1}"})
        write_activation(tmp_path, read_rules(), other)
        done = in_bash(". ./activate.sh && echo activated", tmp_path)
        assert done.returncode != 0
        assert f"this bundle is for Python {other.python}" in done.stderr
        assert "activated" not in done.stdout

    def test_a_second_one_replaces_it_and_nothing_else(
        self, tmp_path: Path, shelf: Path, has: Path
    ) -> None:
        out = tmp_path / "out"
        out.mkdir()
        for name in ("bundle.tar.xz.000", "bundle.tar.xz.007", SUMS_FILE, MANIFEST_FILE):
            (out / name).write_bytes(b"of an earlier one")
        told = bundle(out, has)
        assert "shipped as well: stale 2.1 (the node's 1.0 doesn't satisfy >=2)" in told
        assert "sha256sum -c" in told.splitlines()[-1]
        assert {path.name for path in out.iterdir()} == {
            *(MANIFEST_FILE, SUMS_FILE, "bundle.tar.xz.000")
        }


class TestBadInput:
    def request(self, **changes: object) -> BundleRequest:
        made = {"vllm": Version("1.2.3"), "target": HERE, "has": {}, "part_size": 10**6, **changes}
        return BundleRequest(**made)  # type: ignore[arg-type]

    def test_a_folder_that_holds_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.txt").write_text("years of work")
        with pytest.raises(ConfigError, match=r"thesis\.txt.*--out"):
            make_bundle(self.request(), tmp_path)
        assert (tmp_path / "thesis.txt").exists()

    def test_a_release_that_there_is_not(self, tmp_path: Path, shelf: Path) -> None:
        with pytest.raises(ConfigError, match=r"--vllm.*9\.9"):
            make_bundle(self.request(vllm=Version("9.9")), tmp_path / "out")
        assert not list((tmp_path / "out").iterdir())

    def test_something_without_a_wheel(self, tmp_path: Path, shelf: Path) -> None:
        request = self.request(also=(Requirement("unheard-of"),))
        with pytest.raises(ConfigError, match=r"unheard-of.*--wheels"):
            make_bundle(request, tmp_path / "out")

    def test_no_network(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pip_without_network(monkeypatch)
        with pytest.raises(InfraError, match="index can't be reached"):
            make_bundle(self.request(), tmp_path / "out")

    @pytest.mark.parametrize("kind", ["no tar", "escape", "absolute"])
    def test_caches_that_can_not_be_taken(self, kind: str, tmp_path: Path) -> None:
        file = tmp_path / "caches.tar"
        if kind == "no tar":
            file.write_bytes(b"not a tar file")
        else:
            with tarfile.open(file, "w") as archive:
                entry = tarfile.TarInfo({"escape": "../../evil", "absolute": "x"}[kind])
                if kind == "absolute":
                    entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(entry, io.BytesIO())
        request = self.request(caches=file)
        with pytest.raises(ConfigError, match=r"caches\.tar: the caches can't be taken"):
            make_bundle(request, tmp_path / "out")
        assert not list(tmp_path.rglob("evil"))

    def test_caches_of_another_release(self, tmp_path: Path) -> None:
        (tmp_path / "kept" / "jit" / "vllm-1.2.4-0123abcd").mkdir(parents=True)
        with pytest.raises(ConfigError, match=r"holds no kernels of vLLM 1\.2\.3"):
            make_bundle(self.request(caches=tmp_path / "kept"), tmp_path / "out")

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--vllm", "latest"], "'latest' is no release"),
            (["--vllm", "1.2.3", "--also", "what is this"], "--also"),
            (["--vllm", "1.2.3", "--caches", "nowhere"], "--caches"),
            (["--vllm", "1.2.3", "--has", "nowhere"], "nowhere"),
        ],
    )
    def test_options_that_mean_nothing(
        self, options: list[str], words: str, tmp_path: Path
    ) -> None:
        done = CliRunner().invoke(cli.app, ["bundle", "--out", str(tmp_path / "out"), *options])
        assert isinstance(done.exception, ConfigError)
        assert words in str(done.exception)
        assert not (tmp_path / "out").exists()
