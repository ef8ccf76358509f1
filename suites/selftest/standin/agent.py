"""A stand-in for `buildkite-agent`: the verbs that GraphGate calls, over a folder.

Owns: one build's artefacts, annotations, meta-data, uploaded pipelines and paused agents, as
files below `$STANDIN_STORE`. Run as a program of its own; it imports nothing but the standard
library, so that it starts quickly. Where the real agent is strict, so is this one.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import shutil
import sys
from pathlib import Path
from urllib.parse import quote

STORE_VARIABLE = "STANDIN_STORE"
ANNOTATION_LIMIT = 1 << 20
STYLES = ("success", "info", "warning", "error")
RETRIED_MARK = ".retried"
"""Beside a job's artefacts, once another job has taken its place."""


def store() -> Path:
    """The folder that is this build's memory."""
    return Path(os.environ[STORE_VARIABLE])


def main(arguments: list[str]) -> int:
    """Do what the command line says; returns the exit code."""
    given = _parser().parse_args(arguments)
    complaint: str | None = given.do(given)
    if complaint:
        print(f"fatal: {complaint}", file=sys.stderr)
    return 1 if complaint else 0


def _upload_artifact(given: argparse.Namespace) -> str | None:
    """Paths are relative to the working directory, and are kept."""
    paths = [path for path in Path.cwd().glob(given.path) if path.is_file()]
    if not paths:
        return f"No files matched paths: {given.path}"
    for path in paths:
        keep(path, str(path.relative_to(Path.cwd())), os.environ["BUILDKITE_JOB_ID"])
    return None


def keep(source: Path, name: str, job: str) -> None:
    """Store a file as an artefact of a job, under this path."""
    target = store() / "artifacts" / job / name
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, draft)
    draft.replace(target)


def _download_artifact(given: argparse.Namespace) -> str | None:
    found = False
    for job in sorted((store() / "artifacts").glob("*"), key=lambda job: job.stat().st_ctime_ns):
        if (job / RETRIED_MARK).exists() and not given.include_retried_jobs:
            continue
        for path in sorted(job.rglob("*")):
            name = str(path.relative_to(job))
            if path.is_file() and fnmatch.fnmatch(name, given.query.replace("**/", "*")):
                target = Path(given.destination, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
                found = True
    return None if found else "Failed to download artifacts: No artifacts found for downloading"


def _annotate(given: argparse.Namespace) -> str | None:
    text = sys.stdin.read()
    if len(text.encode()) > ANNOTATION_LIMIT:
        return "the annotation's body is larger than 1 MiB"
    path = store() / "annotations" / f"{quote(given.context, safe='')}.{given.style}.md"
    path.parent.mkdir(exist_ok=True)
    for earlier in path.parent.glob(f"{quote(given.context, safe='')}.*"):
        earlier.unlink()
    path.write_text(text, encoding="utf-8")
    return None


def _set_meta_data(given: argparse.Namespace) -> str | None:
    value = sys.stdin.read() if given.value is None else given.value
    if not value:
        return "value cannot be empty, or composed of only whitespace characters"
    path = store() / "meta-data" / quote(given.key, safe="")
    path.parent.mkdir(exist_ok=True)
    path.write_text(value, encoding="utf-8")
    return None


def _get_meta_data(given: argparse.Namespace) -> str | None:
    path = store() / "meta-data" / quote(given.key, safe="")
    if not path.exists() and given.default is None:
        return f"no meta-data of the key {given.key}"
    print(path.read_text(encoding="utf-8") if path.exists() else given.default)
    return None


def _upload_pipeline(given: argparse.Namespace) -> str | None:
    folder = store() / "uploads"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(given.file, folder / f"{len(list(folder.iterdir()))}.yml")
    return None


def _pause(given: argparse.Namespace) -> str | None:
    folder = store() / "paused"
    folder.mkdir(exist_ok=True)
    (folder / os.environ["BUILDKITE_AGENT_NAME"]).write_text(given.note, encoding="utf-8")
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="buildkite-agent", allow_abbrev=False)
    verbs = parser.add_subparsers(required=True)
    artifact = verbs.add_parser("artifact").add_subparsers(required=True)
    upload = artifact.add_parser("upload")
    upload.add_argument("path")
    upload.set_defaults(do=_upload_artifact)
    download = artifact.add_parser("download")
    download.add_argument("--include-retried-jobs", action="store_true")
    download.add_argument("query")
    download.add_argument("destination")
    download.set_defaults(do=_download_artifact)
    annotate = verbs.add_parser("annotate")
    annotate.add_argument("--style", choices=STYLES, default="info")
    annotate.add_argument("--context", default="default")
    annotate.set_defaults(do=_annotate)
    meta_data = verbs.add_parser("meta-data").add_subparsers(required=True)
    setting = meta_data.add_parser("set")
    setting.add_argument("key")
    setting.add_argument("value", nargs="?")
    setting.set_defaults(do=_set_meta_data)
    getting = meta_data.add_parser("get")
    getting.add_argument("key")
    getting.add_argument("--default")
    getting.set_defaults(do=_get_meta_data)
    pipeline = verbs.add_parser("pipeline").add_subparsers(required=True)
    steps = pipeline.add_parser("upload")
    steps.add_argument("file")
    steps.set_defaults(do=_upload_pipeline)
    pause = verbs.add_parser("pause")
    pause.add_argument("--timeout-in-minutes", type=int, default=5)
    pause.add_argument("--note", default="")
    pause.set_defaults(do=_pause)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
