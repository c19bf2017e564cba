"""The plots of `python -m data_prep stats`."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from common.files.atomic import replacing
from data_prep.format.shards import ShardManifest

matplotlib.use("Agg")  # no display is needed

PLOTS = (
    *("row_positions.png", "pair_lengths.png", "pairs_per_row.png", "cut.png", "sentences_per_document.png"),
    "piece_frequencies.png",
)
"""What `write_plots` writes."""


def write_plots(directory: Path, manifest: ShardManifest, histograms: dict[str, NDArray[np.int64]]) -> list[Path]:
    """Writes PNG files into `directory`, and returns their paths. `histograms`: the fields of `stats.Statistics`."""
    cut, ranked = histograms["cut"], np.sort(histograms["piece_counts"])[::-1]
    ranked = ranked[ranked > 0]
    sentences = manifest.counts.sentences_per_document
    labels = ["0", *(f"{2 ** (i - 1)}" for i in range(1, len(sentences)))]
    written = [
        _bars(
            directory / "row_positions.png",
            "Positions used in each row",
            histograms["row_positions"],
            "positions used",
            "rows",
            log=True,
        ),
        _bars(
            directory / "pair_lengths.png",
            "Length of each pair",
            histograms["pair_lengths"],
            "tokens of a pair",
            "pairs",
            log=True,
        ),
        _bars(
            directory / "pairs_per_row.png", "Pairs in each row", histograms["pairs_per_row"], "pairs in a row", "rows"
        ),
        _bars(directory / "cut.png", "Where A ends in each pair", cut, "where A ends, in tenths of the pair", "pairs"),
        _bars(
            directory / "sentences_per_document.png",
            "Sentences in each document",
            np.array(sentences),
            "sentences of a document (from, doubling)",
            "documents",
            labels=labels,
        ),
    ]
    figure, axes = _figure("How often each piece occurs", "rank of the piece", "tokens")
    axes.loglog(np.arange(1, len(ranked) + 1), ranked)
    written.append(_save(figure, directory / "piece_frequencies.png"))
    return written


def _figure(title: str, x_label: str, y_label: str) -> tuple[Figure, matplotlib.axes.Axes]:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3)
    return figure, axes


def _bars(
    path: Path,
    title: str,
    histogram: NDArray[np.int64],
    x_label: str,
    y_label: str,
    *,
    log: bool = False,
    labels: list[str] | None = None,
) -> Path:
    figure, axes = _figure(title, x_label, y_label)
    if log:  # hundreds of values, whose bars would be thinner than a pixel
        axes.stairs(histogram, np.arange(len(histogram) + 1) - 0.5, fill=True)
        axes.set_yscale("symlog")
    else:
        axes.bar(np.arange(len(histogram)), histogram)
    if labels is not None:
        axes.set_xticks(np.arange(len(histogram)), labels, rotation=90)
    return _save(figure, path)


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
