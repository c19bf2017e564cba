"""Builds a DeepSpeed engine from a model and a checked DeepSpeed JSON."""

import logging
import warnings

import deepspeed
from torch import nn

from pipeline.engine import optimizers, zero_layout
from pipeline.engine.deepspeed_config import MONITORS, EngineConfig
from pipeline.engine.engine_state import Engine
from pipeline.engine.optimizers import describe_groups, parameter_groups


def initialise(model: nn.Module, config: EngineConfig) -> tuple[Engine, str]:
    """Gives `model` to DeepSpeed with the optimizer that the JSON names. Collective.

    Returns:
        The engine, ready to train, and a description of the optimizer's parameter groups.
    """
    _silence_expected_warnings()
    # The trainer sets the learning rate of every step, with and without a `scheduler` block
    # (pipeline/training/schedule.py).
    # The trainer sends its own figures to the trackers that the JSON turns on (pipeline/training/tracking/).
    settings = {key: value for key, value in config.json.items() if key not in ("scheduler", *MONITORS)}
    # DeepSpeed's throughput timer is on by default, and waits for the GPU twice in each micro-step.
    settings["timers"] = {"throughput": {"enabled": False}} | settings.get("timers", {})
    groups = parameter_groups(model, config.json["optimizer"].get("params", {}).get("weight_decay", 0.01))
    description = describe_groups(groups, config.optimizer)
    optimizer = optimizers.make_optimizer(config.json, groups)
    engine, *_ = deepspeed.initialize(model=model, config=settings, optimizer=optimizer)
    # DeepSpeed uses its batch size to count samples only. It has demanded one that includes the empty rows.
    engine._config.train_batch_size = config.train_batch_size
    zero_layout.attach(engine)
    return engine, description


def _silence_expected_warnings() -> None:
    """Drops two warnings of every run that need no action."""
    # DeepSpeed 0.19.8 calls two collectives by names that torch 2.13 deprecates.
    old_names = ".*(all_gather_into_tensor|reduce_scatter_tensor).*"
    warnings.filterwarnings("ignore", message=old_names, category=FutureWarning)
    # DeepSpeed has not tested the project's LAMB under ZeRO; tests/pipeline/engine/test_lamb.py has.
    logging.getLogger("DeepSpeed").addFilter(lambda record: "untested optimizer" not in record.getMessage())
