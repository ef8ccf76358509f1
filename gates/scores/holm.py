"""Many tests, one alpha: Holm's step-down procedure.

Owns: adjusted p-values. Must not know: which tests they are.
"""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values in the given order: reject where one is at or under alpha.

    The probability of one false rejection or more is at most alpha, whatever ties the tests
    together. Source: Holm 1979, Scandinavian Journal of Statistics 6.
    """
    count = len(p_values)
    ranked = sorted(range(count), key=lambda index: (p_values[index], index))
    adjusted = [1.0] * count
    running = 0.0
    for rank, index in enumerate(ranked):
        running = max(running, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = running
    return tuple(adjusted)
