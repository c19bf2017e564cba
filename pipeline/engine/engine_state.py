"""A DeepSpeed engine: makes it, makes its steps, reads its metrics, and reads and sets all that a checkpoint holds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import deepspeed
import torch
import torch.distributed as dist
import xxhash
from deepspeed import DeepSpeedEngine
from torch import Tensor, nn

from pipeline.engine import optimizers, workarounds, zero_layout
from pipeline.engine.engine_config import EngineConfig
from pipeline.engine.hardware import sum_products_in_fp32
from pipeline.engine.lamb import Lamb, TensorSlice
from pipeline.engine.optimizers import KINDS, describe_groups, parameter_groups

Engine = DeepSpeedEngine
"""A model in training. Other packages use `backward`, `train`, `eval`, `module`, `device` and counts only."""

_SCALER_STATE = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")


def initialise(model: nn.Module, config: EngineConfig) -> tuple[DeepSpeedEngine, str]:
    """The engine, ready to train, and a description of the optimizer's parameter groups. Collective."""
    workarounds.silence_expected_output()
    # The trainer sets the learning rate of every step, with and without a `scheduler` block
    # (pipeline/training/schedule.py).
    settings = {key: value for key, value in config.json.items() if key != "scheduler"}
    # DeepSpeed's throughput timer is on by default, and waits for the GPU twice in each micro-step.
    settings["timers"] = {"throughput": {"enabled": False}} | settings.get("timers", {})
    sum_products_in_fp32()
    groups = parameter_groups(model, config.json["optimizer"].get("params", {}).get("weight_decay", 0.01))
    description = describe_groups(groups, config.optimizer)
    optimizer = optimizers.make_optimizer(config.json, groups)
    engine, *_ = deepspeed.initialize(model=model, config=settings, optimizer=optimizer)
    workarounds.count_real_rows(engine, config.train_batch_size)
    note = zero_layout.attach(engine)
    return engine, "\n".join(filter(None, (description, note)))


def set_learning_rate(engine: DeepSpeedEngine, rate: float) -> None:
    """Sets the learning rate of all parameters for the next update."""
    for group in engine.optimizer.param_groups:
        group["lr"] = rate


def trust_ratios(engine: DeepSpeedEngine) -> dict[str, float] | None:
    """The trust ratio of each scaled tensor in the last step, by name; None for optimizers other than `Lamb`."""
    optimizer = engine.basic_optimizer
    if not isinstance(optimizer, Lamb):
        return None
    return dict(zip(optimizer.tensor_names, optimizer.last_trust_ratios.tolist()))


def parameter_count(engine: DeepSpeedEngine) -> int:
    """The number of the model's parameters, at every ZeRO stage."""
    # At stage 3 a parameter is empty outside of forward and backward; `ds_numel` is its full size.
    return sum(getattr(tensor, "ds_numel", tensor.numel()) for tensor in engine.module.parameters())


class TensorState(NamedTuple):
    """A slice of one tensor and the optimizer's values for it, by kind (`KINDS`).

    They are fp32 (slice.length,) views of the engine's buffers: writing to them sets its state.
    """

    slice: TensorSlice
    values: dict[str, Tensor]


def tensor_states(engine: DeepSpeedEngine, slices: Sequence[TensorSlice]) -> list[TensorState]:
    """The values of each of `slices`. m and v are zeros before the optimizer's first step."""
    optimizer = engine.basic_optimizer
    found = []
    for slice_ in slices:
        _ensure_state(optimizer, slice_.flat)
        moments = {kind: slice_.of(optimizer.state[slice_.flat][kind]) for kind in KINDS[1:]}
        found.append(TensorState(slice_, {KINDS[0]: slice_.weight, **moments}))
    return found


def _ensure_state(optimizer: torch.optim.Optimizer, flat: Tensor) -> None:
    """Gives `flat` the state that the optimizer's first step would, if it has none."""
    if isinstance(optimizer, Lamb):
        optimizer.initialise_state(flat)
    elif not optimizer.state[flat]:
        step: Tensor | int = 0
        if isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW):
            step = torch.zeros((), device=flat.device)  # where torch's fused kernel reads it
        optimizer.state[flat].update({"step": step, **{kind: torch.zeros_like(flat.detach()) for kind in KINDS[1:]}})


def engine_state(engine: DeepSpeedEngine) -> dict[str, Any]:
    """The engine's state without its tensors: what state.json of a checkpoint holds."""
    optimizer = engine.basic_optimizer
    scaler = _dynamic_loss_scaler(engine)
    # Updates, without skipped steps. DeepSpeed's FusedAdam counts them in one tensor's state only, the last of a group.
    steps = max((int(state["step"]) for state in optimizer.state.values() if state), default=0)
    return {
        "step": engine.global_steps,
        "samples": engine.global_samples,
        "skipped_steps": engine.skipped_steps,
        "optimizer": type(optimizer).__name__,
        "optimizer_steps": steps,
        "groups": [{name: group[name] for name in group if name != "params"} for group in optimizer.param_groups],
        "loss_scaler": None if scaler is None else {name: getattr(scaler, name) for name in _SCALER_STATE},
        "zero_stage": zero_layout.stage(engine),
        "world_size": dist.get_world_size(zero_layout.process_group(engine)),
    }


def restore(engine: DeepSpeedEngine, saved: Mapping[str, Any], saved_groups: Mapping[str, int]) -> None:
    """Sets counters, loss scale and learning rates to those of `saved`, after its tensors were loaded. Collective.

    The other settings of the optimizer remain those of the engine. saved_groups: by name of the tensor, the index of
    its parameter group in the saved "groups".
    """
    zero_layout.refresh_model_weights(engine)
    optimizer = engine.basic_optimizer
    engine.global_steps = saved["step"]
    engine.global_samples = saved["samples"]
    engine.skipped_steps = saved["skipped_steps"]
    engine.micro_steps = saved["step"] * engine.gradient_accumulation_steps()
    for state in optimizer.state.values():
        if torch.is_tensor(state.get("step")):
            state["step"].fill_(saved["optimizer_steps"])
        else:
            state["step"] = saved["optimizer_steps"]
    scaler = _dynamic_loss_scaler(engine)
    if scaler is not None and saved["loss_scaler"] is not None:
        for name in _SCALER_STATE:
            setattr(scaler, name, saved["loss_scaler"][name])
    for slice_ in zero_layout.slices(engine):
        optimizer.param_groups[slice_.group]["lr"] = saved["groups"][saved_groups[slice_.name]]["lr"]


def _dynamic_loss_scaler(engine: DeepSpeedEngine) -> Any | None:
    scaler = getattr(engine.optimizer, "loss_scaler", None)
    return scaler if getattr(scaler, "dynamic", False) else None


def weights_checksum(engine: DeepSpeedEngine) -> str:
    """The checksum of the model's weights on this rank; "" at stage 3, where no rank has all. Waits for the device.

    Once a save: it hashes the 446 MB of albert-xxlarge in 0.2 s on one core; the copy takes about as long (arithmetic).
    """
    if zero_layout.stage(engine) == 3:
        return ""
    checksum = xxhash.xxh3_64()
    for parameter in engine.module.parameters():
        checksum.update(parameter.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return checksum.hexdigest()


def differing_ranks(checksums: Sequence[str]) -> list[int]:
    """The ranks whose checksum is not that of the majority; all ranks if there are several and no majority."""
    (usual, count), *others = Counter(checksums).most_common()
    if not others:
        return []
    return [rank for rank, checksum in enumerate(checksums) if checksum != usual or 2 * count <= len(checksums)]
