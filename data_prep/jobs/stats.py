"""Computes statistics of a shard set: prints tables, and writes plots as PNG files.

python -m data_prep stats DIR [--out DIR/stats]
mpirun -n 8 python -m data_prep stats DIR       (the ranks share the shards)

Masks are sampled in training. `python -m pipeline.show DIR` prints rows with masks.
"""

import argparse
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from common.errors import UserError
from common.files import outputs
from data_prep.format import shards
from data_prep.format.shard_manifest import ShardFile, ShardManifest
from data_prep.mpi import executor
from data_prep.text.vocabulary import UNK_ID, Vocabulary

matplotlib.use("Agg")  # no display is needed

MAX_FREQUENT = 20
_HISTOGRAMS = {
    "row_positions": ("Positions used in each row", "positions used", "rows"),
    "pair_lengths": ("Length of each pair", "tokens of a pair", "pairs"),
    "pairs_per_row": ("Pairs in each row", "pairs in a row", "rows"),
    "cut": ("Where A ends in each pair", "where A ends, in tenths of the pair", "pairs"),
    "sentences_per_document": ("Sentences in each document", "sentences of a document (from, doubling)", "documents"),
}
"""Title and labels of the plot of each histogram."""
COMMAND = "data_prep stats"
PLOTS = (*(f"{name}.png" for name in _HISTOGRAMS), "piece_frequencies.png")
"""The files that `write_plots` writes."""


@dataclass
class Statistics:
    """Histograms over all rows. Each is int64, and indexed by the value that it counts.

    Attributes:
        piece_counts: (V,), tokens by piece.
        row_positions: rows by number of positions used.
        pair_lengths: pairs by number of tokens.
        pairs_per_row: rows by number of pairs.
        cut: (10,), pairs with a B by the tenth of the pair in which A ends.
    """

    piece_counts: NDArray[np.int64]
    row_positions: NDArray[np.int64]
    pair_lengths: NDArray[np.int64]
    pairs_per_row: NDArray[np.int64]
    cut: NDArray[np.int64]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `python -m data_prep stats`."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="shard set that `shards` wrote")
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory to write the plots to (default: DIR/stats)")
    parser.add_argument("--overwrite", action="store_true", help="replace another directory at --out")


def run(args: argparse.Namespace) -> None:
    """Prints the tables and writes the plots."""
    directory: Path = args.directory
    out: Path = args.out or directory / "stats"
    with executor.launch() as ranks:
        manifest = ranks.on_root(lambda: shards.open_shards(directory).manifest)
        ranks.on_root(lambda: outputs.check(out, COMMAND, overwrite=args.overwrite))
        files = manifest.shards()
        statistics = ranks.run(
            files,
            lambda _, file: shard_statistics(directory, file, manifest),
            None,
            sizes=[file.bytes for file in files],
            description="stats",
        )
        ranks.on_root(lambda: _report(out, directory, manifest, statistics, args.overwrite))


def shard_statistics(directory: Path, file: ShardFile, manifest: ShardManifest) -> Statistics:
    """Computes the statistics of one shard. UserError: a row of it cannot be."""
    try:
        rows = shards.read_checked(directory / file.name, file.rows, manifest)
    except UserError as error:
        raise UserError(f"{error}; make the shards of {directory} again") from None
    parts, lengths = rows.parts, rows.parts.total()  # (P,)
    partnered = parts.b > 0
    tenths = 10 * (parts.lead + parts.a)[partnered] // lengths[partnered]
    return Statistics(
        piece_counts=np.bincount(rows.tokens, minlength=manifest.vocabulary_size),
        row_positions=np.bincount(rows.add_up(parts.positions()), minlength=manifest.max_seq_length + 1),
        pair_lengths=np.bincount(lengths, minlength=manifest.max_seq_length + 1),
        pairs_per_row=np.bincount(rows.pairs, minlength=manifest.counts.max_pairs_in_row + 1),
        cut=np.bincount(tenths, minlength=10),
    )


def _report(out: Path, directory: Path, manifest: ShardManifest, statistics: list[Statistics], overwrite: bool) -> None:
    """On rank 0: adds up the statistics of the shards, prints the tables, writes the plots."""
    vocabulary = shards.read_vocabulary(directory, manifest)
    total = Statistics(*(sum(parts) for parts in zip(*(vars(part).values() for part in statistics))))
    print(table(f"{directory}: {manifest.split} split", summary(manifest, total, vocabulary)))
    print(table("most frequent pieces", frequent_pieces(total, vocabulary)))
    with outputs.making(out, COMMAND, overwrite=overwrite) as place:
        write_plots(place, manifest, total)
    print(f"stats: wrote {', '.join(PLOTS)} to {out}")
    print("masks are sampled in training: `python -m pipeline.show DIR` prints rows with masks")


