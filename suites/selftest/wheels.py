"""Small wheels, named vllm unless said otherwise, and a pip that sees only a folder."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

SOURCES = {
    "vllm/__init__.py": b"__version__ = '1.2.3'\n",
    "vllm/v1/worker/gpu/cudagraph_utils.py": b"class CudaGraphManager: ...\n",
    "vllm/configs/tuned.json": b"{}\n",
    "vllm/_C.abi3.so": b"\x7fELF machine code",
}


def write_wheel(
    folder: Path,
    version: str = "1.2.3",
    files: dict[str, bytes] | None = None,
    recorded: dict[str, bytes] | None = None,
    *,
    name: str = "vllm",
    requires: Iterable[str] = (),
) -> Path:
    """A wheel of `files`; its RECORD is that of `recorded`, by default the same files."""
    files = SOURCES if files is None else files
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    extra = {
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [_row(member, content) for member, content in {**(recorded or files), **extra}.items()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in {**files, **extra}.items():
            archive.writestr(member, content)
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
    return path


def _row(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


def pip_sees_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points the user's pip settings to `folder` and to nothing else."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def pip_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points pip to a port of this machine on which nobody listens."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
