"""The plots of `python -m data_prep stats`."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from data_prep.atomic import replacing
from data_prep.shards import Manifest

matplotlib.use("Agg")  # no display is needed


def write_plots(directory: Path, manifest: Manifest, histograms: dict[str, NDArray[np.int64]]) -> list[Path]:
    """Writes one PNG a subject into `directory`; `histograms` are the fields of `report.Statistics`."""
    cut, ranked = histograms["cut"], np.sort(histograms["piece_counts"])[::-1]
    ranked = ranked[ranked > 0]
    sentences = manifest.counts.sentences_per_document
    labels = ["0", *(f"{2 ** (i - 1)}" for i in range(1, len(sentences)))]
    written = [
        _bars(directory / "row_positions.png", histograms["row_positions"], "positions used", "rows", log=True),
        _bars(directory / "pair_lengths.png", histograms["pair_lengths"], "tokens of a pair", "pairs", log=True),
        _bars(directory / "pairs_per_row.png", histograms["pairs_per_row"], "pairs in a row", "rows"),
        _bars(directory / "cut.png", cut, "where A ends, in tenths of the pair", "pairs"),
        _bars(
            directory / "sentences_per_document.png",
            np.array(sentences),
            "sentences of a document (from, doubling)",
            "documents",
            labels=labels,
        ),
    ]
    figure, axes = _figure("rank of the piece", "tokens")
    axes.loglog(np.arange(1, len(ranked) + 1), ranked)
    written.append(_save(figure, directory / "piece_frequencies.png"))
    return written


def _figure(x_label: str, y_label: str) -> tuple[Figure, matplotlib.axes.Axes]:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3)
    return figure, axes


def _bars(
    path: Path,
    histogram: NDArray[np.int64],
    x_label: str,
    y_label: str,
    *,
    log: bool = False,
    labels: list[str] | None = None,
) -> Path:
    figure, axes = _figure(x_label, y_label)
    if log:  # by the hundred: separate bars would be thinner than a pixel
        axes.stairs(histogram, np.arange(len(histogram) + 1) - 0.5, fill=True)
        axes.set_yscale("symlog")
    else:
        axes.bar(np.arange(len(histogram)), histogram)
    if labels is not None:
        axes.set_xticks(np.arange(len(histogram)), labels, rotation=90)
    return _save(figure, path)


def grouped_bars(path: Path, counts: dict[str, list[int]], x_label: str, y_label: str) -> Path:
    """Writes histograms side by side, by name: their bars stand at 1, 2, ..., what they count at 0 is left out."""
    figure, axes = _figure(x_label, y_label)
    width = 0.8 / len(counts)
    for number, (name, histogram) in enumerate(counts.items()):
        places = np.arange(1, len(histogram)) + (number - (len(counts) - 1) / 2) * width
        axes.bar(places, histogram[1:], width, label=name)
        axes.set_xticks(np.arange(1, len(histogram)))
    axes.legend()
    return _save(figure, path)


def _save(figure: Figure, path: Path) -> Path:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")
    return path
