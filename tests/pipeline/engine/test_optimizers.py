"""The optimizers that a DeepSpeed JSON can name: who makes them, with which parameters, and torch's Adam under ZeRO."""

from typing import Any
from unittest import mock

import pytest
import torch
from deepspeed.ops.op_builder.builder import OpBuilder
from torch import Tensor, nn

from pipeline.engine import deepspeed_config as engine_config
from pipeline.engine import optimizers
from pipeline.engine.engine_state import initialise
from pipeline.engine.hardware import Hardware
from pipeline.engine.lamb import Lamb
from pipeline.engine.optimizers import parameter_groups
from tests.pipeline.workers import processes, training

STEPS, RATE, DECAY = 5, 0.01, 0.1
OPTIMIZER = {"type": "AdamW", "params": {"lr": RATE, "weight_decay": DECAY, "betas": [0.8, 0.99], "eps": 1e-4}}


def train_each(stages: list[int]) -> list[dict[str, Tensor]]:
    """The fp32 weights after STEPS steps at each ZeRO stage. A compilation is an error."""
    world = torch.distributed.get_world_size()

    def fail(builder: Any, verbose: bool = True) -> None:
        raise AssertionError(f"{builder.name} would be compiled")

    found = []
    products = torch.backends.cuda.matmul
    products.allow_fp16_reduced_precision_reduction = products.allow_bf16_reduced_precision_reduction = True
    with mock.patch.object(OpBuilder, "jit_load", fail):
        for stage in stages:
            json = training.config(stage, "fp32", world, gradient_clipping=0.0, optimizer=OPTIMIZER)
            fitted = engine_config.fit(json, world, Hardware("CPU", fp16=False, bf16=False))
            engine: Any = initialise(training.SharedModel(), fitted)[0]
            for group in engine.optimizer.param_groups:
                group["rate_share"] = 1.0
            training.train(engine, 0, STEPS)
            assert not products.allow_fp16_reduced_precision_reduction
            assert not products.allow_bf16_reduced_precision_reduction
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


def groups() -> list[dict[str, Any]]:
    return [{"params": [nn.Parameter(torch.zeros(3, device="meta"))], "weight_decay": 0.5, "trust_ratio": True}]


@pytest.mark.parametrize(
    ("kind", "params", "made", "ratio"),
    [
        ("Lamb", {}, Lamb, True),
        ("AdamW", {"bias_correction": False}, Lamb, False),
        ("Adam", {"bias_correction": False}, Lamb, False),
        ("AdamW", {}, torch.optim.AdamW, True),
        ("Adam", {"bias_correction": True}, torch.optim.AdamW, True),
        ("Adam", {"torch_adam": False, "adam_w_mode": False}, torch.optim.Adam, True),
    ],
)
def test_the_json_decides_whose_optimizer_it_is(kind, params, made, ratio):
    given = {"lr": 0.5, "betas": [0.8, 0.7], "eps": 0.25, "weight_decay": 0.125}
    config = {"optimizer": {"type": kind, "params": given | params}}
    optimizer = optimizers.make_optimizer(config, groups())
    assert type(optimizer) is made
    assert made is Lamb or optimizer.defaults["fused"], "one pass over memory, on a CPU as well"
    (group,) = optimizer.param_groups
    assert (group["lr"], group["betas"], group["eps"]) == (0.5, (0.8, 0.7), 0.25)
    assert (group["weight_decay"], group["trust_ratio"]) == (0.5, ratio)  # the weight decay of its group


@pytest.mark.slow
def test_adam_under_zero_is_adam_and_nothing_is_compiled(tmp_path):
    alone = processes.run(1, train_each, [0], scratch=tmp_path)
    found = processes.run(2, train_each, [0, 1, 2, 3], scratch=tmp_path)
    wanted = reference()
    for weights in alone + found:
        assert weights.keys() == wanted.keys()
        for name, weight in weights.items():
            torch.testing.assert_close(weight, wanted[name], rtol=1e-4, atol=1e-6)
