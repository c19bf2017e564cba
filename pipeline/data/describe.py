"""Prints rows for people as training reads them: pieces, pairs with their labels, and predictions."""

from collections.abc import Iterator, Sequence

import numpy as np

from data_prep.jobs import show
from data_prep.text.vocabulary import MASK_ID, Vocabulary
from model.layers.heads import IGNORED_LABEL
from pipeline.data.collate import Batch, Collator

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
