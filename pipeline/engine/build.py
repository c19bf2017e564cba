"""Builds a DeepSpeed engine from a model and a checked DeepSpeed JSON."""

import logging
import warnings

import deepspeed
from torch import nn

from pipeline.engine import cuda_graphs, optimizers, zero_layout
from pipeline.engine.config import EngineConfig
from pipeline.engine.optimizers import describe_groups, parameter_groups
from pipeline.engine.state import Engine
from pipeline.tracking.tracker import BLOCKS


def initialise(model: nn.Module, config: EngineConfig, graphs: bool = False) -> tuple[Engine, str]:
    """Gives `model` to DeepSpeed with the optimizer that the JSON names. Collective.

    Args:
        graphs: whether the model trains by CUDA graphs.

    Returns:
        The engine, ready to train, and a description of the optimizer's parameter groups.
    """
    _silence_expected_warnings()
    # The trainer sets the learning rate of every step, with and without a `scheduler` block
    # (pipeline/training/schedule.py).
    # The trainer sends its own figures to the trackers that the JSON turns on (pipeline/tracking/).
    settings = {key: value for key, value in config.json.items() if key not in ("scheduler", *BLOCKS)}
    # DeepSpeed's throughput timer is on by default, and waits for the GPU twice in each micro-step.
    settings["timers"] = {"throughput": {"enabled": False}} | settings.get("timers", {})
    block = config.json["optimizer"]
    groups = parameter_groups(model, block.get("params", {}).get("weight_decay", 0.01))
    description = describe_groups(groups, config.optimizer)
    optimizer = optimizers.make_own(block, groups)
    if optimizers.uses_torch_adam(config.json):
        optimizer = optimizers.make_torch_adam(config.json, groups)
        # DeepSpeed refuses torch's Adam with an offloaded state, unless it is told that this is meant.
        settings["zero_force_ds_cpu_optimizer"] = False
    if optimizer is None:
        engine, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=settings)
    else:
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    # DeepSpeed uses its batch size to count samples only. It has demanded one that includes the empty rows.
    engine._config.train_batch_size = config.train_batch_size
    zero_layout.attach(engine)
    if graphs:
        cuda_graphs.install(model)
    return engine, description


def release(engine: Engine) -> None:
    """Removes DeepSpeed's references to an engine that is not used any more, so that its memory can be freed.

    DeepSpeed 0.19.8 keeps some of them at ZeRO stage 3.
    """
    engine.destroy()


def _silence_expected_warnings() -> None:
    """Drops two warnings of every run that need no action."""
    # DeepSpeed 0.19.8 calls two collectives by names that torch 2.13 deprecates.
    old_names = ".*(all_gather_into_tensor|reduce_scatter_tensor).*"
    warnings.filterwarnings("ignore", message=old_names, category=FutureWarning)
    # DeepSpeed has not tested the project's LAMB under ZeRO; tests/pipeline/engine/test_lamb.py has.
    logging.getLogger("DeepSpeed").addFilter(lambda record: "untested optimizer" not in record.getMessage())
