"""The same examples in several forms: packed rows, padded pairs, and full blocks, for this model and `transformers`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from data_prep.format.shards import open_shards
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.vocabulary import PAD_ID
from model.layers.heads import IGNORED_LABEL
from pipeline.data.collate import Batch, BatchShape, Collator
from pipeline.data.masking import MaskingSettings
from pipeline.data.packed_rows import sequence_offsets
from pipeline.data.prefetch import to_device

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Examples:
    """One batch of pairs in several forms.

    Attributes:
        forms: by name, the micro-batches of each form, which have at most B rows each:
            "packed": the arguments of `model.AlbertForPreTraining`, several pairs a row.
            "unpacked": the same with one pair a row, padded, and as many predictions a row as "packed".
            "padded": the arguments of `transformers.AlbertForPreTraining`, one pair a row, all positions labelled.
            "blocks": the same of "packed" as one text a row: no padding, no mask, the order of the row's first pair.
        tokens: tokens of all pairs, without padding.
        pairs: how many pairs.
    """

    forms: dict[str, list[Inputs]]
    tokens: int
    pairs: int


def open_collator(directory: Path) -> Collator:
    """The collator of a shard set, with the paper's masking. Raises UserError: `directory` holds no shards."""
    shards = open_shards(directory)
    vocabulary = load_vocabulary(directory)
    masking = MaskingSettings()
    return Collator(
        shards, BatchShape.of(shards, masking=masking), vocabulary.continues_word, "sop", seed=0, masking=masking
    )


def batch_of(collator: Collator, number: int, rows: int) -> Batch:
    """Batch `number` of `rows` packed rows."""
    wanted = [(number * rows + index) * _STRIDE % len(collator.shards) for index in range(rows)]
    return collator.read([0] * rows, wanted)


def draw(collator: Collator, number: int, rows: int, device: torch.device) -> Examples:
    """Batch `number` of `rows` packed rows, in all forms, on `device`."""
    batch = to_device(batch_of(collator, number, rows), "cpu")
    pairs = list(unpack(batch, collator.shape.sequence_length))
    padded = [
        {name: torch.stack([pair[name] for pair in pairs[start : start + rows]]) for name in pairs[0]}
        for start in range(0, len(pairs), rows)
    ]
    blocks = {name: batch[name] for name in ("input_ids", "token_type_ids")}
    blocks |= {"labels": _all_labels(batch), "sentence_order_label": batch["sentence_labels"][:, 0].clamp(min=0)}
    unpacked = [_as_packed(inputs, collator.shape.predictions) for inputs in padded]
    forms = {"packed": [batch], "unpacked": unpacked, "padded": padded, "blocks": [blocks]}
    on_device = {
        form: [{name: one.to(device) for name, one in inputs.items()} for inputs in micro_batches]
        for form, micro_batches in forms.items()
    }
    return Examples(on_device, int((batch["sequence_ids"] >= 0).sum()), len(pairs))


_STRIDE = 101  # prime: spreads the rows over the whole set, as neighbouring rows come from one document


def unpack(batch: Inputs, length: int) -> Iterator[Inputs]:
    """Each pair of a packed batch (B, S) as one padded row (length,)."""
    labels = _all_labels(batch)  # (B, S)
    for row, sequence_ids in enumerate(batch["sequence_ids"]):
        for number in range(int(sequence_ids.max()) + 1):
            inside = sequence_ids == number  # (S,)
            order = batch["sentence_labels"][row, number]

            def pad(values: Tensor, filling: int, inside: Tensor = inside) -> Tensor:
                return functional.pad(values[inside], (0, length - int(inside.sum())), value=filling)

            yield {
                "input_ids": pad(batch["input_ids"][row], PAD_ID),
                "token_type_ids": pad(batch["token_type_ids"][row], 0),
                "attention_mask": pad(torch.ones_like(sequence_ids), 0),
                "labels": pad(labels[row], IGNORED_LABEL),
                # Without any sentence label in a batch the reference's mean would be 0 / 0.
                "sentence_order_label": order.clamp(min=0),
            }


def _all_labels(batch: Inputs) -> Tensor:
    """The labels of all positions of a packed batch, (B, S)."""
    labels = torch.full_like(batch["input_ids"], IGNORED_LABEL)  # (B, S)
    rows, slots = (batch["masked_labels"] != IGNORED_LABEL).nonzero(as_tuple=True)
    labels[rows, batch["masked_positions"][rows, slots]] = batch["masked_labels"][rows, slots]
    return labels


def _as_packed(padded: Inputs, predictions: int) -> Inputs:
    """Padded pairs as packed rows of one sequence each, with at most `predictions` labelled positions in a row."""
    labels, ids = padded["labels"], padded["attention_mask"] - 1  # (B, S), 0 on tokens, -1 on padding
    chosen = (labels != IGNORED_LABEL).int().topk(min(predictions, labels.shape[1])).indices  # (B, M)
    return {name: padded[name] for name in ("input_ids", "token_type_ids")} | {
        "position_ids": torch.arange(ids.shape[1]).expand_as(ids),
        "sequence_ids": ids,
        "cls_positions": torch.zeros(len(ids), 1, dtype=torch.int64),
        "cu_seqlens": torch.from_numpy(sequence_offsets(ids.numpy())),
        "masked_positions": chosen,
        "masked_labels": labels.gather(1, chosen),
        "sentence_labels": padded["sentence_order_label"][:, None],
    }
