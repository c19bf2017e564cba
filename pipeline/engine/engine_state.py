"""Reads and sets all that a checkpoint holds of an engine: tensors, counters, loss scale, optimizer settings."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from deepspeed import DeepSpeedEngine
from torch import Tensor

from pipeline.engine import zero_layout
from pipeline.engine.lamb import Lamb, TensorSlice
from pipeline.engine.optimizers import KINDS

Engine = DeepSpeedEngine
"""A model in training. Other packages use `backward`, `train`, `eval`, `module`, `device` and counts only."""

_SCALER_STATE = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")


class TensorState(NamedTuple):
    """A slice of one tensor and the optimizer's values for it.

    Attributes:
        slice: which elements of which tensor.
        values: by kind (`KINDS`), fp32 (slice.length,) views of the engine's buffers. Writing to them sets its state.
    """

    slice: TensorSlice
    values: dict[str, Tensor]


def tensor_states(engine: DeepSpeedEngine, slices: Sequence[TensorSlice]) -> list[TensorState]:
    """The values of each of `slices`. m and v are zeros before the optimizer's first step."""
    optimizer = engine.basic_optimizer
    found = []
    for slice_ in slices:
        _prepare(optimizer, slice_.flat)
        moments = {kind: slice_.of(optimizer.state[slice_.flat][kind]) for kind in KINDS[1:]}
        found.append(TensorState(slice_, {KINDS[0]: slice_.weight, **moments}))
    return found


def _prepare(optimizer: torch.optim.Optimizer, flat: Tensor) -> None:
    """Gives `flat` the state that the optimizer's first step would, if it has none."""
    if isinstance(optimizer, Lamb):
        optimizer.initialise_state(flat)
    elif not optimizer.state[flat]:
        step: Tensor | int = 0
        if isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW):
            # torch's fused kernel reads the count on the device of the weights.
            step = torch.zeros((), device=flat.device if optimizer.defaults["fused"] else "cpu")
        optimizer.state[flat].update({"step": step, **{kind: torch.zeros_like(flat.detach()) for kind in KINDS[1:]}})


def engine_state(engine: DeepSpeedEngine) -> dict[str, Any]:
    """The engine's state without its tensors: what state.json of a checkpoint holds."""
    optimizer = engine.basic_optimizer
    scaler = _dynamic_loss_scaler(engine)
    return {
        "step": engine.global_steps,
        "samples": engine.global_samples,
        "skipped_steps": engine.skipped_steps,
        "optimizer": type(optimizer).__name__,
        "optimizer_steps": _optimizer_steps(optimizer),
        "groups": [{name: group[name] for name in group if name != "params"} for group in optimizer.param_groups],
        "loss_scaler": None if scaler is None else {name: getattr(scaler, name) for name in _SCALER_STATE},
        "zero_stage": zero_layout.stage(engine),
        "world_size": dist.get_world_size(zero_layout.process_group(engine)),
    }


def restore(engine: DeepSpeedEngine, saved: Mapping[str, Any], saved_groups: Mapping[str, int]) -> None:
    """Sets counters, loss scale and learning rates to those of `saved`, after its tensors were loaded. Collective.

    The other settings of the optimizer remain those of the engine.

    Args:
        saved_groups: by name of the tensor, the index of its parameter group in the saved "groups".
    """
    zero_layout.refresh_model_weights(engine)
    optimizer = engine.basic_optimizer
    engine.global_steps = saved["step"]
    engine.global_samples = saved["samples"]
    engine.skipped_steps = saved["skipped_steps"]
    engine.micro_steps = saved["step"] * engine.gradient_accumulation_steps()
    _set_optimizer_steps(optimizer, saved["optimizer_steps"])
    scaler = _dynamic_loss_scaler(engine)
    if scaler is not None and saved["loss_scaler"] is not None:
        for name in _SCALER_STATE:
            setattr(scaler, name, saved["loss_scaler"][name])
    for slice_ in zero_layout.slices(engine):
        optimizer.param_groups[slice_.group]["lr"] = saved["groups"][saved_groups[slice_.name]]["lr"]


def _optimizer_steps(optimizer: torch.optim.Optimizer) -> int:
    """The updates that the optimizer has made, without skipped ones."""
    # DeepSpeed's FusedAdam counts in one tensor's state only, the last of a group.
    return max((int(state["step"]) for state in optimizer.state.values() if state), default=0)


def _set_optimizer_steps(optimizer: torch.optim.Optimizer, steps: int) -> None:
    for state in optimizer.state.values():
        if torch.is_tensor(state.get("step")):
            state["step"].fill_(steps)
        else:
            state["step"] = steps


def _dynamic_loss_scaler(engine: DeepSpeedEngine) -> Any | None:
    scaler = getattr(engine.optimizer, "loss_scaler", None)
    return scaler if getattr(scaler, "dynamic", False) else None
