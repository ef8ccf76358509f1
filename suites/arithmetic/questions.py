"""Made arithmetic questions: a tally that goes up and down, with its steps as the answer.

Owns the questions and which of them are held out. Must not know: the model, torch.
Only the standard library, so that it runs wherever the training runs.

Usage: python -m suites.arithmetic.questions FILE [--count N] [--seed N]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

COUNT = 1000
SEED = 20261130
HELD_OUT_BYTES = 32
"""Of the 256 first bytes of a question's hash: those that no training question has."""

_NAMES = ("Ana", "Ben", "Eva", "Ida", "Jon", "Kim", "Leo", "Mia", "Noa", "Sam", "Tom", "Uma")
_THINGS = ("pens", "cups", "nuts", "pins", "keys", "maps", "eggs", "bags")
_STEPS = (2, 3, 4)
_LOWEST, _HIGHEST = 10, 99


class Question(NamedTuple):
    """A question and its worked answer, which ends in `#### N`."""

    question: str
    answer: str

    @property
    def held_out(self) -> bool:
        """Whether the question belongs to the test: decided by its text alone."""
        return hashlib.sha256(self.question.encode()).digest()[0] < HELD_OUT_BYTES


def questions(seed: int, *, held_out: bool) -> Iterator[Question]:
    """Endless questions for the test, or for the training: no text is in both."""
    chance = random.Random(seed)  # noqa: S311 - questions, no secrets
    while True:
        made = _question(chance)
        if made.held_out == held_out:
            yield made


def _question(chance: random.Random) -> Question:
    name, thing = chance.choice(_NAMES), chance.choice(_THINGS)
    tally = chance.randint(_LOWEST, _HIGHEST)
    story, steps = [f"{name} has {tally} {thing}."], []
    for _ in range(chance.choice(_STEPS)):
        change = _change(chance, tally)
        verb = "gets" if change > 0 else "loses"
        story.append(f"{name} {verb} {abs(change)} {thing}.")
        steps.append(f"{tally}{change:+d}={tally + change}")
        tally += change
    story.append(f"How many {thing}?")
    return Question(" ".join(story), "\n".join([*steps, f"#### {tally}"]))


def _change(chance: random.Random, tally: int) -> int:
    """A step that leaves the tally at two digits."""
    while True:
        change = chance.choice((-1, 1)) * chance.randint(1, 9)
        if _LOWEST <= tally + change <= _HIGHEST:
            return change


def held_out_questions(count: int, seed: int = SEED) -> list[Question]:
    """`count` different questions of the test, the same for equal arguments."""
    found = dict.fromkeys(islice(questions(seed, held_out=True), 2 * count))
    return list(found)[:count]


def main(arguments: list[str] | None = None) -> int:
    """Writes a file of test questions, a JSON object a line."""
    parser = argparse.ArgumentParser(prog="suites.arithmetic.questions", description=main.__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(arguments)
    rows = [json.dumps(made._asdict()) for made in held_out_questions(given.count, given.seed)]
    given.file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
