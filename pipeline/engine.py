"""From a model and a checked DeepSpeed JSON to a DeepSpeed engine."""

import logging
import warnings
from typing import Any

import deepspeed
from torch import nn

from pipeline import lamb, zero
from pipeline.engine_config import EngineConfig


def initialise(model: nn.Module, config: EngineConfig) -> tuple[Any, str]:
    """Hands `model` to DeepSpeed with the optimizer that the JSON names: Lamb is ours, the others are DeepSpeed's.

    AdamW without bias correction, as in the paper's code, is our LAMB with every trust ratio 1.

    Returns:
        The engine, ready to train, and a description of what its optimizer decays and scales. Collective.
    """
    _quieten()
    # The trainer sets the learning rate of every step (pipeline/schedule.py), also as a `scheduler` block wants it.
    settings = {key: value for key, value in config.json.items() if key != "scheduler"}
    params = config.optimizer_params
    groups = lamb.parameter_groups(model, params.pop("weight_decay", 0.01))
    if config.is_adamw_of_the_paper:
        del params["bias_correction"]
        groups = [group | {"trust_ratio": False} for group in groups]
    description = lamb.describe(groups, config.optimizer)
    if config.optimizer == "Lamb" or config.is_adamw_of_the_paper:
        engine, *_ = deepspeed.initialize(model=model, optimizer=lamb.Lamb(groups, **params), config=settings)
    else:
        engine, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=settings)
    zero.attach(engine)
    return engine, description


def _quieten() -> None:
    """Drops two warnings that every run would print and nobody could act on."""
    # DeepSpeed 0.19.8 calls two collectives by names that torch 2.13 is about to drop.
    old_names = ".*(all_gather_into_tensor|reduce_scatter_tensor).*"
    warnings.filterwarnings("ignore", message=old_names, category=FutureWarning)
    # It has not tested our LAMB under ZeRO; tests/pipeline/test_lamb.py has.
    logging.getLogger("DeepSpeed").addFilter(lambda record: "untested optimizer" not in record.getMessage())
