"""The same examples in two forms: packed rows for this model, and padded pairs for `transformers`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from data_prep.format.shards import open_shards
from data_prep.text.vocabulary import PAD_ID, Vocabulary
from model.layers.heads import IGNORED_LABEL
from pipeline.data.collate import Batch, BatchShape, Collator
from pipeline.data.masking import MaskingSettings
from pipeline.data.prefetch import to_device

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Examples:
    """One batch of pairs in both forms.

    Attributes:
        packed: the arguments of `model.AlbertForPreTraining`, B rows that hold several pairs each.
        padded: the arguments of `transformers.AlbertForPreTraining`, one pair a row, all positions labelled, in
            batches of B rows (the last may be smaller).
        tokens: tokens of all pairs, without padding.
        pairs: how many pairs.
    """

    packed: Inputs
    padded: list[Inputs]
    tokens: int
    pairs: int


def open_collator(directory: Path) -> Collator:
    """The collator of a shard set, with the paper's masking. Raises UserError: `directory` holds no shards."""
    shards = open_shards(directory)
    vocabulary = Vocabulary.load(directory)
    masking = MaskingSettings()
    return Collator(
        shards, BatchShape.of(shards, masking=masking), vocabulary.continues_word, "sop", seed=0, masking=masking
    )


def batch_of(collator: Collator, number: int, rows: int) -> Batch:
    """Batch `number` of `rows` packed rows."""
    wanted = [(number * rows + index) * _STRIDE % len(collator.shards) for index in range(rows)]
    return collator.read([0] * rows, wanted)


def draw(collator: Collator, number: int, rows: int, device: torch.device) -> Examples:
    """Batch `number` of `rows` packed rows, and the same pairs unpacked, on `device`."""
    batch = batch_of(collator, number, rows)
    packed = to_device(batch, device)
    pairs = list(unpack(to_device(batch, "cpu"), collator.shape.sequence_length))
    padded = [
        {name: torch.stack([pair[name] for pair in pairs[start : start + rows]]).to(device) for name in pairs[0]}
        for start in range(0, len(pairs), rows)
    ]
    return Examples(packed, padded, int((packed["sequence_ids"] >= 0).sum()), len(pairs))


# Neighbouring rows come from one document. A prime stride spreads the rows over the whole set.
_STRIDE = 101


def unpack(batch: Inputs, length: int) -> Iterator[Inputs]:
    """Each pair of a packed batch (B, S) as one padded row (length,)."""
    labels = torch.full_like(batch["input_ids"], IGNORED_LABEL)  # (B, S)
    for row, (positions, values) in enumerate(zip(batch["masked_positions"], batch["masked_labels"])):
        used = values != IGNORED_LABEL
        labels[row, positions[used]] = values[used]
    for row, sequence_ids in enumerate(batch["sequence_ids"]):
        for number in range(int(sequence_ids.max()) + 1):
            inside = sequence_ids == number  # (S,)
            order = batch["sentence_labels"][row, number]

            def pad(values: Tensor, filling: int, inside: Tensor = inside) -> Tensor:
                row = torch.full((length,), filling)
                row[: int(inside.sum())] = values[inside]
                return row

            yield {
                "input_ids": pad(batch["input_ids"][row], PAD_ID),
                "token_type_ids": pad(batch["token_type_ids"][row], 0),
                "attention_mask": pad(torch.ones_like(sequence_ids), 0),
                "labels": pad(labels[row], IGNORED_LABEL),
                # Without any sentence label in a batch the reference's mean would be 0 / 0.
                "sentence_order_label": order.clamp(min=0),
            }
