"""Counts what masking does over many rows: lengths of n-grams, predictions, replacements, and sentence labels."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data_prep.text.vocabulary import MASK_ID
from model.layers.heads import IGNORED_LABEL
from pipeline.data.collate import Collator
from pipeline.data.describe import LABEL_NAMES
from pipeline.data.masking import Spans


class MaskStatistics(NamedTuple):
    """What was counted.

    Attributes:
        drawn: n-grams of 0, 1, 2, ... words, by the length that was drawn.
        realised: the same, by the length after the budget shortened them.
        table: lines of a name and a value, for people.
    """

    drawn: list[int]
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
    lengths, words = (np.concatenate([getattr(of_row, name) for of_row in spans]) for name in ("drawn", "words"))
    longest = max(collator.masking.max_ngram, int(lengths.max(initial=0)))
    drawn, realised = (np.bincount(values, minlength=longest + 1) for values in (lengths, words))
    table = [
        ("rows", f"{len(rows):,} of {len(collator.shards):,}"),
        ("predicted", f"{predictions:,} of {tokens:,} tokens, special ones included ({predictions / tokens:.2%})"),
        *(
            (f"n-grams of {n}", f"{drawn[n] / drawn.sum():.2%} drawn, {realised[n] / realised.sum():.2%} realised")
            for n in range(1, longest + 1)
        ),
        ("shown as [MASK]", f"{masked / predictions:.2%}"),
        ("shown as another piece", f"{(predictions - masked - kept) / predictions:.2%}"),
        ("shown unchanged", f"{kept / predictions:.2%}"),
    ]
    if pairs:
        name = LABEL_NAMES[collator.objective][1]
        table.append((name, f"{changed:,} of {pairs:,} pairs ({changed / pairs:.2%})"))
    return MaskStatistics(drawn.tolist(), realised.tolist(), table)
