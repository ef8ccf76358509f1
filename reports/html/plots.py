"""The parity plot: differences by step against the noise band.

Owns: scales and paths of an SVG that is WIDTH by HEIGHT. Must not know: HTML.
"""

from __future__ import annotations

from typing import NamedTuple

from reports.html.figures import ParitySeries

WIDTH, HEIGHT = 600, 160


class ParityPlot(NamedTuple):
    """SVG points of the line and of the band's outline; `top` in nats is the upper edge."""

    line: str
    band: str
    top: float
    steps: int
    outside: int
    noisy: bool
    """Whether the reference's own repeats differ at all."""


def parity_plot(series: ParitySeries) -> ParityPlot:
    """The plot of one cell, from zero to the largest value that there is."""
    top = max((*series.differences, *series.band)) or 1.0
    last = max(len(series.differences) - 1, 1)

    def point(step: int, value: float) -> str:
        return f"{step / last * WIDTH:.1f},{HEIGHT - max(value, 0.0) / top * HEIGHT:.1f}"

    line = " ".join(point(step, value) for step, value in enumerate(series.differences))
    upper = [point(step, value) for step, value in enumerate(series.band)]
    band = " ".join((f"0,{HEIGHT}", *upper, point(len(series.band) - 1, 0.0)))
    beyond = sum(d > b for d, b in zip(series.differences, series.band, strict=True))
    return ParityPlot(line, band, top, len(series.differences), beyond, max(series.band) > 0)
