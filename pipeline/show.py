"""Prints rows as training reads them, with swaps and masks, or statistics of many masks.

    python -m pipeline.show DIR [-n 3] [--row N] [--epoch 0] [--seed 0] [--objective {sop,nsp,mlm}]
    python -m pipeline.show DIR --masks 1000 [--out DIR/stats]

`python -m data_prep show` prints what a row stores. This command prints what training samples when it reads the row.
That depends on seed, epoch and row. With --masks N it counts over N rows: the lengths of n-grams as sampled and as
realised, the predicted tokens and their replacements, and the swapped pairs. It also writes a plot to --out.
"""

import argparse
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.command_line import Parser, entry_point
from common.errors import UserError
from common.files import owned
from data_prep.format.manifest import read_manifest
from data_prep.format.shards import read_vocabulary
from data_prep.jobs import show, stats
from data_prep.text.vocabulary import MASK_ID, Vocabulary
from model.layers.heads import IGNORED_LABEL
from pipeline.data.collate import Batch, Collator
from pipeline.data.masking import Spans
from pipeline.data.mixture import open_mixture
from pipeline.settings import declare
from pipeline.settings.pretrain import MaskingFlags

PLOT = "ngrams.png"
LEGEND = (
    "[CLS] and [SEP] are added. Predicted pieces stand in braces: {piece} is shown to the model as [MASK], "
    "{piece > other} as another piece, {piece =} unchanged."
)
LABEL_NAMES = {
    "sop": ("in order", "swapped"),
    "nsp": ("B follows A", "B is of another document"),
    "mlm": ("no sentence loss", "no sentence loss"),
}
"""By objective, what the labels 0 and 1 mean."""


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.show", description="Prints rows as training reads them.")
    show.add_arguments(p)
    p.add_argument("--epoch", type=int, default=0, metavar="N", help="epoch whose masks and swaps are shown (0)")
    p.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the run (0)")
    p.add_argument("--objective", choices=tuple(LABEL_NAMES), default="sop", help="sentence loss (sop)")
    declare.add_flags(p, MaskingFlags)
    p.add_argument("--masks", type=int, metavar="N", help="print statistics of the masks of N rows instead of rows")
    p.add_argument("--out", type=Path, metavar="DIR", help="with --masks: directory of the plot (default: DIR/stats)")
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Prints rows or statistics. UserError: there is no such row, epoch, seed or directory."""
    args = parser().parse_all(argv)
    for name in ("epoch", "seed"):
        if not 0 <= getattr(args, name) < 2**63:
            raise UserError(f"--{name} is {getattr(args, name)}; give one from 0 to 2**63 - 1")
    if args.masks is not None and args.masks < 1:
        raise UserError(f"--masks is {args.masks}; give the number of rows to count, 1 or more")
    masking = declare.from_namespace(MaskingFlags, args).masking_settings()
    vocabulary = read_vocabulary(args.directory, read_manifest(args.directory))
    mixture = open_mixture([args.directory], [1], vocabulary.continues_word, args.objective, args.seed, masking)
    (collator,) = mixture.collators
    args.n = args.n if args.masks is None else args.masks
    rows = show.rows_wanted(args, len(collator.shards))
    if args.masks is not None:
        _print_statistics(args, collator, rows)
        return
    print(textwrap.fill(LEGEND, show.WIDTH) + "\n")
    for index in rows:
        print("\n".join(describe_row(collator, index, args.epoch, vocabulary)))


def _print_statistics(args: argparse.Namespace, collator: Collator, rows: Sequence[int]) -> None:
    """Prints the statistics of the masks of `rows` and plots the lengths of their n-grams."""
    out = args.out or args.directory / "stats"
    owned.check_addable(out, [PLOT])
    counted = count_masks(collator, args.epoch, rows)
    print(stats.table(f"{args.directory}: masks of epoch {args.epoch}, seed {args.seed}", counted.table))
    counts = {"sampled": counted.sampled, "realised": counted.realised}
    with owned.adding_files(out, "pipeline.show") as place:
        stats.grouped_bars(place / PLOT, "Lengths of the predicted n-grams", counts, "words of an n-gram", "n-grams")
    print(f"wrote {out / PLOT}")


def describe_row(collator: Collator, index: int, epoch: int, vocabulary: Vocabulary) -> Iterator[str]:
    """The lines that show row `index` of `epoch`."""
    batch = collator.read([epoch], [index])
    pieces = shown_pieces(batch, 0, vocabulary.pieces)
    pairs = batch.sequence_ids[0]
    predictions = int((batch.masked_labels[0] != IGNORED_LABEL).sum())
    count = int(pairs.max()) + 1
    yield (
        f"row {index} in epoch {epoch}: {count} pair{'s' * (count != 1)}, {int((pairs >= 0).sum())} of "
        f"{len(pairs)} positions, {predictions} predictions"
    )
    documents = collator.shards.row(index).documents.tolist()
    for pair in range(count):
        label = int(batch.sentence_labels[0, pair])
        if collator.objective == "mlm":
            meaning = LABEL_NAMES["mlm"][0]
        elif label == IGNORED_LABEL:
            meaning = "no B, no sentence loss"
        else:
            meaning = f"{LABEL_NAMES[collator.objective][label]} (label {label})"
        yield f"  pair {pair}, document {documents[pair]}: {meaning}"
        for segment, name in enumerate("AB"):
            here = np.flatnonzero((pairs == pair) & (batch.token_type_ids[0] == segment)).tolist()
            if here:
                yield show.paragraph(f"    {name}  ", " ".join(pieces[position] for position in here))
    yield ""


def shown_pieces(batch: Batch, row: int, pieces: Sequence[str]) -> list[str]:
    """The S pieces of one row of a batch. Predicted pieces are marked as `LEGEND` says.

    Args:
        pieces: the vocabulary's, V strings.
    """
    shown = [pieces[token] for token in batch.input_ids[row].tolist()]
    for position, label in zip(batch.masked_positions[row].tolist(), batch.masked_labels[row].tolist()):
        if label != IGNORED_LABEL:
            seen = int(batch.input_ids[row, position])
            change = "" if seen == MASK_ID else " =" if seen == label else f" > {pieces[seen]}"
            shown[position] = f"{{{pieces[label]}{change}}}"
    return shown


class MaskStatistics(NamedTuple):
    """What was counted.

    Attributes:
        sampled: n-grams of 0, 1, 2, ... words, by the length that was sampled.
        realised: the same, by the length after the budget shortened them.
        table: lines of a name and a value, for people.
    """

    sampled: list[int]
    realised: list[int]
    table: list[tuple[str, str]]


def count_masks(collator: Collator, epoch: int, rows: Sequence[int]) -> MaskStatistics:
    """Counts the masks of `rows` in `epoch`."""
    spans: list[Spans] = []
    tokens = predictions = masked = kept = pairs = changed = 0
    for index in rows:
        batch = collator.read([epoch], [index])
        spans.append(collator.spans(epoch, index))
        labels = batch.masked_labels[0]
        used = labels != IGNORED_LABEL
        seen = batch.input_ids[0, batch.masked_positions[0]]
        tokens += int((batch.sequence_ids[0] >= 0).sum())
        predictions += int(used.sum())
        masked += int((seen[used] == MASK_ID).sum())
        kept += int((seen[used] == labels[used]).sum())
        pairs += int((batch.sentence_labels[0] != IGNORED_LABEL).sum())
        changed += int((batch.sentence_labels[0] == 1).sum())
    lengths, words = (np.concatenate([getattr(of_row, name) for of_row in spans]) for name in ("sampled", "words"))
    longest = max(collator.masking.max_ngram, int(lengths.max(initial=0)))
    sampled, realised = (np.bincount(values, minlength=longest + 1) for values in (lengths, words))
    table = [
        ("rows", f"{len(rows):,} of {len(collator.shards):,}"),
        ("predicted", f"{predictions:,} of {tokens:,} tokens, special ones included ({predictions / tokens:.2%})"),
        *(
            (
                f"n-grams of {n}",
                f"{sampled[n] / sampled.sum():.2%} sampled, {realised[n] / realised.sum():.2%} realised",
            )
            for n in range(1, longest + 1)
        ),
        ("shown as [MASK]", f"{masked / predictions:.2%}"),
        ("shown as another piece", f"{(predictions - masked - kept) / predictions:.2%}"),
        ("shown unchanged", f"{kept / predictions:.2%}"),
    ]
    if pairs:
        name = LABEL_NAMES[collator.objective][1]
        table.append((name, f"{changed:,} of {pairs:,} pairs ({changed / pairs:.2%})"))
    return MaskStatistics(sampled.tolist(), realised.tolist(), table)


if __name__ == "__main__":
    sys.exit(main())
