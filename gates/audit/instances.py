"""Two instantiations of one kernel template: in which template arguments do they differ?

Owns reading literals (flags and integers) out of mangled names. Must not know what they mean:
the names of template parameters are in nobody's binary.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

_TOKEN = re.compile(
    r"L(?P<type>[a-z])(?P<value>n?\d+)E|(?P<other>[ST][0-9A-Z]*_|S[a-z])|(?P<length>\d{1,3})|(?P<mark>.)"
)
_KINDS = {"b": "flag"}
_MOST = 4


class _Literal(NamedTuple):
    template: str
    place: str
    value: str


def told_apart(mine: str, theirs: str) -> str:
    """`flag 1 of Template is false (step: true)` for the literals that differ, mangled names.

    Places count from 1, flags and integers apart. "another one" where more than literals differ.
    """
    here, there = _literals(mine), _literals(theirs)
    same = [one[:2] for one in here] == [one[:2] for one in there]
    differing = [(a, b) for a, b in zip(here, there, strict=False) if a != b] if same else []
    if not differing:
        return "another one"
    told = [f"{a.place} of {a.template} is {a.value} (step: {b.value})" for a, b in differing]
    rest = f" and {len(told) - _MOST} more" if len(told) > _MOST else ""
    return ", ".join(told[:_MOST]) + rest


def _literals(mangled: str) -> list[_Literal]:
    """The literals among the template arguments, in order."""
    found: list[_Literal] = []
    open_: list[str] = []
    counts: Counter[tuple[int, str]] = Counter()
    at, last, opened = 0, "", 0
    places: list[int] = []
    while match := _TOKEN.match(mangled, at):
        at = match.end()
        if match["type"]:
            kind = _KINDS.get(match["type"], "integer")
            scope = places[-1] if places else 0
            counts[scope, kind] += 1
            template = next((name for name in reversed(open_) if name), "the kernel")
            value = match["value"].replace("n", "-")
            shown = ("false", "true")[value != "0"] if kind == "flag" else value
            found.append(_Literal(template, f"{kind} {counts[scope, kind]}", shown))
        elif match["length"]:
            last, at = mangled[at : at + int(match["length"])], at + int(match["length"])
        elif match["other"]:
            last = ""
        elif match["mark"] in "INJX":
            opened += 1
            open_.append(last if match["mark"] == "I" else "")
            places.append(opened)
            last = ""
        elif match["mark"] == "E" and open_:
            open_.pop()
            places.pop()
            last = ""
    return found
