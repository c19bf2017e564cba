"""Prints rows as training reads them: the swap, the masks, and the figures of many masks.

    python -m pipeline.show DIR [-n 3] [--row N] [--epoch 0] [--seed 0] [--objective {sop,nsp,mlm}]
    python -m pipeline.show DIR --masks 1000 [--out DIR/stats]

`python -m data_prep show` prints what a row stores; what is here is drawn from seed, epoch and row when it is read.
With --masks it counts, over so many rows, the lengths of n-grams as they were drawn and as they came out, the share of
predicted tokens and what became of them, and the share of swapped pairs; a PNG stands in --out.
"""

import argparse
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from data_prep import plots, show
from data_prep.command_line import Parser
from data_prep.errors import UserError
from data_prep.report import table
from data_prep.shards import VOCABULARY
from data_prep.vocabulary import MASK_ID, Vocabulary
from pipeline import masking
from pipeline.batches import IGNORED, Batch, Reader
from pipeline.corpora import open_corpora

LEGEND = (
    "[CLS] and [SEP] are added; {piece} is predicted and shown to the model as [MASK], {piece > other} as another "
    "piece, {piece =} as it is."
)
SENTENCES = {
    "sop": ("in order", "swapped"),
    "nsp": ("B follows A", "B is a stranger's"),
    "mlm": ("no sentence loss", "no sentence loss"),
}


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.show", description="Prints rows as training reads them.")
    show.add_arguments(p)
    p.add_argument("--epoch", type=int, default=0, metavar="N", help="(0)")
    p.add_argument("--seed", type=int, default=0, metavar="N", help="of the run (0)")
    p.add_argument("--objective", choices=tuple(SENTENCES), default="sop", help="(sop)")
    p.add_argument("--masks", type=int, metavar="N", help="instead of rows, figures of the masks of N rows")
    p.add_argument("--out", type=Path, metavar="DIR", help="with --masks, where the plot goes (default: DIR/stats)")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    try:
        run(parser().parse_all(sys.argv[1:] if argv is None else argv))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def run(args: argparse.Namespace) -> None:
    """Prints rows, or figures of masks. UserError: no such row, epoch, seed or directory."""
    for name in ("epoch", "seed"):
        if not 0 <= getattr(args, name) < 2**63:
            raise UserError(f"--{name} is {getattr(args, name)}; give one from 0 to 2**63 - 1")
    vocabulary = Vocabulary.load(args.directory / VOCABULARY)
    corpora = open_corpora([args.directory], [1], vocabulary.continues_word, args.objective, args.seed)
    reader = corpora.readers[0]
    if args.masks is not None:
        if args.masks < 1:
            raise UserError(f"--masks is {args.masks}; give the number of rows to count, 1 or more")
        sampled = show.chosen_rows(len(reader.shards), args.masks, args.row)
        drawn, realised, figures = count_masks(reader, args.epoch, sampled)
        print(table(f"{args.directory}: masks of epoch {args.epoch}, seed {args.seed}", figures))
        out = args.out or args.directory / "stats"
        out.mkdir(parents=True, exist_ok=True)
        plots.grouped_bars(out / "ngrams.png", {"drawn": drawn, "realised": realised}, "words of an n-gram", "n-grams")
        print(f"wrote {out / 'ngrams.png'}")
        return
    rows = show.rows_wanted(args, len(reader.shards))
    print(textwrap.fill(LEGEND, show.WIDTH) + "\n")
    for index in rows:
        print("\n".join(describe(reader, index, args.epoch, vocabulary)))


def describe(reader: Reader, index: int, epoch: int, vocabulary: Vocabulary) -> Iterator[str]:
    """The lines that show one row of one epoch."""
    batch = reader.read([epoch], [index])
    pieces = shown_pieces(batch, 0, vocabulary.pieces)
    pairs = batch.sequence_ids[0]
    predictions = int((batch.masked_labels[0] != IGNORED).sum())
    count = int(pairs.max()) + 1
    yield (
        f"row {index} in epoch {epoch}: {count} pair{'s' * (count != 1)}, {int((pairs >= 0).sum())} of "
        f"{len(pairs)} positions, {predictions} predictions"
    )
    documents = reader.shards.row(index).documents.tolist()
    for pair in range(count):
        label = int(batch.sentence_labels[0, pair])
        task = "no B, no sentence loss" if label == IGNORED else SENTENCES[reader.objective][label]
        yield f"  pair {pair}, document {documents[pair]}: {task}" + (f" (label {label})" if label != IGNORED else "")
        for segment, name in enumerate("AB"):
            here = np.flatnonzero((pairs == pair) & (batch.token_type_ids[0] == segment)).tolist()
            if here:
                yield show.paragraph(f"    {name}  ", " ".join(pieces[position] for position in here))
    yield ""


def shown_pieces(batch: Batch, row: int, pieces: Sequence[str]) -> list[str]:
    """The pieces of one row of a batch, with the predicted ones marked as `LEGEND` says; (S,)."""
    shown = [pieces[token] for token in batch.input_ids[row].tolist()]
    for position, label in zip(batch.masked_positions[row].tolist(), batch.masked_labels[row].tolist()):
        if label != IGNORED:
            seen = int(batch.input_ids[row, position])
            change = "" if seen == MASK_ID else " =" if seen == label else f" > {pieces[seen]}"
            shown[position] = f"{{{pieces[label]}{change}}}"
    return shown


def count_masks(reader: Reader, epoch: int, rows: Sequence[int]) -> tuple[list[int], list[int], list[tuple[str, str]]]:
    """Over `rows`: how many n-grams were drawn, and realised, of 0, 1, 2, ... words; and a table of figures."""
    drawn, realised = np.zeros((2, masking.MAX_NGRAM + 1), np.int64)
    tokens = predictions = masked = kept = pairs = changed = 0
    for index in rows:
        batch = reader.read([epoch], [index])
        for span in reader.spans(epoch, index):
            drawn[span.drawn] += 1
            realised[span.words] += 1
        labels = batch.masked_labels[0]
        used = labels != IGNORED
        seen = batch.input_ids[0, batch.masked_positions[0]]
        tokens += int((batch.sequence_ids[0] >= 0).sum())
        predictions += int(used.sum())
        masked += int((seen[used] == MASK_ID).sum())
        kept += int((seen[used] == labels[used]).sum())
        pairs += int((batch.sentence_labels[0] != IGNORED).sum())
        changed += int((batch.sentence_labels[0] == 1).sum())
    lengths = range(1, masking.MAX_NGRAM + 1)
    figures = [
        ("rows", f"{len(rows):,} of {len(reader.shards):,}"),
        ("predicted", f"{predictions:,} of {tokens:,} tokens, special ones included ({predictions / tokens:.2%})"),
        *(
            (f"n-grams of {n}", f"{drawn[n] / drawn.sum():.2%} drawn, {realised[n] / realised.sum():.2%} realised")
            for n in lengths
        ),
        ("shown as [MASK]", f"{masked / predictions:.2%}"),
        ("shown as another piece", f"{(predictions - masked - kept) / predictions:.2%}"),
        ("shown as they are", f"{kept / predictions:.2%}"),
    ]
    if pairs:
        figures.append((SENTENCES[reader.objective][1], f"{changed:,} of {pairs:,} pairs ({changed / pairs:.2%})"))
    return drawn.tolist(), realised.tolist(), figures


if __name__ == "__main__":
    sys.exit(main())
