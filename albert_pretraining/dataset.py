"""Shards as a dataset of torch. Legend: S positions of a row, P pairs, M predictions."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from data_prep.format.shard_manifest import read_manifest
from data_prep.format.shards import read_vocabulary
from model.config import IGNORED_LABEL
from pipeline.data.collate import Batch, Objective
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import open_mixture


class Shards(Dataset[dict[str, Tensor]]):
    """The rows of one shard set, with the sentence order and the masks of an epoch.

    A row holds several pairs one after another. With the layout "packed" it has the fields of
    `pipeline.data.collate.Batch` without the first axis, which `AlbertForPreTraining` of `model` takes. With
    "masked_lm" it has what a masked language model of `transformers` takes, all int64 but the mask:

        input_ids, token_type_ids, position_ids (S,)
        attention_mask                          bool (1, S, S): True inside each pair
        labels                                  (S,) -100 where nothing is predicted

    The choices of a row depend on (seed, epoch, row) alone, not on the order of reading or on workers. Call `set_epoch`
    before each pass. A DataLoader with `persistent_workers` would keep the epoch before.

    Raises UserError if the directory has no shards, or they are damaged.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        objective: Objective = "sop",
        seed: int = 0,
        epoch: int = 0,
        mask_probability: float = 0.15,
        layout: Literal["packed", "masked_lm"] = "packed",
    ) -> None:
        place = Path(directory)
        self.vocabulary = read_vocabulary(place, read_manifest(place))
        masking = MaskingSettings(mask_probability)
        mixture = open_mixture([place], [1], self.vocabulary.continues_word, objective, seed, masking)
        (self._collator,) = mixture.collators
        self._layout = layout
        self._epoch = epoch

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch whose masks and swaps are sampled."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._collator.shards)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Tensor]]:
        """The rows `indices`, which are read together; a DataLoader calls this."""
        if any(not 0 <= index < len(self) for index in indices):
            raise IndexError(f"rows {min(indices)} to {max(indices)} of {len(self)}")
        batch = self._collator.read([self._epoch] * len(indices), list(indices))
        if self._layout == "packed":
            fields = {name: torch.from_numpy(values) for name, values in batch._asdict().items()}
        else:
            fields = _masked_lm(batch)
        return [{name: values[row] for name, values in fields.items()} for row in range(len(indices))]


def _masked_lm(batch: Batch) -> dict[str, Tensor]:
    labels = np.full_like(batch.input_ids, IGNORED_LABEL)  # (B, S)
    row, column = np.nonzero(batch.masked_labels != IGNORED_LABEL)
    labels[row, batch.masked_positions[row, column]] = batch.masked_labels[row, column]
    ids = torch.from_numpy(batch.sequence_ids)  # (B, S)
    return {
        "input_ids": torch.from_numpy(batch.input_ids),
        "token_type_ids": torch.from_numpy(batch.token_type_ids),
        "position_ids": torch.from_numpy(batch.position_ids),
        "attention_mask": (ids[:, :, None] == ids[:, None, :])[:, None],  # (B, 1, S, S), padding sees padding
        "labels": torch.from_numpy(labels),
    }
