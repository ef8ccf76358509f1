"""Figures of parity for the pages of cells, from evidence.

Owns which cells have such figures. Must not know how differences are taken, or judge them.
"""

from __future__ import annotations

from collections.abc import Mapping

from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import CellRun
from gates.files import CellFiles
from gates.parity.series import Series, series_of
from reports.html.figures import CellFigures, ParitySeries


def figures_of(runs: Mapping[str, CellRun], files: CellFiles) -> dict[str, CellFigures]:
    """Parity by step of every cell whose outputs and whose reference's can be read."""
    found = {}
    for key, run in runs.items():
        reference = runs.get(str(run.cell.reference)) if run.cell.reference else None
        series = _series(run, reference, files) if reference is not None else None
        if series is not None:
            parity = ParitySeries(differences=series.differences, band=series.band)
            found[key] = CellFigures(parity=parity)
    return found


def _series(run: CellRun, reference: CellRun, files: CellFiles) -> Series | None:
    """None where there is nothing to draw; why not is the gate's to say."""
    try:
        outputs, other = files.outputs(run), files.outputs(reference)
        return series_of(outputs, other) if outputs and other else None
    except ConfigError:
        return None