def mean_of(histogram: NDArray[np.int64]) -> float:
    """Returns the mean of the values that a histogram counts; 0.0 if it is empty."""
    return float((np.arange(len(histogram)) * histogram).sum() / max(1, histogram.sum()))


def words_of(piece_counts: NDArray[np.int64], vocabulary: Vocabulary) -> int:
    """Returns the number of words: tokens whose piece starts a word."""
    starts = np.array([spelling.startswith(" ") for spelling in vocabulary.spellings])
    return int(piece_counts[starts].sum())


def summary(manifest: ShardManifest, total: Statistics, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Returns the rows of the main table."""
    counts = manifest.counts
    tokens = int(total.piece_counts.sum())
    unused = int((total.piece_counts == 0).sum())
    different = counts.documents - counts.removed
    kept = different - counts.documents_left_out
    return [
        (
            "documents",
            f"{counts.documents:,} ({counts.documents_left_out:,} left out as too short, "
            f"{counts.removed:,} as duplicates or overlaps)",
        ),
        ("sentences a document", f"{counts.sentences / max(1, different):,.1f}"),
        ("tokens a document", f"{tokens / max(1, kept):,.1f}"),
        ("tokens", f"{tokens:,}"),
        ("pieces a word", f"{tokens / max(1, words_of(total.piece_counts, vocabulary)):.3f}"),
        ("bytes a token", f"{counts.text_bytes / max(1, tokens + counts.tokens_left_out):.2f}"),
        ("unknown tokens", f"{int(total.piece_counts[UNK_ID]):,} ({total.piece_counts[UNK_ID] / max(1, tokens):.4%})"),
        ("pieces never used", f"{unused:,} of {len(vocabulary):,}"),
        ("pairs", f"{int(total.pair_lengths.sum()):,} of {mean_of(total.pair_lengths):.1f} tokens on average"),
        ("pairs without B", f"{counts.pairs_without_b:,}"),
        ("rows", f"{counts.rows:,} of {manifest.max_seq_length} positions in {len(manifest.shards())} shards"),
        ("pairs a row", f"{mean_of(total.pairs_per_row):.2f}, at most {counts.max_pairs_in_row}"),
        ("fill", f"{mean_of(total.row_positions) / manifest.max_seq_length:.2%}"),
    ]


def frequent_pieces(total: Statistics, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Returns the most frequent pieces with their counts and percentages."""
    tokens = max(1, int(total.piece_counts.sum()))
    order = np.argsort(-total.piece_counts, kind="stable")[:MAX_FREQUENT].tolist()
    return [
        (vocabulary.pieces[i], f"{total.piece_counts[i]:,} ({total.piece_counts[i] / tokens:.2%})")
        for i in order
        if total.piece_counts[i]
    ]


def table(title: str, rows: list[tuple[Any, Any]]) -> str:
    """Formats a title and two aligned columns."""
    width = max((len(str(name)) for name, _ in rows), default=0)
    return "\n".join([title, *(f"  {name!s:<{width}}  {value}" for name, value in rows), ""])


def write_plots(directory: Path, manifest: ShardManifest, total: Statistics) -> None:
    """Writes the PNG files `PLOTS` into `directory`."""
    sentences = np.array(manifest.counts.sentences_per_document)
    for name, labels in _HISTOGRAMS.items():
        histogram = {**vars(total), "sentences_per_document": sentences}[name]
        with _plotting(directory / f"{name}.png", *labels) as axes:
            # Of lengths there are hundreds, whose bars would be thinner than a pixel.
            axes.stairs(histogram, np.arange(len(histogram) + 1) - 0.5, fill=True)
            if name in ("row_positions", "pair_lengths"):
                axes.set_yscale("symlog")
            elif name == "sentences_per_document":
                axes.set_xticks(
                    np.arange(len(sentences)), [f"{1 << i >> 1}" for i in range(len(sentences))], rotation=90
                )
    counts = np.sort(total.piece_counts[total.piece_counts > 0])[::-1]
    with _plotting(
        directory / "piece_frequencies.png", "How often each piece occurs", "rank of the piece", "tokens"
    ) as axes:
        axes.loglog(np.arange(1, len(counts) + 1), counts)


@contextlib.contextmanager
def _plotting(path: Path, title: str, x_label: str, y_label: str) -> Iterator[matplotlib.axes.Axes]:
    """Yields the axes of a plot, and writes it to `path`."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    axes.grid(alpha=0.3)
    yield axes
    figure.savefig(path, dpi=120)
