"""Text on its way into a pipeline file: as YAML, past Buildkite's interpolation, unchanged.

Owns: escaping. Must not know: steps.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from reports.text import one_line

_BEFORE_A_DOLLAR = re.compile(r"\\+(?=\$)")


class _Dumper(yaml.SafeDumper):
    """Plain data, each value written where it stands."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 - the signature is PyYAML's
        return True


def to_yaml(data: dict[str, Any] | list[Any]) -> str:
    """`data` as YAML that `buildkite-agent pipeline upload` reads as exactly these texts.

    The upload puts variables of its environment in place of `$NAME`; `$$` is a dollar sign.
    """
    # Pure ASCII: PyYAML writes some line separators bare, and reads them back as spaces.
    return yaml.dump(_escaped(data), Dumper=_Dumper, sort_keys=False, width=2**16)


def shown(text: str, width: int = 80) -> str:
    """Text that a pull request may control, fit for a label.

    A backslash before a dollar sign is dropped: the two together can't be escaped.
    """
    return _BEFORE_A_DOLLAR.sub("", one_line(text, width))


def _escaped(value: Any) -> Any:  # noqa: ANN401 - any plain data goes through
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {_escaped(key): _escaped(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(inner) for inner in value]
    return value
