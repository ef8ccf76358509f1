"""What recorded evidence must not hold: the folders of the machine that it came from."""

from __future__ import annotations

import re

_MACHINE_PATH = re.compile(r"/(home|tmp|root|work)/")


def machine_path(text: str) -> str | None:
    """The first path of a machine in `text`, or None."""
    found = _MACHINE_PATH.search(text)
    return text[found.start() : found.start() + 60] if found else None
