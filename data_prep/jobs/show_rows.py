"""Prints the counts of a shard set, and rows of it as text and pieces, part by part.

    python -m data_prep show DIR [-n 3]

It prints what a row stores. Training adds [CLS], [SEP], masks, and the swap of A and B when it reads a row.
"""

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path

from common.command_line import positive
from data_prep.format import shards
from data_prep.format.shard_manifest import ShardManifest
from data_prep.text.vocabulary import Vocabulary

WIDTH = 110


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `python -m data_prep show`."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="shard set that `shards` wrote")
    parser.add_argument("-n", type=positive, default=3, metavar="N", help="number of rows (default: %(default)s)")


def run(args: argparse.Namespace) -> None:
    """Prints the counts, and `args.n` rows, which are spread over the set."""
    rows = shards.open_shards(args.directory)
    vocabulary = shards.read_vocabulary(args.directory, rows.manifest)
    print(f"{args.directory}: {rows.manifest.split} split")
    print(*(f"  {name:<20}  {value}" for name, value in summary(rows.manifest).items()), "", sep="\n")
    wanted = min(len(rows), args.n)
    for index in (len(rows) * number // wanted for number in range(wanted)):
        print("\n".join(describe_row(index, rows.row(index), rows.manifest.max_seq_length, vocabulary)))


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


def describe_row(index: int, row: shards.ShardRow, max_seq_length: int, vocabulary: Vocabulary) -> Iterator[str]:
    """Yields the lines that show one row."""
    used = int(row.parts.positions().sum())
    count = len(row.documents)
    yield f"row {index}: {count} pair{'s' * (count != 1)}, {used} of {max_seq_length} positions"
    start = 0
    for pair, (*lengths, document) in enumerate(zip(*row.parts, row.documents)):
        lead, a, b, trail = lengths
        partner = f"B {b + trail} tokens" if b else "no B"
        yield f"  pair {pair}, document {document}: A {lead + a} tokens, {partner}"
        for name, length in zip(("lead", "A", "B", "trail"), lengths):
            ids = row.tokens[start : start + length].tolist()
            start += length
            if ids:
                yield paragraph(f"    {name:<5} ", vocabulary.decode(ids))
                yield paragraph("          ", " ".join(vocabulary.pieces[i] for i in ids))
    yield ""


def paragraph(head: str, text: str) -> str:
    """Wraps `text`, with `head` before the first line and equal indentation before the others."""
    return textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False)
