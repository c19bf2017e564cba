"""The plots of the paper's tables: averages beside the paper's, and the curves of Figure 2."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from data_prep.atomic import replacing
from pipeline.tasks.paper import Figures, Panel, Table

matplotlib.use("Agg")  # no display is needed


def averages(path: Path, table: Table, measured: Mapping[str, Mapping[str, Figures]], scale: str) -> bool:
    """Bars of the last average of every row, the paper's and the measured one. False if nothing was measured.

    Args:
        measured: figures by row and column.
    """
    name = next((column.name for column in reversed(table.columns) if column.name in ("avg", "glue_score")), None)
    if name is None or not any(name in figures for figures in measured.values()):
        return False
    rows = [row for row in table.rows if row.pretraining is not None]
    places = np.arange(len(rows))
    figure = Figure(figsize=(8, 0.5 * len(rows) + 1.5), layout="constrained")
    axes = figure.subplots()
    for offset, label, values in (
        (-0.2, "paper", [row.figures.get(name) for row in rows]),
        (0.2, f"measured ({scale})", [measured.get(row.name, {}).get(name) for row in rows]),
    ):
        bars = axes.barh(places + offset, [given[0] if given else 0.0 for given in values], 0.38, label=label)
        axes.bar_label(bars, [f"{given[0]:.1f}" if given else "none" for given in values], padding=3)
    axes.set_yticks(places, [row.name for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("Avg (%)")
    axes.set_xlim(0, 110)
    axes.set_title(table.caption)
    axes.legend()
    _save(figure, path)
    return True


def curves(path: Path, panel: Panel, measured: Mapping[str, Sequence[tuple[int, float]]], scale: str) -> bool:
    """Held-out MLM accuracy over the steps, a line a row. False if nothing was measured."""
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
