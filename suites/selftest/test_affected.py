"""The check of a pull request: what a change can affect, and that it errs to more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildkite.affected.changes import (
    ChangedFile,
    Changes,
    changes_since,
    fetched_branch,
    listed_changes,
)
from buildkite.affected.imports import UnreadableModuleError, imports_of
from buildkite.affected.record import Affected
from buildkite.affected.select import select
from buildkite.affected.table import Effect, read_table
from buildkite.affected.words import affected_markdown, nothing_markdown, status_description
from buildkite.selection import Selection, selected
from fixtures.cells.cell import Source
from fixtures.cells.models import ModelSpec
from fixtures.cells.sweeps import load_catalog
from fixtures.errors import ConfigError, InfraError
from fixtures.source.git import git as asked_git
from fixtures.source.git import worktree
from suites.selftest.build import a_cell, a_plan
from suites.selftest.vllm_history import commit_all, git

CATALOG = load_catalog()
NAMES = CATALOG.sweep("pr").models
MODELS: dict[str, ModelSpec] = {name: CATALOG.model(name) for name in NAMES}
TABLE = read_table(tuple(CATALOG.models))

LLAMA = "vllm/model_executor/models/llama.py"
TREE = {
    "vllm/__init__.py": "",
    "vllm/v1/__init__.py": "",
    "vllm/v1/worker/gpu/cudagraph_utils.py": "from vllm import shared\n",
    "vllm/v1/attention/backends/flash_attn.py": "",
    "vllm/v1/attention/backends/mla/indexer.py": "from vllm.kernels import sparse\n",
    "vllm/models/deepseek_v4/nvidia/model.py": "def f():\n    from vllm.layers.moe import X\n",
    "vllm/models/inkling/nvidia/model.py": "from ..common import scale\n",
    "vllm/models/inkling/common.py": "",
    LLAMA: "from vllm.layers import norm\nimport vllm.loop_a\n",
    "vllm/layers/__init__.py": "",
    "vllm/layers/norm.py": "",
    "vllm/layers/moe.py": "",
    "vllm/layers/unused.py": "import vllm.layers.norm\n",
    "vllm/loop_a.py": "import vllm.loop_b\n",
    "vllm/loop_b.py": "import vllm.loop_a\n",
    "vllm/shared.py": "if TYPE_CHECKING:\n    import vllm.layers.unused\n",
    "vllm/kernels/sparse.py": "",
}


def lay(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPHGATE_CACHE", str(tmp_path / "cache"))
    return lay(tmp_path / "tree", TREE)


def source_at(root: Path) -> Source:
    return Source(
        kind="checkout", request="x", version="0.33.0", identity="it", python_path=str(root)
    )


def affected(root: Path, *paths: str) -> Affected:
    return select(listed_changes("\n".join(paths)), source_at(root), TABLE, MODELS)


class TestTable:
    def test_it_names_only_models_that_there_are(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="dsv4"):
            read_table(("llama",))
        broken = tmp_path / "core.yaml"
        broken.write_text(
            "{schema_version: 1, capture: [], deferred_from: [], packages_of_models: [],"
            " rules: [{paths: [a], affects: models, why: w}]}"
        )
        with pytest.raises(ConfigError, match="goes with"):
            read_table((), broken)

    @pytest.mark.parametrize(
        ("path", "effect"),
        [
            ("docs/design/attention.md", Effect.NOTHING),
            ("vllm/v1/README.md", Effect.NOTHING),
            ("tests/v1/test_x.py", Effect.NOTHING),
            ("csrc/attention/mla.cu", Effect.EVERYTHING),
            ("CMakeLists.txt", Effect.EVERYTHING),
            ("requirements/cuda.txt", Effect.EVERYTHING),
            ("requirements/lint.txt", Effect.NOTHING),
            ("vllm/v1/worker/gpu/input_batch.py", Effect.EVERYTHING),
            ("vllm/config/compilation.py", Effect.EVERYTHING),
            ("vllm/models/inkling/nvidia/model.py", Effect.MODELS),
            ("vllm/model_executor/models/llama4.py", Effect.IMPORTS),
            ("vllm/tool_parsers/abstract.py", Effect.IMPORTS),
        ],
    )
    def test_paths_have_their_effect(self, path: str, effect: Effect) -> None:
        rule = TABLE.rule(path)
        assert rule is not None
        assert rule.affects is effect

    @given(st.text(min_size=1))
    def test_a_path_of_no_rule_affects_everything(self, name: str) -> None:
        path = f"unheard-of/{name}.bin"
        if TABLE.rule(path) is not None:
            return
        changes = Changes(base=None, files=(ChangedFile(path=path),))
        found = select(changes, source_at(Path("/nowhere")), TABLE, MODELS)
        assert found.models == NAMES


class TestImports:
    def test_a_module_its_package_and_what_they_import(self, tree: Path) -> None:
        found = affected(tree, "vllm/layers/norm.py", "vllm/layers/unused.py")
        norm, unused = found.files
        assert norm.models == ("llama",)
        assert norm.chain == ("vllm.model_executor.models.llama", "vllm.layers.norm")
        assert unused.models == ()
        assert "imports it" in unused.why
        assert found.models == ("llama",)

    def test_what_the_capture_imports_affects_every_model(self, tree: Path) -> None:
        assert affected(tree, "vllm/shared.py").models == NAMES

    def test_relative_imports_and_own_files(self, tree: Path) -> None:
        assert affected(tree, "vllm/models/inkling/common.py").models == ("inkling",)

    def test_an_import_inside_of_a_function_counts_in_the_engine(self, tree: Path) -> None:
        assert affected(tree, "vllm/layers/moe.py").models == ("dsv4",)

    def test_a_backend_that_a_model_names(self, tree: Path) -> None:
        assert affected(tree, "vllm/kernels/sparse.py").models == ("dsv4",)
        found = affected(tree, "vllm/v1/attention/backends/flash_attn.py")
        assert found.models == ("inkling", "llama")

    def test_shared_code_that_chooses_a_model_does_not_join_the_models(self, tree: Path) -> None:
        code = "def f():\n    from vllm.models.inkling.common import scale\n"
        lay(tree, {"vllm/v1/worker/gpu/cudagraph_utils.py": code})
        assert affected(tree, "vllm/models/inkling/common.py").models == ("inkling",)

    def test_cycles_end(self, tree: Path) -> None:
        assert affected(tree, "vllm/loop_b.py").models == ("llama",)

    def test_a_removed_module_that_is_still_imported(self, tree: Path) -> None:
        (tree / "vllm/layers/norm.py").unlink()
        assert affected(tree, "vllm/layers/norm.py").models == ("llama",)

    def test_data_counts_as_its_package(self, tree: Path) -> None:
        lay(tree, {"vllm/model_executor/layers/moe/__init__.py": ""})
        lay(tree, {LLAMA: "import vllm.model_executor.layers.moe\n"})
        config = "vllm/model_executor/layers/moe/configs/E=8.json"
        assert affected(tree, config).models == ("llama",)

    @given(st.binary(max_size=60))
    def test_any_bytes_are_imports_or_unreadable(self, source: bytes) -> None:
        try:
            found = imports_of(source, "vllm.x", is_package=False)
        except UnreadableModuleError:
            return
        assert all(isinstance(name, str) for name in found.eager)

    def test_the_cache_gives_the_same_answer(self, tree: Path) -> None:
        first = affected(tree, "vllm/layers/norm.py", LLAMA)
        assert (tree.parent / "cache" / "imports.json").is_file()
        assert affected(tree, "vllm/layers/norm.py", LLAMA) == first
        (tree.parent / "cache" / "imports.json").write_text("{")
        assert affected(tree, "vllm/layers/norm.py", LLAMA) == first


class TestUntrustedTree:
    @pytest.mark.parametrize(
        "text",
        ["def (:\n", "x = '\0'\n", "(" * 5000, "-" * 100_000 + "1", "x = 1\n" * 400_000],
        ids=["syntax", "nul", "deep", "deep-expression", "huge"],
    )
    def test_a_changed_file_that_cannot_be_parsed_affects_everything(
        self, tree: Path, text: str
    ) -> None:
        lay(tree, {"vllm/layers/unused.py": text})
        found = affected(tree, "vllm/layers/unused.py")
        assert found.models == NAMES

    def test_a_reached_file_that_cannot_be_parsed_hides_what_it_imports(self, tree: Path) -> None:
        lay(tree, {"vllm/layers/norm.py": "def (:\n"})
        found = affected(tree, "vllm/layers/unused.py")
        assert found.models == NAMES
        assert "vllm.layers.norm" in found.files[0].why

    def test_links_are_not_followed(self, tree: Path, tmp_path: Path) -> None:
        outside = lay(tmp_path / "outside", {"norm.py": "import vllm.layers.unused\n"})
        (tree / "vllm/layers/norm.py").unlink()
        (tree / "vllm/layers/norm.py").symlink_to(outside / "norm.py")
        found = affected(tree, "vllm/layers/unused.py")
        assert "it is a link" in found.files[0].why
        (tree / "vllm/circle").symlink_to(tree / "vllm")
        lay(tree, {LLAMA: "import vllm.circle.shared\n"})
        assert affected(tree, "vllm/layers/unused.py").models == NAMES

    def test_nothing_of_the_tree_is_run(self, tree: Path, tmp_path: Path) -> None:
        trap = f"open({str(tmp_path / 'sprung')!r}, 'w')\n"
        lay(tree, {name: trap + text for name, text in TREE.items() if name != "vllm/v1"})
        affected(tree, "vllm/layers/norm.py")
        assert not (tmp_path / "sprung").exists()

    def test_paths_are_shown_as_text(self, tree: Path) -> None:
        path = "x/`</details>![a](http://b)@all\x1b[31m"
        found = affected(tree, path)
        text = affected_markdown(found)
        assert "\x1b" not in text
        line = "".join(char for char in path if char != "\x1b").removesuffix("[31m")
        assert "@all" not in text.replace(f"``{line}``", "")
        assert len(status_description(found, None)) <= 140


class TestRecord:
    def test_a_plan_is_cut_down_and_says_what_was_left_out(self, tree: Path) -> None:
        keys = [f"{name}.{mode}.bk0.contract" for name in NAMES for mode in ("NONE", "FULL")]
        plan = a_plan(*(a_cell(key) for key in keys), source=source_at(tree))
        found = affected(tree, "vllm/layers/norm.py")
        cut = found.narrowed(plan)
        assert {cell.key.model for cell in cut.cells} == {"llama"}
        assert {omission.model for omission in cut.omissions} == {"dsv4", "inkling"}
        assert cut.hardware_tiers_due == ()
        chosen = found.selection(plan)
        assert all("norm.py" in cell.why for cell in chosen.cells)
        assert selected(plan, Selection.model_validate_json(chosen.to_json())) == cut
        with pytest.raises(ConfigError, match="is about"):
            found.narrowed(a_plan(*(a_cell(key) for key in keys)))

    def test_compiled_code_asks_for_hardware(self, tree: Path) -> None:
        plan = a_plan(a_cell(), source=source_at(tree))
        cut = affected(tree, "csrc/a.cu").narrowed(plan)
        assert cut.hardware_tiers_due == ("dsv4",)

    def test_a_drift_asks_for_every_model(self, tree: Path) -> None:
        found = affected(tree, "vllm/layers/norm.py").with_drift(["a row changed"])
        assert found.models == NAMES
        assert "a row changed" in found.reason("dsv4")

    def test_nothing_is_said_with_its_reasons(self, tree: Path) -> None:
        found = affected(tree, "docs/a.md", "tests/b.py")
        assert found.models == ()
        assert "documentation (1)" in found.why
        assert "merge allowed" in nothing_markdown(found)


class TestChanges:
    @pytest.fixture
    def repository(self, tree: Path) -> Iterator[Path]:
        git(tree, "init", "--quiet", "--initial-branch", "main")
        commit_all(tree, "first")
        git(tree, "checkout", "--quiet", "-b", "change")
        yield tree

    def test_commits_edits_and_new_files_since_the_merge_base(self, repository: Path) -> None:
        lay(repository, {"vllm/layers/norm.py": "x = 1\n"})
        base = git(repository, "rev-parse", "main")
        commit_all(repository, "second")
        git(repository, "checkout", "--quiet", "main")
        lay(repository, {"vllm/later.py": ""})
        commit_all(repository, "on main")
        git(repository, "checkout", "--quiet", "change")
        lay(repository, {LLAMA: "y = 1\n", "new \u00e4.py": ""})
        (repository / "vllm/layers/moe.py").unlink()
        (repository / "vllm/link.py").symlink_to("/etc/passwd")
        found = changes_since(repository, "main")
        assert found.base == base
        assert {file.path: file.special for file in found.files} == {
            "vllm/layers/norm.py": False,
            "vllm/layers/moe.py": False,
            "vllm/link.py": True,
            LLAMA: False,
            "new \u00e4.py": False,
        }

    def test_our_own_output_is_no_change(self, repository: Path) -> None:
        lay(repository, {"out/plan.json": "{}", "other.txt": ""})
        found = changes_since(repository, "main", [repository / "out"])
        assert [file.path for file in found.files] == ["other.txt"]

    @pytest.mark.parametrize("revision", ["nowhere", "--output=/tmp/x", "", "main..change"])
    def test_a_revision_that_is_none(self, repository: Path, revision: str) -> None:
        with pytest.raises(ConfigError, match="git can't compare"):
            changes_since(repository, revision)

    def test_a_target_branch_is_fetched_as_it_is_now(
        self, repository: Path, tmp_path: Path
    ) -> None:
        build = tmp_path / "build"
        git(tmp_path, "clone", "--quiet", str(repository), str(build))
        git(repository, "checkout", "--quiet", "main")
        lay(repository, {"vllm/later.py": ""})
        latest = commit_all(repository, "later")
        before = git(build, "for-each-ref", "refs/heads")
        assert fetched_branch(build, "origin", "main") == latest
        assert git(build, "for-each-ref", "refs/heads") == before
        with pytest.raises(InfraError, match="can't be fetched from origin"):
            fetched_branch(build, "origin", "nowhere")

    @pytest.mark.parametrize(
        "branch", ["a b", "--upload-pack=x", "x:y", "main^", "..", "a;$(id)\n"]
    )
    def test_a_branch_that_a_stranger_named_is_only_a_name(
        self, repository: Path, branch: str
    ) -> None:
        with pytest.raises(
            (ConfigError, InfraError), match=r"no name of a branch|can't be fetched"
        ):
            fetched_branch(repository, ".", branch)

    def test_a_folder_inside_of_another_repository(self, repository: Path) -> None:
        with pytest.raises(ConfigError, match="root is"):
            changes_since(repository / "vllm", "main")

    def test_lists(self) -> None:
        assert [f.path for f in listed_changes("./b\n\na\n").files] == ["a", "b"]
        assert [f.path for f in listed_changes("a b\0c\0").files] == ["a b", "c"]
        with pytest.raises(ConfigError, match="lists no file"):
            listed_changes("\n")

    def test_a_second_working_tree_leaves_the_first_alone(self, repository: Path) -> None:
        hook = repository / ".git/hooks/post-checkout"
        hook.write_text(f"#!/bin/sh\ntouch {repository}/sprung\n")
        hook.chmod(0o755)
        lay(repository, {LLAMA: "edited\n"})
        with worktree(repository, "main") as second:
            assert (second / LLAMA).read_text() == TREE[LLAMA]
        assert not second.exists()
        assert (repository / LLAMA).read_text() == "edited\n"
        assert asked_git(repository, "worktree", "list").count("\n") == 0
        assert not (repository / "sprung").exists()
