"""Trains the small model under DeepSpeed in many ways, in the same processes."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.pipeline.workers import training

STEPS = 20


@dataclass(frozen=True)
class Case:
    """One way to run the same training.

    Attributes:
        accumulation: micro-batches of a step on each rank.
        accumulate_fp32: bf16 gradients are added up in fp32, which is another optimizer class at stage 1.
        attached: False makes LAMB treat each flat buffer as one tensor.
    """

    stage: int
    precision: str = "fp32"
    accumulation: int = 1
    accumulate_fp32: bool = False
    attached: bool = True

    def settings(self, world: int) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if self.accumulate_fp32:
            extra["data_types"] = {"grad_accum_dtype": "fp32"}
        return training.config(self.stage, self.precision, world, self.accumulation, **extra)


@dataclass(frozen=True)
class Outcome:
    """Whole tensors after STEPS steps: fp32 state of the optimizer, and what the model computes with."""

    weight: dict[str, Tensor]
    exp_avg: dict[str, Tensor]
    model: dict[str, Tensor]
    trust_ratios: dict[str, float]


def claim_fp16() -> None:
    """Makes DeepSpeed accept fp16 on this processor. It rejects fp16 there, but torch supports it."""
    from deepspeed.accelerator import get_accelerator

    get_accelerator().is_fp16_supported = lambda: True


def train_all(cases: list[Case]) -> dict[Case, Outcome]:
    """The outcome of each case."""
    outcomes = {}
    for case in cases:
        engine = training.make_engine(case.settings(torch.distributed.get_world_size()), attach=case.attached)
        training.train(engine, 0, STEPS)
        lamb = engine.basic_optimizer
        outcomes[case] = Outcome(
            training.full(engine),
            training.full(engine, "exp_avg"),
            training.model_weights(engine),
            dict(zip(lamb.tensor_names, lamb.last_trust_ratios.tolist())),
        )
        training.close(engine)
    return outcomes
