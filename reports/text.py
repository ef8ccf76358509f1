"""Text that a child, a model or a pull request controls, made fit to be shown.

Owns: what may reach a terminal, an XML file or a page as plain characters. Must not know:
where the text goes; escaping for XML, HTML or Markdown is the work of its renderer.
"""

from __future__ import annotations

import re

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor movement
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # operating system commands: titles, links
    r"|\x1b[ -/]*[0-~]"
)
_LINE_END = re.compile(r"\r\n?|\x85|\u2028|\u2029")
_NOT_TEXT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls, all but tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # they reorder what is shown
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"  # no characters at all
)


def clean(text: str) -> str:
    """`text` with line feeds as its only line ends and without anything that is not text.

    What is left is allowed in XML 1.0 (https://www.w3.org/TR/xml/#charsets) and can neither
    move a terminal's cursor nor reorder a line.
    """
    if text.isascii() and text.isprintable():
        return text  # nearly every text of a report, and a report has millions
    plain = _ESCAPE_SEQUENCE.sub("", text)
    return _NOT_TEXT.sub("", _LINE_END.sub("\n", plain))


def one_line(text: str, width: int | None = None) -> str:
    """`text`, cleaned, on a single line, cut to `width` characters with an ellipsis."""
    line = " ".join(clean(text).split())
    if width is not None and len(line) > width:
        return f"{line[: max(width - 1, 0)].rstrip()}\N{HORIZONTAL ELLIPSIS}"
    return line
