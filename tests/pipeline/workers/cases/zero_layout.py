"""Writes known values into an engine's buffers and reads the model."""

import math
from typing import Any

import torch
from torch import Tensor

from pipeline.engine import zero_layout
from tests.pipeline.workers import training
from tests.pipeline.workers.cases.lamb import claim_fp16


def coded(number: int, elements: int) -> Tensor:
    """A different value for each element of each tensor; all are exact in bf16."""
    return ((torch.arange(elements) * 7 + number * 31) % 251).float()


def write_coded(settings: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Writes a code into the fp32 weights of each tensor slice; what the model then has, and what it should have."""
    engine = training.make_engine(settings, attach=False)
    wanted = {}
    for number, here in enumerate(zero_layout.slices(engine)):
        code = coded(number, math.prod(here.shape))
        here.weight.copy_(code[here.start : here.start + here.length])
        wanted[here.name] = code.view(here.shape)
    zero_layout.refresh_model_weights(engine)
    found = training.model_weights(engine)
    training.close(engine)
    return found, wanted


def write_all_coded(cases: list[tuple[int, str, dict[str, Any]]]) -> list[Any]:
    """(found, wanted) of each (stage, precision, extra settings)."""
    claim_fp16()
    world = torch.distributed.get_world_size()
    return [write_coded(training.config(stage, precision, world, **extra)) for stage, precision, extra in cases]
