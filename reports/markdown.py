"""Text that nobody vouches for, as Markdown that shows it and does nothing else.

Owns: escaping for CommonMark, GitHub and Buildkite: no markup, no HTML, no link, mention,
issue reference or emoji. Must not know: what is written.
"""

from __future__ import annotations

import re

from reports.text import clean, one_line

_JOINER = "\N{WORD JOINER}"
_MARKUP = re.compile(r"[\\`*_{}\[\]()+\-.!|~=$^]")
_REFERENCE = re.compile(r"[@#](?=\S)|:(?=//|[\w+-]+:)|(?<=GH)-(?=\d)")
"""What GitHub and Buildkite make links, pictures or messages to people of, escaped or not."""
_TICKS = re.compile("`+")


def plain(text: str, width: int | None = None) -> str:
    """`text` on one line, to be shown as it is inside a paragraph, list or table."""
    line = one_line(text, width)
    apart = _REFERENCE.sub(lambda found: found[0] + _JOINER, line)
    escaped = _MARKUP.sub(lambda found: f"\\{found[0]}", apart)
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("#", "\\#")


def code(text: str) -> str:
    """`text` on one line as a code span; not for tables, where a bar would end it."""
    line = one_line(text) or " "
    ticks = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def block(text: str) -> str:
    """`text` as a block of code with its own line ends."""
    whole = clean(text)
    fence = "`" * max(3, _longest_run(whole) + 1)
    return f"{fence}text\n{whole}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in _TICKS.findall(text)), default=0)
