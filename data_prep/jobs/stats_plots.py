"""The plots of `python -m data_prep stats`."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from common.files.atomic import replacing
from data_prep.format.manifest import ShardManifest

matplotlib.use("Agg")  # no display is needed

_HISTOGRAMS = {
    "row_positions": ("Positions used in each row", "positions used", "rows"),
    "pair_lengths": ("Length of each pair", "tokens of a pair", "pairs"),
    "pairs_per_row": ("Pairs in each row", "pairs in a row", "rows"),
    "cut": ("Where A ends in each pair", "where A ends, in tenths of the pair", "pairs"),
    "sentences_per_document": ("Sentences in each document", "sentences of a document (from, doubling)", "documents"),
}
"""Title and labels of the plot of each histogram."""
_MANY_VALUES = ("row_positions", "pair_lengths")
PLOTS = (*(f"{name}.png" for name in _HISTOGRAMS), "piece_frequencies.png")
"""What `write_plots` writes."""


def write_plots(directory: Path, manifest: ShardManifest, histograms: dict[str, NDArray[np.int64]]) -> list[Path]:
    """Writes PNG files into `directory`, and returns their paths. `histograms`: the fields of `stats.Statistics`."""
    sentences = np.array(manifest.counts.sentences_per_document)
    written = []
    for name, labels in _HISTOGRAMS.items():
        histogram = {**histograms, "sentences_per_document": sentences}[name]
        figure, axes = _figure(*labels)
        if name in _MANY_VALUES:  # hundreds of values, whose bars would be thinner than a pixel
            axes.stairs(histogram, np.arange(len(histogram) + 1) - 0.5, fill=True)
            axes.set_yscale("symlog")
        else:
            axes.bar(np.arange(len(histogram)), histogram)
        if name == "sentences_per_document":
            lengths = ["0", *(f"{2 ** (i - 1)}" for i in range(1, len(sentences)))]
            axes.set_xticks(np.arange(len(sentences)), lengths, rotation=90)
        written.append(_save(figure, directory / f"{name}.png"))
    counts = np.sort(histograms["piece_counts"])[::-1]
    figure, axes = _figure("How often each piece occurs", "rank of the piece", "tokens")
    axes.loglog(np.arange(1, np.count_nonzero(counts) + 1), counts[counts > 0])
    return [*written, _save(figure, directory / "piece_frequencies.png")]


def _figure(title: str, x_label: str, y_label: str) -> tuple[Figure, matplotlib.axes.Axes]:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3)
    return figure, axes


def grouped_bars(path: Path, title: str, counts: dict[str, list[int]], x_label: str, y_label: str) -> Path:
    """Writes a plot of histograms side by side, by name. The bars are at 1, 2, ...; the count at 0 is left out."""
    figure, axes = _figure(title, x_label, y_label)
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
