"""Trains the small model with AdamW at several ZeRO stages."""

from typing import Any
from unittest import mock

import torch
from deepspeed.ops.op_builder.builder import OpBuilder
from torch import Tensor

from pipeline.engine import deepspeed_config as engine_config
from pipeline.engine.engine_state import initialise
from pipeline.engine.hardware import Hardware
from pipeline.engine.optimizers import parameter_groups
from tests.pipeline.workers import training

STEPS, RATE, DECAY = 5, 0.01, 0.1
OPTIMIZER = {"type": "AdamW", "params": {"lr": RATE, "weight_decay": DECAY, "betas": [0.8, 0.99], "eps": 1e-4}}


def train_each(stages: list[int]) -> list[dict[str, Tensor]]:
    """The fp32 weights after STEPS steps at each ZeRO stage. A compilation is an error."""
    world = torch.distributed.get_world_size()

    def fail(builder: Any, verbose: bool = True) -> None:
        raise AssertionError(f"{builder.name} would be compiled")

    found = []
    with mock.patch.object(OpBuilder, "jit_load", fail):
        for stage in stages:
            json = training.config(stage, "fp32", world, gradient_clipping=0.0, optimizer=OPTIMIZER)
            fitted = engine_config.fit(json, world, Hardware("CPU", fp16=False, bf16=False))
            engine: Any = initialise(training.SharedModel(), fitted)[0]
            for group in engine.optimizer.param_groups:
                group["rate_share"] = 1.0
            training.train(engine, 0, STEPS)
            assert type(engine.basic_optimizer) is torch.optim.AdamW
            found.append(training.full(engine))
            training.close(engine)
    return found


def reference() -> dict[str, Tensor]:
    """The same in one process, without DeepSpeed."""
    model = training.SharedModel()
    params = OPTIMIZER["params"]
    assert isinstance(params, dict)
    optimizer = torch.optim.AdamW(parameter_groups(model, DECAY), betas=tuple(params["betas"]), eps=params["eps"])
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = training.learning_rate(step)
        optimizer.zero_grad()
        model(*training.batch(step)).backward()
        for parameter in model.parameters():  # without a gradient, torch would not decay the weight
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        optimizer.step()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}
