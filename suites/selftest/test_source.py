"""The resolver: releases, checkouts, installations, and what it says when there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from fixtures.errors import ConfigError, InfraError
from fixtures.run.environment import REPOSITORY
from fixtures.source.dating import tree_version
from fixtures.source.environment import child_environment, environment_key, slim_python
from fixtures.source.release import cached_releases, fetch_release, unpack_sources
from fixtures.source.resolve import resolve
from suites.selftest.wheels import SOURCES, pip_sees_only, pip_without_network, write_wheel


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("GRAPHGATE_CACHE", str(folder))
    return folder


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that pip sees; it holds one small wheel of vLLM 1.2.3."""
    folder = tmp_path / "shelf"
    write_wheel(folder)
    pip_sees_only(folder, monkeypatch)
    return folder


def files_below(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


class TestRelease:
    @pytest.mark.release("0.26.0")
    def test_the_real_release_is_its_python_sources_and_nothing_else(self) -> None:
        source = resolve("0.26.0")
        assert (source.kind, source.version) == ("release", "0.26.0")
        root = Path(source.python_path)
        assert (root / "vllm/v1/worker/gpu/cudagraph_utils.py").is_file()
        kept = [path for path in (root / "vllm").rglob("*") if path.is_file()]
        suffixes = {path.suffix for path in kept if path.parent.name != "__pycache__"}
        assert suffixes == {".py", ".json"}
        assert source.identity.startswith("release:0.26.0:")
        assert resolve("0.26.0") == source

    @pytest.mark.usefixtures("shelf")
    def test_only_sources_are_kept_and_the_wheel_is_gone(self, cache: Path) -> None:
        root = Path(resolve("1.2.3").python_path)
        kept = files_below(root)
        assert {name for name in kept if name.startswith("vllm/")} == {
            name for name in SOURCES if not name.endswith(".so")
        }
        assert not list(cache.rglob("*.whl"))
        assert not list(cache.rglob(".part-*"))
        assert cached_releases() == ("1.2.3",)

    def test_a_cached_release_needs_no_index(
        self, cache: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = resolve("1.2.3")
        pip_without_network(monkeypatch)
        shutil.rmtree(shelf)
        assert resolve("1.2.3") == first
        assert Path(first.python_path).is_relative_to(cache)

    @pytest.mark.parametrize("harm", ["changed", "removed", "added", "no-marker"])
    @pytest.mark.usefixtures("cache", "shelf")
    def test_a_damaged_copy_is_fetched_again(self, harm: str) -> None:
        root = Path(resolve("1.2.3").python_path)
        whole = files_below(root)
        victim = root / "vllm" / "__init__.py"
        if harm == "changed":
            victim.write_text("import os\n")
        elif harm == "removed":
            victim.unlink()
        elif harm == "added":
            (root / "vllm" / "intruder.py").write_text("")
        else:
            (root / "graphgate-tree.json").write_text("{")
        resolve("1.2.3")
        assert files_below(root) == whole

    def test_two_processes_at_once_share_one_copy(self, cache: Path, shelf: Path) -> None:
        code = "from fixtures.source.resolve import resolve; print(resolve('1.2.3').to_json())"
        both = [
            subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        answers = [process.communicate(timeout=60)[0] for process in both]
        assert [process.returncode for process in both] == [0, 0]
        assert answers[0] == answers[1]
        assert shelf.exists()
        assert not list(cache.rglob(".part-*"))

    @pytest.mark.usefixtures("cache", "shelf")
    def test_an_unknown_release_names_the_closest_and_the_newest(self) -> None:
        with pytest.raises(ConfigError, match=r"no release 1\.2\.4.*close to it are 1\.2\.3") as e:
            resolve("1.2.4")
        assert e.value.source == "--vllm"

    @pytest.mark.usefixtures("shelf", "cache")
    def test_no_network_and_no_copy_names_what_is_cached(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        resolve("1.2.3")
        pip_without_network(monkeypatch)
        with pytest.raises(ConfigError, match=r"can't be reached.*in the cache: 1\.2\.3"):
            resolve("1.2.4")

    @pytest.mark.usefixtures("cache")
    def test_a_wheel_that_is_not_its_record_is_refused(self, shelf: Path) -> None:
        tampered = {**SOURCES, "vllm/__init__.py": b"import os\n"}
        write_wheel(shelf, files=tampered, recorded=SOURCES)
        with pytest.raises(ConfigError, match="garbled"):
            resolve("1.2.3")
        assert cached_releases() == ()

    def test_a_file_that_is_no_wheel_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "vllm-1.2.3-py3-none-any.whl"
        path.write_bytes(b"not a zip")
        with pytest.raises(ConfigError, match="garbled"):
            unpack_sources(path, tmp_path / "tree")

    def test_a_wheel_of_something_else_is_refused(self, tmp_path: Path) -> None:
        wheel = write_wheel(tmp_path, files={"vllm_other/__init__.py": b""})
        with pytest.raises(ConfigError, match=r"no vllm/__init__\.py"):
            unpack_sources(wheel, tmp_path / "tree")

    @pytest.mark.usefixtures("shelf")
    def test_a_cache_that_cannot_be_written_is_infra(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("no folder")
        monkeypatch.setenv("GRAPHGATE_CACHE", str(tmp_path / "file"))
        with pytest.raises(InfraError, match="GRAPHGATE_CACHE"):
            resolve("1.2.3")

    @settings(max_examples=60, deadline=None)
    @given(
        names=st.lists(
            st.builds(
                "{}{}.py".format,
                st.sampled_from(["", "vllm/", "vllm/a.py/", "/", "../"]),
                st.text(alphabet="./\\av:~ ", min_size=1, max_size=24),
            ),
            max_size=6,
            unique=True,
        )
    )
    def test_no_member_name_leads_out_of_the_target(self, names: list[str]) -> None:
        files = {**SOURCES, **dict.fromkeys(names, b"x"), "vllm/../../../out.py": b"x"}
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "deep" / "tree"
            wheel = write_wheel(Path(folder) / "shelf", files=files)
            try:
                unpack_sources(wheel, target)
            except ConfigError:
                return
            outside = [p for p in Path(folder).rglob("*.py") if not p.is_relative_to(target)]
            assert outside == []


def make_checkout(root: Path, *, git: bool = False) -> Path:
    for name, content in SOURCES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    if git:
        settings = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
        for command in (["init", "-q"], ["add", "."], [*settings, "commit", "-qm", "x"]):
            subprocess.run(["git", *command], cwd=root, check=True)  # noqa: S607
    return root


class TestCheckout:
    def test_it_is_read_and_nothing_is_written(self, tmp_path: Path) -> None:
        root = make_checkout(tmp_path / "tree", git=True)
        before = files_below(root)
        source = resolve(str(root))
        assert source.kind == "checkout"
        assert source.python_path == str(root)
        assert files_below(root) == before

    def test_a_clean_tree_is_its_commit_and_an_edit_changes_it(self, tmp_path: Path) -> None:
        root = make_checkout(tmp_path / "tree", git=True)
        clean = resolve(str(root)).identity
        assert clean.startswith("commit:")
        edited_file = root / "vllm" / "__init__.py"
        edited_file.write_text("edited = True\n")
        edited = resolve(str(root)).identity
        assert edited.startswith(f"{clean}+edits:")
        edited_file.write_text("edited = 2\n")
        assert resolve(str(root)).identity not in {clean, edited}

    def test_a_copy_inside_another_repository_is_not_its_commit(self, tmp_path: Path) -> None:
        outer = make_checkout(tmp_path / "outer", git=True)
        inner = make_checkout(outer / "out" / "copy")
        assert resolve(str(inner)).identity.startswith("tree:")

    def test_equal_trees_have_equal_identities(self, tmp_path: Path) -> None:
        one, two = make_checkout(tmp_path / "one"), make_checkout(tmp_path / "two")
        (two / "vllm" / "__pycache__").mkdir()
        (two / "vllm" / "__pycache__" / "x.py").write_text("byte code is no source")
        assert resolve(str(one)).identity == resolve(str(two)).identity

    @pytest.mark.parametrize("request_text", [".", "/nowhere/at/all", "nonsense", ""])
    def test_what_is_no_vllm_is_refused(
        self, request_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigError) as refused:
            resolve(request_text)
        assert refused.value.source == "--vllm"
        assert refused.value.remedy

    @pytest.mark.release("0.26.0")
    @pytest.mark.parametrize(
        ("stated", "version"),
        [
            ("__version__ = version = '0.26.0'\n", "0.26.0"),
            ("__version__ = version = '0.25.2.dev7+gabcdef'\n", "0.26.0+tree"),
            (None, "0.26.0+tree"),
            ("version = 'no version'\n", "0.26.0+tree"),
        ],
    )
    def test_a_tree_is_dated_by_its_word_or_by_its_sources(
        self, stated: str | None, version: str, tmp_path: Path
    ) -> None:
        released = Path(resolve("0.26.0").python_path)
        root = tmp_path / "tree"
        for part in ("vllm/v1/worker/gpu", "vllm/compilation", "vllm/models", "vllm/config"):
            shutil.copytree(released / part, root / part)
        shutil.copy(released / "vllm/__init__.py", root / "vllm")
        if stated is not None:
            (root / "vllm" / "_version.py").write_text(stated)
        assert tree_version(root) == version


class TestInstalled:
    @pytest.fixture
    def python(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A Python that has a vLLM installed."""
        folder = tmp_path / "env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        site = next(folder.glob("lib/python*/site-packages"))
        make_checkout(site)
        info = site / "vllm-1.2.3.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 1.2.3\n")
        monkeypatch.setenv("GRAPHGATE_PYTHON", str(folder / "bin" / "python"))
        return folder / "bin" / "python"

    def test_it_is_the_default_and_runs_in_its_own_python(self, python: Path) -> None:
        source = resolve(None)
        assert (source.kind, source.version) == ("installed", "1.2.3")
        assert resolve("installed") == source
        assert child_environment(source).python == str(python)

    @pytest.mark.usefixtures("cache")
    def test_children_write_no_byte_code_into_the_tested_tree(self, python: Path) -> None:
        source = resolve("installed")
        environment = child_environment(source)
        subprocess.run(
            [python, "-c", "import vllm"], env={**os.environ, **environment.variables}, check=True
        )
        assert not list(Path(source.python_path, "vllm").rglob("__pycache__"))

    def test_set_up_lies_on_top_of_the_chosen_pythons_vllm(
        self, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = tmp_path / "made"
        bootstrap = REPOSITORY / "graphgate" / "bootstrap.py"
        subprocess.run([python, str(bootstrap), str(made)], check=True, stdout=subprocess.PIPE)
        monkeypatch.setenv("GRAPHGATE_PYTHON", str(made / "bin" / "python"))
        assert resolve("installed").version == "1.2.3"

    def test_without_one_the_default_is_pinned(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("GRAPHGATE_PYTHON", raising=False)
        assert resolve(None).kind == "release"

    def test_asking_for_it_where_there_is_none_is_an_error(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("GRAPHGATE_PYTHON", raising=False)
        with pytest.raises(ConfigError, match="no vLLM is installed"):
            resolve("installed")

    def test_a_python_that_does_not_run_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GRAPHGATE_PYTHON", "/nowhere/python")
        with pytest.raises(ConfigError, match="GRAPHGATE_PYTHON"):
            resolve(None)


class TestEnvironment:
    def test_no_network_and_no_environment_is_an_error_with_its_remedy(
        self, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pip_without_network(monkeypatch)
        with pytest.raises(ConfigError, match="can't be reached"):
            slim_python()
        assert not list(cache.rglob("graphgate-environment.json"))

    @pytest.mark.usefixtures("cache")
    def test_a_package_that_the_index_lacks_is_infra(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        empty = tmp_path / "empty"
        empty.mkdir()
        pip_sees_only(empty, monkeypatch)
        with pytest.raises(InfraError, match="torch"):
            slim_python()

    def test_its_name_is_stable(self) -> None:
        assert environment_key() == environment_key()


ALL_RELEASES = (
    *("0.20.0", "0.20.2", "0.21.0", "0.22.0", "0.22.1", "0.23.0", "0.24.0", "0.25.0", "0.25.1"),
    *("0.27.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0"),
)


@pytest.mark.releases
@pytest.mark.parametrize("release", ALL_RELEASES)
def test_one_environment_serves_every_release(release: str) -> None:
    source = resolve(release)
    environment = child_environment(source)
    modules = ", ".join(environment.preload)
    done = subprocess.run(
        [environment.python, "-c", f"import {modules}"],
        env={**os.environ, **environment.variables, "PYTHONPATH": source.python_path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert Version(release) == Version(source.version)
    assert tree_version(Path(source.python_path)) == release
    assert fetch_release(Version(release))[0] == Path(source.python_path)
