"""The verb `bundle`: what an air-gapped node needs, in parts that can be carried there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from fixtures.bundle.archive import parse_size
from fixtures.bundle.build import BundleRequest, make_bundle
from fixtures.bundle.closure import MISSING
from fixtures.bundle.haslist import read_has
from fixtures.bundle.manifest import Manifest
from fixtures.bundle.target import Target
from fixtures.errors import ConfigError
from graphgate.live import Live

_SHOWN = 8


def bundle(
    vllm: Annotated[str, typer.Option("--vllm", help="The release, 0.26.0 say.")],
    out: Annotated[Path, typer.Option("--out", help="The folder for the parts.")],
    has: Annotated[
        Path | None,
        typer.Option(
            "--has", help="What the node has: its `pip list --format=freeze`, or plain names."
        ),
    ] = None,
    python: Annotated[str, typer.Option("--python", help="The node's Python.")] = "3.12",
    arch: Annotated[str, typer.Option("--arch", help="The node's GPU.")] = "sm_90",
    glibc: Annotated[str, typer.Option("--glibc", help="The node's glibc, or an older.")] = "2.35",
    part_size: Annotated[
        str, typer.Option("--part-size", help="The largest size of a part.")
    ] = "2GB",
    also: Annotated[
        list[str] | None,
        typer.Option("--also", help="A further requirement; can be given again."),
    ] = None,
    wheels: Annotated[
        Path | None, typer.Option("--wheels", help="A folder of wheels that may be taken too.")
    ] = None,
    caches: Annotated[
        Path | None,
        typer.Option("--caches", help="A GraphGate cache with compiled kernels, or a tar of it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Make an offline bundle: a vLLM release, GraphGate, and what the node lacks for them."""
    request = BundleRequest(
        vllm=_version(vllm),
        target=Target.of(python, arch, glibc),
        has=read_has(has) if has else {},
        part_size=parse_size(part_size),
        also=tuple(_requirement(text) for text in also or ()),
        wheels=_existing(wheels, "--wheels"),
        caches=_existing(caches, "--caches"),
    )
    made = make_bundle(request, out, Live().step)
    typer.echo(made.to_json() if as_json else as_text(made))


def as_text(made: Manifest) -> str:
    """What was made, in a screenful, and the line that unpacks it."""
    size = sum(part.size for part in made.parts)
    saved = sum(entry.size for entry in made.stripped)
    lines = [
        f"vLLM {made.vllm} for Python {made.target.python} and {made.target.arch}: "
        f"{len(made.parts)} parts, {_mb(size)} ({_mb(made.unpacked)} unpacked)",
        f"{len(made.wheels)} wheels; {len(made.left_out)} packages stay out; "
        f"{_mb(saved)} stripped:",
    ]
    for entry in made.stripped[:_SHOWN]:
        lines.append(f"  {_mb(entry.size):>9}  {entry.what}: {entry.reason}")
    replaced = [wheel for wheel in made.wheels if wheel.why != MISSING]
    lines += [f"shipped as well: {w.name} {w.version} ({w.why})" for w in replaced]
    return "\n".join(
        [*lines, "", "Unpack it there, in the folder of the parts, with:", made.unpack]
    )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise ConfigError(
            f"{text!r} is no release", source="--vllm", remedy="name one, 0.26.0 say"
        ) from error


def _requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise ConfigError(
            f"{text!r} is no requirement", source="--also", remedy="write it as for pip"
        ) from error


def _existing(path: Path | None, option: str) -> Path | None:
    if path is not None and not path.exists():
        raise ConfigError(f"{path} isn't there", source=option, remedy="correct the path")
    return path
