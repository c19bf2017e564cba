"""Predicts every example of a split exactly once: over all ranks, or in one process."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from pipeline.data.prefetch import prefetch, to_device
from pipeline.distributed import progress
from pipeline.distributed.control import ControlGroup
from pipeline.tasks.kind import Features, SampleOutput
from pipeline.tasks.kinds.spans import WindowSpans
from pipeline.training.training_task import Pace, without_pauses

TOKENS_IN_BATCH = 8192


def batches_of(features: Features, rank: int, world_size: int, tokens: int = TOKENS_IN_BATCH) -> Iterator[list[int]]:
    """The numbers of the samples in each of this rank's batches. A batch has up to `tokens` tokens.

    The batches of all ranks together hold each sample once. Samples of similar length share a batch. All ranks get the
    same number of batches, because a forward pass under ZeRO-3 is collective; the last batch may be empty.
    """
    order = np.argsort(features.lengths, kind="stable")[::-1]  # longest first: too little memory shows at once
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


def predict(
    model: nn.Module, features: Features, control: ControlGroup, device: torch.device, pace: Pace = without_pauses
) -> Any | None:
    """Predicts each example with a model or an engine, and leaves it in evaluation mode. Collective.

    Returns:
        The predictions on rank 0; None on the other ranks.
    """
    gathered = control.gather(find(model, features, control, device, pace=pace), (WindowSpans,))
    if gathered is None:
        return None
    with progress.get_progress().during("scoring"):
        return features.predictions({sample: result for part in gathered for sample, result in part.items()})


def find(
    model: nn.Module,
    features: Features,
    control: ControlGroup,
    device: torch.device,
    limit: int | None = None,
    pace: Pace = without_pauses,
) -> dict[int, SampleOutput]:
    """The output of a model or an engine for each of this rank's samples, by number, in up to `limit` batches."""
    batches = itertools.islice(batches_of(features, control.rank, control.world_size), limit)
    return outputs_of(model, features, device, batches, pace)


@torch.no_grad()
def outputs_of(
    model: nn.Module,
    features: Features,
    device: torch.device,
    batches: Iterable[list[int]],
    pace: Pace = without_pauses,
) -> dict[int, SampleOutput]:
    """The output of a model or an engine for each sample in `batches`, by number. Leaves it in evaluation mode."""
    model.eval()
    parts = list(batches)
    made = ((samples, features.batch(samples, training=False)) for samples in parts)
    found: dict[int, SampleOutput] = {}
    for samples, batch in pace(prefetch(made), len(parts)):
        output = model(**to_device(batch, device))
        found.update(zip(samples, features.decode(samples, batch, output)))
    return found


def batches_of_size(features: Features, size: int) -> Iterator[list[int]]:
    """The numbers of the samples in batches of up to `size` samples of similar length, the longest first."""
    order = np.argsort(features.lengths, kind="stable")[::-1].tolist()
    for start in range(0, len(order), size):
        yield order[start : start + size]
