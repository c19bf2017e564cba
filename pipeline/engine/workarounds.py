"""Workarounds for what DeepSpeed does wrong, or slowly.

Paths and lines below are of DeepSpeed 0.19.8. Each workaround looks for what it mends, and not at the version.
`deepspeed_config` leaves out the keys for which there is no workaround. tests/pipeline/engine/test_workarounds.py shows
each bug without its workaround. When a new DeepSpeed fixes a bug, that test fails and says that the workaround can be
removed.
"""

import importlib
import logging
import math
import warnings
from typing import Any

import deepspeed
import torch
from deepspeed import DeepSpeedEngine
from deepspeed.runtime import bf16_optimizer
from torch import Tensor

from pipeline.engine.lamb import squared_norms


class LossScaleAtFloor(RuntimeError):
    """Gradients overflowed, and the fp16 loss scale, which is the message, is already the lowest of the JSON."""


def init_distributed(backend: str | None = None) -> None:
    """Calls deepspeed.init_distributed without the sums in shared memory of a processor's ranks. Collective.

    DeepSpeed would compile ops/csrc/cpu/comm/shm.cpp, for a minute, and keep 69 MB per rank in /dev/shm without end. Of
    its functions only `inference_all_reduce` uses this, which training does not call.
    """
    # By its name in sys.modules: the attribute `torch` of deepspeed.comm is torch itself.
    vars(importlib.import_module("deepspeed.comm.torch"))["build_shm_op"] = lambda: None
    deepspeed.init_distributed(backend, verbose=False)


def silence_expected_output() -> None:
    """Hides output of DeepSpeed that every run has and that needs no action: two warnings, reports of the memory."""
    # DeepSpeed 0.19.8 calls two collectives by names that torch 2.13 deprecates.
    old_names = ".*(all_gather_into_tensor|reduce_scatter_tensor).*"
    warnings.filterwarnings("ignore", message=old_names, category=FutureWarning)
    # DeepSpeed has not tested the project's LAMB under ZeRO; tests/pipeline/engine/test_lamb.py has.
    logging.getLogger("DeepSpeed").addFilter(lambda record: "untested optimizer" not in record.getMessage())
    # It prints them at stage 1 where bf16 gradients are added up in fp32.
    bf16_optimizer.see_memory_usage = lambda *_, **__: None


def apply(engine: DeepSpeedEngine) -> None:
    """Applies the workarounds to a new engine. Collective, once; `pipeline.engine.zero_layout.attach` calls it."""
    undo_first_step(engine)
    grow_loss_scale_after_step(engine)
    clip_by_exact_norm(engine)
    step_in_few_passes(engine)
    skip_sums_of_one_rank(engine)


def count_real_rows(engine: DeepSpeedEngine, train_batch_size: int) -> None:
    """Makes the engine count samples without empty rows: it has demanded a batch size that includes them."""
    engine._config.train_batch_size = train_batch_size


def undo_first_step(engine: DeepSpeedEngine) -> None:
    """Undoes the optimizer step that stage 0 makes in bf16 before training, with gradients of zero.

    runtime/fp16/unfused_optimizer.py, `initialize_optimizer_states`. The step is harmless without weight decay, but
    LAMB scales the decay up to a step of lr * |w|. It changed only the fp32 weights, so they are copied from the model.
    """
    if hasattr(engine.optimizer, "fp32_groups") and engine.basic_optimizer.state:
        engine.optimizer.refresh_fp32_params()
        engine.basic_optimizer.state.clear()


def grow_loss_scale_after_step(engine: DeepSpeedEngine) -> None:
    """Doubles the fp16 loss scale only after the step whose gradients carry the old scale.

    runtime/zero/stage_1_and_2.py 3046 and stage3.py 2826 double it before the gradients are unscaled. This halves the
    gradients of that step.
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
            try:
                scaler.update_scale(True)
            except Exception as error:  # runtime/fp16/loss_scaler.py has no class of its own for it
                raise LossScaleAtFloor(f"{scaler.cur_scale:g}") from error

    def step_then_grow(closure: Any = None) -> None:
        nonlocal clean
        clean = False
        step(closure)
        if clean:
            scaler.update_scale(False)

    optimizer._update_scale = update_scale
    optimizer.step = step_then_grow


def clip_by_exact_norm(engine: DeepSpeedEngine) -> None:
    """Clips fp32 gradients at stage 0 by their exact norm, and makes the engine return that norm.

    runtime/utils.py, `clip_grad_norm_`, sums squares in fp32, where the other stages use float64. On a CPU the norm is
    7e-5 off for a tensor of 4 million elements and 5e-3 for 67 million. The engine does not keep the norm, and computes
    none where the JSON does not clip (runtime/engine.py, `_take_model_step`).
    """
    if engine.zero_optimization_stage() > 0 or engine.fp16_enabled() or engine.bfloat16_enabled():
        return

    parameters = [parameter for parameter in engine.module.parameters() if parameter.requires_grad]

    @torch.no_grad()
    def clip(*_: Any) -> None:
        gradients = [_gradient_of(parameter) for parameter in parameters]
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient
        engine._global_grad_norm = _clip(gradients, engine.gradient_clipping())

    engine.clip_fp32_gradients = lambda: None
    engine.basic_optimizer.register_step_pre_hook(clip)


def _gradient_of(parameter: Tensor) -> Tensor:
    """The gradient in fp32. A missing one is zeros, as at stages 1 to 3."""
    return torch.zeros_like(parameter, dtype=torch.float32) if parameter.grad is None else parameter.grad.float()


def _clip(gradients: list[Tensor], limit: float) -> Tensor:
    """Scales fp32 gradients down to a norm of `limit`; 0 for none. Returns the exact norm before that, float64 ()."""
    norm = squared_norms(gradients).sum().sqrt()
    if limit > 0.0:
        torch._foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp(max=1.0).float())
    return norm


def step_in_few_passes(engine: DeepSpeedEngine) -> None:
    """Makes steps in bf16 at stage 0 read the gradients less often, with the exact norm.

    runtime/fp16/unfused_optimizer.py, `step`, looks for infinities in each gradient, for which it waits for the GPU. It
    computes the norm from a copy in fp32, and scales another copy. The norm alone shows whether all are finite.
    """
    optimizer = engine.optimizer
    if not hasattr(optimizer, "fp32_groups") or engine.fp16_enabled():
        return
    masters = [master for group in optimizer.fp32_groups for master in group]
    parameters = [parameter for group in optimizer.fp16_groups for parameter in group]

    @torch.no_grad()
    def step(closure: Any = None) -> None:
        gradients = [_gradient_of(parameter) for parameter in parameters]
        for master, gradient in zip(masters, gradients):
            master.grad = gradient
        norm = _clip(gradients, engine.gradient_clipping()).item()
        optimizer.overflow = not math.isfinite(norm)
        optimizer._global_grad_norm = math.inf if optimizer.overflow else norm
        if not optimizer.overflow:
            optimizer.optimizer.step()
            torch._foreach_copy_(parameters, masters)
        for tensor in [*masters, *parameters]:
            tensor.grad = None

    optimizer.step = step


def skip_sums_of_one_rank(engine: DeepSpeedEngine) -> None:
    """Leaves out the sum of gradients over ranks at stage 0 if there is one rank.

    runtime/engine.py, `allreduce_gradients`, would copy all of them into a buffer and back. It also puts zeros in the
    place of missing gradients; the two functions above do so as well.
    """
    if engine.zero_optimization_stage() == 0 and engine.dp_world_size == 1:
        engine.enable_backward_allreduce = False
