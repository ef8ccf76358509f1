"""What `buildkite-agent pipeline upload` makes of a text: variables in place of `$NAME`.

Owns: the grammar, after the description in buildkite/interpolate. A test must show that a
pipeline comes through unchanged, so every form that would change something is known here:
`$$` and `\\$` are a dollar sign, two backslashes stay two, `$(` stays, `$NAME` and `${NAME...}`
are replaced, and any other dollar sign within a text is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TOKEN = re.compile(
    r"(?P<backslashes>\\\\)|(?P<dollar>\\\$|\$\$)|(?P<shell>\$\()"
    r"|\$(?P<name>[^\W\d_]\w*)|\$\{(?P<braced>[^}]*)\}|(?P<last>\$\Z)|(?P<wrong>\$)"
)


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """Plain data with every text interpolated, keys too.

    Raises:
        ValueError: a text holds a dollar sign that begins nothing.
    """
    if isinstance(value, str):
        return _TOKEN.sub(lambda found: _replaced(found, variables), value)
    if isinstance(value, dict):
        return {
            interpolated(key, variables): interpolated(inner, variables)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [interpolated(inner, variables) for inner in value]
    return value


def _replaced(found: re.Match[str], variables: Mapping[str, str]) -> str:
    if found["wrong"]:
        raise ValueError(f"a dollar sign that begins nothing, at {found.start()}")
    if found["dollar"]:
        return "$"
    if found["name"]:
        return variables.get(found["name"], "")
    if found["braced"] is not None:
        return variables.get(re.split(r"\W", found["braced"])[0], "")
    return found[0]
