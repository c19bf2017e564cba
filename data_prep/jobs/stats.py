"""Prints what a shard set holds, as its manifest has counted it.

    python -m data_prep stats DIR

Masks are sampled in training. `python -m pipeline.show DIR` prints rows with masks.
"""

import argparse
from pathlib import Path

from data_prep.format.shard_manifest import ShardManifest, read_manifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `python -m data_prep stats`."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="shard set that `shards` wrote")


def run(args: argparse.Namespace) -> None:
    """Prints the table. UserError: there are no shards."""
    manifest = read_manifest(args.directory)
    print(f"{args.directory}: {manifest.split} split")
    print(*(f"  {name:<20}  {value}" for name, value in summary(manifest).items()), sep="\n")


def summary(manifest: ShardManifest) -> dict[str, str]:
    """Returns the counts of a shard set by their names, for people."""
    counts = manifest.counts
    tokens, different = max(1, counts.tokens), counts.documents - counts.removed
    kept = different - counts.documents_left_out
    return {
        "documents": f"{counts.documents:,} ({counts.documents_left_out:,} left out as too short, "
        f"{counts.removed:,} as duplicates or overlaps)",
        "sentences a document": f"{counts.sentences / max(1, different):,.1f}",
        "tokens a document": f"{counts.tokens / max(1, kept):,.1f}",
        "tokens": f"{counts.tokens:,}",
        "unknown tokens": f"{counts.unknown_tokens:,} ({counts.unknown_tokens / tokens:.4%})",
        "bytes a token": f"{counts.text_bytes / (tokens + counts.tokens_left_out):.2f}",
        "pairs": f"{counts.pairs:,} of {counts.tokens / max(1, counts.pairs):.1f} tokens on average",
        "pairs without B": f"{counts.pairs_without_b:,}",
        "rows": f"{counts.rows:,} of {manifest.max_seq_length} positions in {len(manifest.shards())} shards",
        "pairs a row": f"{counts.pairs / max(1, counts.rows):.2f}, at most {counts.max_pairs_in_row}",
        "fill": f"{counts.fill:.2%}",
    }
