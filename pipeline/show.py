"""Prints rows as training reads them, with swaps and masks.

    python -m pipeline.show DIR [-n 3] [--row N] [--epoch 0] [--seed 0] [--objective {sop,nsp,mlm}]

`python -m data_prep show` prints what a row stores. This command prints what training samples when it reads the row.
That depends on seed, epoch and row.
"""

import sys
import textwrap
from collections.abc import Iterator, Sequence

import numpy as np

from common.command_line import Parser, entry_point, natural
from common.text import quantity
from data_prep.format.shard_manifest import read_manifest
from data_prep.format.shards import read_vocabulary
from data_prep.jobs import show_rows
from data_prep.text.vocabulary import MASK_ID, Vocabulary
from model.config import IGNORED_LABEL
from pipeline.data.collate import Batch, Collator
from pipeline.data.mixture import open_mixture
from pipeline.settings import declare
from pipeline.settings.pretrain_flags import MaskingFlags

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
    show_rows.add_row_arguments(p)
    p.add_argument("--epoch", type=natural, default=0, metavar="N", help="epoch whose masks and swaps are shown (0)")
    p.add_argument("--seed", type=natural, default=0, metavar="N", help="of the run, whose first --data this is (0)")
    p.add_argument("--objective", choices=tuple(LABEL_NAMES), default="sop", help="sentence loss (sop)")
    declare.add_flags(p, MaskingFlags)
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Prints rows. UserError: there is no such row, epoch, seed or directory."""
    args = parser().parse_all(argv)
    masking = declare.from_namespace(MaskingFlags, args).masking_settings()
    vocabulary = read_vocabulary(args.directory, read_manifest(args.directory))
    mixture = open_mixture([args.directory], [1], vocabulary.continues_word, args.objective, args.seed, masking)
    (collator,) = mixture.collators
    rows = show_rows.rows_wanted(args, len(collator.shards))
    print(textwrap.fill(LEGEND, show_rows.WIDTH) + "\n")
    for index in rows:
        print("\n".join(describe_row(collator, index, args.epoch, vocabulary)))


def describe_row(collator: Collator, index: int, epoch: int, vocabulary: Vocabulary) -> Iterator[str]:
    """The lines that show row `index` of `epoch`."""
    batch = collator.read([epoch], [index])
    pieces = shown_pieces(batch, vocabulary.pieces)
    pairs = batch.sequence_ids[0]
    predictions = int((batch.masked_labels[0] != IGNORED_LABEL).sum())
    count, used = int(pairs.max()) + 1, f"{int((pairs >= 0).sum())} of {len(pairs)} positions"
    yield f"row {index} in epoch {epoch}: {quantity(count, 'pair')}, {used}, {predictions} predictions"
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
                yield show_rows.paragraph(f"    {name}  ", " ".join(pieces[position] for position in here))
    yield ""


def shown_pieces(batch: Batch, pieces: Sequence[str]) -> list[str]:
    """The S pieces of a batch of one row, from the vocabulary's. Predicted pieces are marked as `LEGEND` says."""
    shown = [pieces[token] for token in batch.input_ids[0].tolist()]
    for position, label in zip(batch.masked_positions[0].tolist(), batch.masked_labels[0].tolist()):
        if label != IGNORED_LABEL:
            seen = int(batch.input_ids[0, position])
            change = "" if seen == MASK_ID else " =" if seen == label else f" > {pieces[seen]}"
            shown[position] = f"{{{pieces[label]}{change}}}"
    return shown


if __name__ == "__main__":
    sys.exit(main())
