"""Offline bundles end to end: the printed line makes them usable, bad input is named."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from typer.testing import CliRunner

from fixtures.bundle.build import BundleRequest, make_bundle
from fixtures.bundle.closure import MISSING
from fixtures.bundle.contents import own_requirements, write_activation
from fixtures.bundle.manifest import MANIFEST_FILE, SUMS_FILE, Manifest
from fixtures.bundle.rules import read_rules
from fixtures.bundle.target import Target
from fixtures.errors import ConfigError, InfraError
from graphgate import cli
from suites.selftest.wheels import pip_sees_only, pip_without_network, write_wheel

HERE = Target(python=f"3.{sys.version_info.minor}", arch="sm_90")
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

    def test_what_contradicts_itself_is_told_in_pips_words(
        self, tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_wheel(tmp_path / "more", "1.0", {}, name="picky", requires=["vllm<1"])
        monkeypatch.setenv("PIP_FIND_LINKS", f"{shelf} {tmp_path / 'more'}")
        request = self.request(also=(Requirement("picky"),))
        with pytest.raises(ConfigError, match=r"picky 1\.0 depends on vllm<1"):
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
