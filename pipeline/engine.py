"""From a model and a checked DeepSpeed JSON to a DeepSpeed engine."""

from typing import Any

import deepspeed
from torch import nn

from pipeline import lamb, zero
from pipeline.engine_config import EngineConfig


def initialise(model: nn.Module, config: EngineConfig) -> tuple[Any, str]:
    """Hands `model` to DeepSpeed with the optimizer that the JSON names: Lamb is ours, the others are DeepSpeed's.

    Returns:
        The engine, ready to train, and a description of what its optimizer decays and scales. Collective.
    """
    params = config.optimizer_params
    groups = lamb.parameter_groups(model, params.pop("weight_decay", 0.01))
    description = lamb.describe(groups)
    if config.optimizer == "Lamb":
        engine, *_ = deepspeed.initialize(model=model, optimizer=lamb.Lamb(groups, **params), config=config.json)
    else:
        engine, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=config.json)
    zero.attach(engine)
    return engine, description
