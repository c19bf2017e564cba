"""Predictions for every example of a split, over all ranks: none left out and none twice."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from pipeline.control import Control
from pipeline.tasks.features import Features, Found
from pipeline.tasks.predictions import Answers, Logits
from pipeline.tensors import prefetch, to_device

TOKENS_IN_BATCH = 8192

Predictions = Logits | dict[str, Answers]


def batches_of(features: Features, rank: int, world_size: int, tokens: int = TOKENS_IN_BATCH) -> Iterator[list[int]]:
    """The units of each of this rank's batches, of up to `tokens` tokens, similar lengths together.

    Together the ranks' batches hold each unit once. All ranks get the same number of batches, the last of which may be
    empty, since each is a collective operation under ZeRO-3.
    """
    order = np.argsort(features.lengths, kind="stable")[::-1]  # the longest first: what memory must hold shows at once
    ends = np.cumsum(features.lengths[order])
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + tokens, side="right")))
        batches.append(order[start:end].tolist())
        start = end
    batches += [[] for _ in range(-len(batches) % world_size)]
    yield from batches[rank::world_size]


def predict(model: Any, features: Features, control: Control, device: torch.device) -> Predictions | None:
    """What `model` (or an engine) says of each example. Collective; on rank 0 the predictions, None on the others.

    The model is put into evaluation mode and left there.
    """
    gathered = control.gather(find(model, features, control, device))
    if gathered is None:
        return None
    return features.predictions({unit: result for part in gathered for unit, result in part.items()})


@torch.no_grad()
def find(
    model: Any, features: Features, control: Control, device: torch.device, limit: int | None = None
) -> dict[int, Found]:
    """What `model` says of each of this rank's units, in up to `limit` batches."""
    model.eval()
    batches = (
        (units, features.batch(units, training=False))
        for units in itertools.islice(batches_of(features, control.rank, control.world_size), limit)
    )
    found: dict[int, Found] = {}
    for units, batch in prefetch(batches):
        output = model(**to_device(batch, device))
        found.update(zip(units, features.found(units, batch, output)))
    return found
