"""What DeepSpeed gets wrong for this project: the remedies, and the refusal of what has none.

Read against the version in `DEEPSPEED`; paths are inside that package. tests/pipeline/test_defects.py shows each
defect without its remedy, so that the day DeepSpeed mends one, a test says that the remedy can go.
"""

import os
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator

from data_prep.errors import UserError
from pipeline.lamb import squared_norms

DEEPSPEED = "0.19.8"


def check_version() -> None:
    """Raises UserError when another DeepSpeed is installed than the one whose buffers this file describes."""
    installed = deepspeed.__version__.split("+")[0]
    if installed != DEEPSPEED:
        raise UserError(
            f"deepspeed {installed} is installed, and LAMB knows its way in the buffers of {DEEPSPEED} only; "
            f"pip install deepspeed=={DEEPSPEED}"
        )


def init_distributed(backend: str | None = None) -> None:
    """deepspeed.init_distributed, without leaving memory behind.

    ops/csrc/cpu/comm/shm.cpp never takes the names of its buffers out of /dev/shm: 69 MB a rank that outlive the job,
    until memory is full. Once every rank has opened those of the others, nobody needs the names.
    """
    deepspeed.init_distributed(backend, verbose=False)
    if get_accelerator().device_name() == "cpu":
        dist.barrier()
        shared_memory().unlink(missing_ok=True)


def shared_memory() -> Path:
    """Where this rank's buffer for sums among the ranks of one host has its name."""
    address, port, rank = (os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "RANK"))
    return Path(f"/dev/shm/deepspeed_allreduce_buffer_{os.getuid()}_{address}_{port}_{rank}")


def mend(engine: Any) -> None:
    """Applies the remedies to a new engine. Collective, once; `pipeline.zero.attach` does it."""
    forget_first_step(engine)
    grow_loss_scale_after_step(engine)
    clip_by_exact_norm(engine)


def forget_first_step(engine: Any) -> None:
    """Undoes the optimizer step that stage 0 makes in bf16 before training, on gradients of zero.

    runtime/fp16/unfused_optimizer.py, `initialize_optimizer_states`: harmless without weight decay, but LAMB
    scales a mere decay up to a step of lr * |w|. The model's own weights were not touched by it.
    """
    if hasattr(engine.optimizer, "fp32_groups") and engine.global_steps == 0:
        engine.optimizer.refresh_fp32_params()
        engine.basic_optimizer.state.clear()


def grow_loss_scale_after_step(engine: Any) -> None:
    """Lets the fp16 loss scale double only after the step whose gradients carry the old scale.

    runtime/zero/stage_1_and_2.py 3046 and stage3.py 2826 double it before the gradients are unscaled, which
    halves them on that step.
    """
    optimizer = engine.optimizer
    if engine.zero_optimization_stage() == 0 or not engine.fp16_enabled():
        return
    scaler, step = optimizer.loss_scaler, optimizer.step
    clean = False

    def update_scale(has_overflow: bool = False) -> None:
        nonlocal clean
        clean = not has_overflow
        if has_overflow:
            scaler.update_scale(True)

    def step_then_grow(closure: Any = None) -> None:
        nonlocal clean
        clean = False
        step(closure)
        if clean:
            scaler.update_scale(False)

    optimizer._update_scale = update_scale
    optimizer.step = step_then_grow


def clip_by_exact_norm(engine: Any) -> None:
    """Clips the gradients of fp32 at stage 0 by their exact norm, and lets the engine tell that norm.

    runtime/utils.py, `clip_grad_norm_`: it adds up squares in fp32 where the other stages take float64, which on a
    CPU is 7e-5 off for a tensor of 4 million elements and 5e-3 for 67 million; and the norm is thrown away.
    bf16 at stage 0 and `bf16_optimizer.py` do the same, within what bf16 rounds off anyway: left alone.
    """

    @torch.no_grad()
    def clip() -> None:
        gradients = [parameter.grad for parameter in engine.module.parameters() if parameter.grad is not None]
        norm = squared_norms(gradients).sum().sqrt()
        engine._global_grad_norm = norm
        factor = (engine.gradient_clipping() / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, factor.float())

    engine.clip_fp32_gradients = clip


def refuse_what_is_wrong(config: dict[str, Any]) -> None:
    """Raises UserError for settings of a DeepSpeed JSON under which training or a resume would be wrong.

    Args:
        config: the JSON as read, before DeepSpeed sees it.
    """
    check_version()
    zero = config.get("zero_optimization") or {}
    level = zero.get("stage", 0)
    if zero.get("round_robin_gradients"):
        raise UserError(
            "zero_optimization.round_robin_gradients moves the tensors of a group but not the map of where "
            "they lie, so trust ratios would mix tensors; remove it"
        )
    if (config.get("fp16") or {}).get("enabled") and level == 0:
        raise UserError(
            "fp16 at ZeRO stage 0 divides gradients by a loss scale that the loss never had; "
            'set "zero_optimization": {"stage": 1}, on one GPU as well'
        )
    if config.get("activation_checkpointing"):
        raise UserError(
            "the activation_checkpointing block means DeepSpeed's reentrant checkpointing, which gives wrong "
            "gradients for shared layers under ZeRO; remove it and use --activation-checkpointing"
        )
    for block, name in (
        ("fp16", "fp16_master_weights_and_grads"),
        ("bf16", "bf16_master_weights_and_grads"),
        ("bf16", "bf16_optimizer_states"),
    ):
        if (config.get(block) or {}).get(name):
            raise UserError(f"{block}.{name} keeps the weights in 16 bits, and training needs fp32 ones; remove it")
    hiding = ("zenflow", "super_offload", "zero_quantized_weights", "zero_quantized_gradients")
    for name in hiding:
        if zero.get(name) or (zero.get("offload_optimizer") or {}).get(name):
            raise UserError(f"zero_optimization.{name} changes or hides the optimizer's buffers; remove it")
    if zero.get("zero_hpz_partition_size", 1) > 1:
        raise UserError(
            "zero_optimization.zero_hpz_partition_size keeps second copies that a resume would miss; remove it"
        )
    offload = (zero.get("offload_optimizer") or {}).get("device", "none")
    if offload == "nvme" or (zero.get("offload_param") or {}).get("device") == "nvme":
        raise UserError('offloading to "nvme" leaves no weights in memory to read; use "cpu" or no offload')
    optimizer = config.get("optimizer") or {}
    kind = optimizer.get("type", "Lamb")
    params = optimizer.get("params") or {}
    ours = kind.lower() == "lamb" or (kind == "AdamW" and params.get("bias_correction") is False)
    fused = not ours and not params.get("torch_adam")
    if (config.get("bf16") or {}).get("enabled") and level == 0 and fused:
        raise UserError(
            f"bf16 with {kind} at ZeRO stage 0 keeps its fp32 weights where checkpoints do not look; "
            'set "zero_optimization": {"stage": 1}, on one GPU as well'
        )
    if ours and level > 0:
        if not config.get("zero_allow_untested_optimizer"):
            raise UserError('our optimizer under ZeRO needs "zero_allow_untested_optimizer": true; add it')
        if offload == "cpu" and config.get("zero_force_ds_cpu_optimizer", True):
            raise UserError('our optimizer with an offloaded state needs "zero_force_ds_cpu_optimizer": false; add it')
