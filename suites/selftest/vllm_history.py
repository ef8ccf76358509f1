"""A small git history of vLLM for tests: two neighbouring releases, and planted one-line changes.

Owns: the repository and what is planted. The sources are the releases' own, from the cache.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from fixtures.source.resolve import resolve

OLDER, NEWER = "0.26.0", "0.27.0"
_CAPTURE = "vllm/v1/worker/gpu/cudagraph_utils.py"
_STATE = "vllm/v1/worker/gpu/model_states/default.py"
_INKLING = "vllm/models/inkling/nvidia/model.py"


class Planted(NamedTuple):
    """Texts of one file of 0.26.0 and what a change puts in their place."""

    file: str
    replacements: dict[str, str]


PLANTED = {
    "s1": Planted(
        _CAPTURE,
        {
            "                    desc.cg_mode == CUDAGraphMode.PIECEWISE\n"
            "                    and not self.use_breakable_cg\n                ),": (
                "                    False\n                ),"
            ),
            "assert (attn_metadata is not None) == self.use_breakable_cg": (
                "assert attn_metadata is not None"
            ),
        },
    ),
    "s2": Planted(_CAPTURE, {"forward_fn = create_forward_fn(desc, warmup=False)": "pass"}),
    "s3": Planted(
        _CAPTURE,
        {
            "desc.cg_mode == CUDAGraphMode.PIECEWISE\n"
            "                        and not self.use_breakable_cg\n                    ):": (
                "desc.cg_mode == CUDAGraphMode.PIECEWISE\n                    ):"
            ),
        },
    ),
    "s4": Planted(
        _STATE,
        {
            "query_start_loc_gpu = input_batch.query_start_loc[: num_reqs + 1]\n": (
                "query_start_loc_gpu = input_batch.query_start_loc[: num_reqs + 1].clone()\n"
                "        query_start_loc_gpu[input_batch.num_reqs :] = num_tokens\n"
            ),
        },
    ),
    "own": Planted(_INKLING, {"class InklingModel(": "# one line more\nclass InklingModel("}),
}
"""By branch: S1 to S4 as one-line changes of 0.26.0, and a change in a model of its own."""


def git(repository: Path, *arguments: str) -> str:
    """Runs git with a name of its own; what it prints."""
    names = ("-c", "user.name=selftest", "-c", "user.email=selftest@example.invalid")
    settings = (*names, "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *settings, "-C", str(repository), *arguments],  # noqa: S607 - the user's own git
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def commit_all(repository: Path, message: str) -> str:
    """Commits the tree as it lies there; the commit's name."""
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", message)
    return git(repository, "rev-parse", "HEAD")


def lay_out(release: str, repository: Path) -> None:
    """Puts the release's package into the repository's tree, in place of what is there."""
    package = Path(resolve(release).python_path) / "vllm"
    shutil.rmtree(repository / "vllm", ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, repository / "vllm", ignore=ignored)


def plant(repository: Path, planted: Planted) -> None:
    """Edits one file; every text must be there."""
    path = repository / planted.file
    text = path.read_text(encoding="utf-8")
    for before, after in planted.replacements.items():
        assert before in text, f"{planted.file} lacks {before!r}"
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")


def vllm_history(repository: Path) -> Path:
    """`main` is 0.26.0; from it branch `next` (0.27.0), `docs` and those of PLANTED."""
    repository.mkdir(parents=True)
    git(repository, "init", "--quiet", "--initial-branch", "main")
    lay_out(OLDER, repository)
    commit_all(repository, f"vLLM {OLDER}")
    for branch, planted in PLANTED.items():
        git(repository, "checkout", "--quiet", "-b", branch, "main")
        plant(repository, planted)
        commit_all(repository, f"Plant {branch}")
    git(repository, "checkout", "--quiet", "-b", "docs", "main")
    (repository / "docs").mkdir()
    (repository / "docs" / "usage.md").write_text("How to use it.\n", encoding="utf-8")
    commit_all(repository, "Describe the usage")
    git(repository, "checkout", "--quiet", "-b", "next", "main")
    lay_out(NEWER, repository)
    commit_all(repository, f"vLLM {NEWER}")
    git(repository, "checkout", "--quiet", "main")
    return repository
