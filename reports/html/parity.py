"""Figures for the pages of cells, from their files of evidence: parity and graphs.

Owns which cells have such figures. Must not know how differences are taken, or judge them.
"""

from __future__ import annotations

from collections.abc import Mapping

from fixtures.errors import ConfigError
from fixtures.evidence.audit import CaptureAudit
from fixtures.evidence.cellrun import CellRun
from gates.files import CellFiles
from gates.parity.series import Series, series_of
from reports.html.figures import CellFigures, ParitySeries


def figures_of(runs: Mapping[str, CellRun], files: CellFiles) -> dict[str, CellFigures]:
    """What can be drawn of each cell: parity by step, where its reference's outputs can be read
    too, and its capture audit.
    """
    found = {}
    for key, run in runs.items():
        reference = runs.get(str(run.cell.reference)) if run.cell.reference else None
        series = _series(run, reference, files) if reference is not None else None
        parity = series and ParitySeries(differences=series.differences, band=series.band)
        graphs = _graphs(run, files)
        if parity is not None or graphs is not None:
            found[key] = CellFigures(parity=parity, graphs=graphs)
    return found


def _graphs(run: CellRun, files: CellFiles) -> CaptureAudit | None:
    try:
        return files.graphs(run)
    except ConfigError:
        return None


def _series(run: CellRun, reference: CellRun, files: CellFiles) -> Series | None:
    """None where there is nothing to draw; why not is the gate's to say."""
    try:
        outputs, other = files.outputs(run), files.outputs(reference)
        return series_of(outputs, other) if outputs and other else None
    except ConfigError:
        return None
