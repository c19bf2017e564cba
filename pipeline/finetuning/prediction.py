"""Predictions: every example of a split is predicted exactly once, over all ranks or in one process."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from pipeline.data.prefetch import prefetch, to_device
from pipeline.distributed import progress
from pipeline.distributed.control import ControlGroup
from pipeline.tasks.task import Features, SampleOutput
from pipeline.training.evaluations import Monitor, unmonitored

TOKENS_IN_BATCH = 8192
"""Of an evaluation."""


def batches_of(
    features: Features, rank: int = 0, world_size: int = 1, limit: int = TOKENS_IN_BATCH, by_tokens: bool = True
) -> list[list[int]]:
    """The numbers of the samples in each of this rank's batches. Samples of similar length share a batch.

    The batches of all ranks together hold each sample once. All ranks get the same number of batches, because a forward
    pass under ZeRO-3 is collective; the last batch may be empty. A batch has at most `limit` tokens, or samples if not
    `by_tokens`; one longer sample is a batch of its own.
    """
    order = np.argsort(features.lengths, kind="stable")[::-1]  # longest first: too little memory shows at once
    ends = np.cumsum(features.lengths[order] if by_tokens else np.ones_like(order))
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        batches.append(order[start:end].tolist())
        start = end
    batches += [[] for _ in range(-len(batches) % world_size)]
    return batches[rank::world_size]


def predict(
    model: nn.Module, features: Features, control: ControlGroup, device: torch.device, wrap: Monitor = unmonitored
) -> Any | None:
    """The predictions of a model or engine on rank 0, None on others. Leaves it in evaluation mode. Collective."""
    batches = batches_of(features, control.rank, control.world_size)
    gathered = control.gather(outputs_of(model, features, device, batches, wrap))
    if gathered is None:
        return None
    with progress.get_progress().during("scoring"):
        return features.predictions({sample: result for part in gathered for sample, result in part.items()})


@torch.no_grad()
def outputs_of(
    model: nn.Module,
    features: Features,
    device: torch.device,
    batches: Sequence[list[int]],
    wrap: Monitor = unmonitored,
) -> dict[int, SampleOutput]:
    """The output of a model or an engine for each sample in `batches`, by number. Leaves it in evaluation mode."""
    model.eval()
    made = ((samples, features.batch(samples, training=False)) for samples in batches)
    outputs: dict[int, SampleOutput] = {}
    for samples, batch in wrap(prefetch(made), len(batches)):
        output = model(**to_device(batch, device))
        outputs.update(zip(samples, features.decode(samples, batch, output)))
    return outputs
