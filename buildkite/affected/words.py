"""What a change can affect, in Markdown: for the annotation and the comment of the PR check.

Owns: the words and their size. Must not know: verdicts. Paths are a stranger's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from buildkite.affected.record import Affected, FileEffect
from gates.verdict import Decision
from reports.markdown import code, plain

_FILES = 20
_DESCRIPTION = 140
"""GitHub refuses a longer description of a commit status."""


def affected_markdown(affected: Affected) -> str:
    """Models with their reasons, then the files, folded."""
    return "\n\n".join(_parts(affected)) + "\n"


def nothing_markdown(affected: Affected) -> str:
    """The whole result where no changed file can affect a model."""
    return f"### GraphGate: nothing to check, merge allowed\n\n{affected_markdown(affected)}"


def status_description(affected: Affected, decision: Decision | None) -> str:
    """The description of the commit status, of at most 140 characters."""
    if decision is None:
        text = affected.why
    elif decision.allow:
        text = f"graphs agree; checked {', '.join(affected.models)}"
    else:
        reasons = [blocker.reason for blocker in decision.blockers] or [*decision.incomplete]
        text = f"blocked ({int(decision.exit_code)}): {reasons[0]}"
    return text if len(text) <= _DESCRIPTION else f"{text[: _DESCRIPTION - 3]}..."


def _parts(affected: Affected) -> Iterator[str]:
    yield f"**What this change can affect:** {plain(affected.why, 600)}"
    if affected.models:
        yield "\n".join(
            f"- **{plain(name)}**: {plain(affected.reason(name), 400)}" for name in affected.models
        )
    if affected.drift:
        yield _fold("Drift of the capture contract", (plain(row, 400) for row in affected.drift))
    if affected.files:
        told = [file for file in affected.files if file.models] + list(affected.harmless)
        yield _fold("Changed files", (_line(file) for file in told))


def _line(file: FileEffect) -> str:
    hit = ", ".join(file.models) or "no model"
    return f"{code(file.path)}: {plain(hit)}; {plain(file.told, 400)}"


def _fold(heading: str, lines: Iterable[str]) -> str:
    every = list(lines)
    shown = "\n".join(f"- {line}" for line in every[:_FILES])
    more = f"\n- and {len(every) - _FILES} more" if len(every) > _FILES else ""
    return f"<details><summary>{heading}</summary>\n\n{shown}{more}\n\n</details>"
