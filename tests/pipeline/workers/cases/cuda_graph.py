"""Trains a small model with DeepSpeed, by graphs or without."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from model import AlbertForPreTraining
from pipeline.engine import config as engine_config
from pipeline.engine import cuda_graphs
from pipeline.engine.build import initialise
from pipeline.engine.hardware import Hardware
from tests.model.examples import randomise, tiny_config
from tests.model.test_execution_options import BATCH, OTHER

CPU = Hardware("CPU", fp16=True, bf16=True)


class Tape:
    """A capture without a GPU. As with CUDA graphs, results have fixed places, and are written by repetitions only.

    Attributes:
        recorded: how much work was recorded.
    """

    def __init__(self) -> None:
        self.recorded = 0

    def __call__(self, work: Callable[[], Sequence[Tensor]]) -> tuple[Sequence[Tensor], Callable[[], None]]:
        self.recorded += 1
        places = list(work())

        def repeat() -> None:
            for place, one in zip(places, work(), strict=True):
                place.copy_(one)

        for place in places:
            place.fill_(torch.nan)
        return places, repeat


def weights(stage: int, precision: str, graphs: bool) -> dict[str, Tensor]:
    """The weights after three steps of two micro-batches, on this rank."""
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model = AlbertForPreTraining(tiny_config(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1))
    randomise(model, seed=5)
    zero = {"stage": stage, "reduce_bucket_size": 2000, "allgather_bucket_size": 2000}
    json: dict[str, Any] = {"train_batch_size": 4 * world, "train_micro_batch_size_per_gpu": 2}
    json |= {"gradient_clipping": 1.0, "zero_optimization": zero}
    json |= {"optimizer": {"type": "Lamb", "params": {"lr": 0.01}}}
    engine, _ = initialise(model, engine_config.fit(json, world, CPU, precision))
    if graphs:
        cuda_graphs.install(model, Tape())
    engine.train()
    for step in range(3):
        torch.manual_seed(10 * step + rank)
        for batch in (BATCH, OTHER) if rank else (OTHER, BATCH):
            output = engine(**batch)
            engine.backward(output.mlm_loss_sum / 9 + output.sentence_loss_sum / 3)
            engine.step()  # type: ignore[attr-defined]
    found = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    engine.destroy()
    return found


def compare(precision: str) -> dict[int, list[str]]:
    """By ZeRO stage, the tensors that differ between training with graphs and without."""
    differing = {}
    for stage in (0, 1, 2):
        plain, graphed = (weights(stage, precision, graphs) for graphs in (False, True))
        differing[stage] = [name for name, one in plain.items() if not torch.equal(one, graphed[name])]
    return differing
