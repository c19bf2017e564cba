"""The Python API: trained models, and shards as a dataset of torch. The commands do everything else."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from common.errors import UserError
from data_prep.format.shard_manifest import read_manifest
from data_prep.format.shards import read_vocabulary
from model.config import IGNORED_LABEL
from pipeline.data.collate import Batch, Objective
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import open_mixture
from pipeline.finetuning.predictor import Predictor as Model
from pipeline.finetuning.predictor import open_predictor

Place = str | PathLike[str]
Layout = Literal["packed", "masked_lm"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)


def load(source: Place) -> Model:
    """Opens a run, an export, a published ALBERT or BERT, or one of the hub; on a GPU unless DS_ACCELERATOR is cpu."""
    return open_predictor(Path(source), "the source")


class Shards(Dataset[dict[str, Tensor]]):
    """The rows of one shard set, with the sentence order and the masks of an epoch, by (seed, epoch, row) alone.

    A row holds several pairs. With the layout "packed" it has the fields of `pipeline.data.collate.Batch`, which
    `AlbertForPreTraining` of `model` takes. With "masked_lm" it has what a masked language model of `transformers`
    takes: input_ids, token_type_ids, position_ids (S,); attention_mask (1, S, S), True inside each pair; and labels
    (S,), -100 where nothing is predicted. Raises UserError: no shards, damaged ones, or a value out of range.
    """

    def __init__(
        self,
        directory: Place,
        *,
        objective: Objective = "sop",
        seed: int = 0,
        epoch: int = 0,
        mask_probability: float = 0.15,
        layout: Layout = "packed",
    ) -> None:
        for name, value, known in (("objective", objective, get_args(Objective)), ("layout", layout, LAYOUTS)):
            if value not in known:
                raise UserError(f"{name} is {value!r}; give one of {', '.join(known)}")
        if not 0 <= seed < 2**64:
            raise UserError(f"seed is {seed}; give 0 or more, below 2**64")
        try:
            place, masking = Path(directory), MaskingSettings(mask_probability)
        except ValueError as error:
            raise UserError(str(error)) from None
        self.vocabulary = read_vocabulary(place, read_manifest(place))
        mixture = open_mixture([place], [1], self.vocabulary.continues_word, objective, seed, masking)
        (self._collator,) = mixture.collators
        self._layout = layout
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch; a DataLoader with `persistent_workers` would keep the one before."""
        if not 0 <= epoch < 2**64:
            raise UserError(f"epoch is {epoch}; give 0 or more, below 2**64")
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
        fields = batch._asdict() if self._layout == "packed" else _masked_lm(batch)
        return [{name: torch.from_numpy(values[row]) for name, values in fields.items()} for row in range(len(indices))]


def _masked_lm(batch: Batch) -> dict[str, NDArray[Any]]:
    labels = np.full_like(batch.input_ids, IGNORED_LABEL)  # (B, S)
    row, column = np.nonzero(batch.masked_labels != IGNORED_LABEL)
    labels[row, batch.masked_positions[row, column]] = batch.masked_labels[row, column]
    ids = batch.sequence_ids  # (B, S)
    mask = (ids[:, :, None] == ids[:, None, :])[:, None]  # (B, 1, S, S), padding sees padding
    shared = {name: getattr(batch, name) for name in ("input_ids", "token_type_ids", "position_ids")}
    return {**shared, "attention_mask": mask, "labels": labels}
