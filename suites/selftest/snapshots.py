"""Reports compared with what they looked like before.

`GRAPHGATE_SNAPSHOTS=write pytest ...` writes the files anew; look at their diff before it
is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

SNAPSHOTS = Path(__file__).with_name("corpus") / "reports"


def is_as_before(name: str, text: str) -> bool:
    """Whether `text` is the snapshot's; a missing one is not written without being asked."""
    path = SNAPSHOTS / name
    if os.environ.get("GRAPHGATE_SNAPSHOTS") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path.exists() and path.read_text(encoding="utf-8") == text
