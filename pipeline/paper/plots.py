"""Plots of the paper's tables: measured and printed averages, and the curves of Figure 2."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from common.files.atomic import replacing
from pipeline.paper.printed_tables import Cell, Panel, Table

matplotlib.use("Agg")  # no display is needed


def averages(path: Path, table: Table, measured: Mapping[str, Mapping[str, Cell]], scale: str) -> bool:
    """Plots the last average of every row as bars, printed and measured. Returns False if nothing was measured.

    Args:
        measured: cells by row and column.
    """
    name = next((column.name for column in reversed(table.columns) if column.name in ("avg", "glue_score")), None)
    if name is None or not any(name in cells for cells in measured.values()):
        return False
    rows = [row for row in table.rows if row.pretraining is not None]
    positions = np.arange(len(rows))
    figure = Figure(figsize=(8, 0.5 * len(rows) + 1.5), layout="constrained")
    axes = figure.subplots()
    for offset, label, values in (
        (-0.2, "paper", [row.cells.get(name) for row in rows]),
        (0.2, f"measured ({scale})", [measured.get(row.name, {}).get(name) for row in rows]),
    ):
        bars = axes.barh(positions + offset, [given[0] if given else 0.0 for given in values], 0.38, label=label)
        axes.bar_label(bars, [f"{given[0]:.1f}" if given else "none" for given in values], padding=3)
    axes.set_yticks(positions, [row.name for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("Avg (%)")
    axes.set_xlim(0, 110)
    axes.set_title(table.caption)
    axes.legend()
    _save(figure, path)
    return True


def curves(path: Path, panel: Panel, measured: Mapping[str, Sequence[tuple[int, float]]], scale: str) -> bool:
    """Plots held-out MLM accuracy over the steps, a line for each row. Returns False if nothing was measured."""
    if not any(measured.values()):
        return False
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, points in measured.items():
        if points:
            axes.plot(*zip(*points), label=name)
    axes.set_xlabel("step")
    axes.set_ylabel("held-out MLM accuracy (%)")
    axes.set_title(f"{panel.caption} (measured, {scale})")
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, path)
    return True


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")
