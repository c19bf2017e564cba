"""Prints statistics of a shard set.

python -m data_prep stats DIR
mpirun -n 8 python -m data_prep stats DIR       (the ranks share the shards)

Masks are sampled in training. `python -m pipeline.show DIR` prints rows with masks.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from data_prep.format import shards
from data_prep.format.shard_manifest import ShardFile, ShardManifest
from data_prep.mpi import executor
from data_prep.text.vocabulary import UNK_ID, Vocabulary

MAX_FREQUENT = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `python -m data_prep stats`."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="shard set that `shards` wrote")


def run(args: argparse.Namespace) -> None:
    """Prints the tables."""
    directory: Path = args.directory
    with executor.launch() as ranks:
        manifest = ranks.on_root(lambda: shards.open_shards(directory).manifest)
        files = manifest.shards()
        pieces = ranks.run(
            files,
            lambda _, file: count_pieces(directory, file, manifest),
            None,
            sizes=[file.bytes for file in files],
            description="stats",
        )

        def report() -> None:
            vocabulary = shards.read_vocabulary(directory, manifest)
            piece_counts = np.sum(pieces, axis=0)  # (V,)
            print(table(f"{directory}: {manifest.split} split", summary(manifest, piece_counts, vocabulary)))
            print(table("most frequent pieces", frequent_pieces(piece_counts, vocabulary)))
            print("masks are sampled in training: `python -m pipeline.show DIR` prints rows with masks")

        ranks.on_root(report)


def count_pieces(directory: Path, file: ShardFile, manifest: ShardManifest) -> NDArray[np.int64]:
    """Returns how often each piece occurs in one shard, int64[V]. UserError: a row of it cannot be."""
    try:
        rows = shards.read_checked(directory / file.name, file.rows, manifest)
    except UserError as error:
        raise UserError(f"{error}; make the shards of {directory} again") from None
    return np.bincount(rows.tokens, minlength=manifest.vocabulary_size)


def summary(manifest: ShardManifest, piece_counts: NDArray[np.int64], vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Returns the rows of the main table."""
    counts = manifest.counts
    tokens, unknown = max(1, counts.tokens), int(piece_counts[UNK_ID])
    unused = int((piece_counts == 0).sum())
    starts = np.array([spelling.startswith(" ") for spelling in vocabulary.spellings])  # (V,)
    different = counts.documents - counts.removed
    kept = different - counts.documents_left_out
    return [
        (
            "documents",
            f"{counts.documents:,} ({counts.documents_left_out:,} left out as too short, "
            f"{counts.removed:,} as duplicates or overlaps)",
        ),
        ("sentences a document", f"{counts.sentences / max(1, different):,.1f}"),
        ("tokens a document", f"{counts.tokens / max(1, kept):,.1f}"),
        ("tokens", f"{counts.tokens:,}"),
        ("pieces a word", f"{tokens / max(1, int(piece_counts[starts].sum())):.3f}"),
        ("bytes a token", f"{counts.text_bytes / (tokens + counts.tokens_left_out):.2f}"),
        ("unknown tokens", f"{unknown:,} ({unknown / tokens:.4%})"),
        ("pieces never used", f"{unused:,} of {len(vocabulary):,}"),
        ("pairs", f"{counts.pairs:,} of {counts.tokens / max(1, counts.pairs):.1f} tokens on average"),
        ("pairs without B", f"{counts.pairs_without_b:,}"),
        ("rows", f"{counts.rows:,} of {manifest.max_seq_length} positions in {len(manifest.shards())} shards"),
        ("pairs a row", f"{counts.pairs / max(1, counts.rows):.2f}, at most {counts.max_pairs_in_row}"),
        ("fill", f"{counts.fill:.2%}"),
    ]


def frequent_pieces(piece_counts: NDArray[np.int64], vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Returns the most frequent pieces with their counts and percentages."""
    order = np.argsort(-piece_counts, kind="stable")[:MAX_FREQUENT].tolist()
    shares = piece_counts / max(1, int(piece_counts.sum()))  # (V,)
    return [(vocabulary.pieces[i], f"{piece_counts[i]:,} ({shares[i]:.2%})") for i in order if piece_counts[i]]


def table(title: str, rows: list[tuple[str, str]]) -> str:
    """Formats a title and two aligned columns."""
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in rows), ""])
