"""Says which kernel "auto" is, and which kernels may serve a training run on a GPU.

On a CPU a rule decides. On a GPU, "auto" is the masked kernel, which always works. A training run measures the
candidates first and names the fastest one (`pipeline/run/attention_choice.py`).

Legend of the shapes: B rows, S positions in a row, D head_dim.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.attention.self_attention import AttentionPattern, attend
from model.config import NOT_DETERMINISTIC, ExecutionOptions, flash_supports

MAX_MASKED_LENGTH = 128
"""On a CPU, rows of at most this many positions use the masked kernel. One product for each sequence is slower for
them: a step of albert-tiny with rows of 64 takes 1.3 times as long."""

REPEATS = 10
"""Timed runs of a kernel."""
TOLERANCE = 2e-2
"""Largest accepted difference to exact attention, relative to the largest value. bf16 rounds at 2**-9; a kernel that
attends to one token too many differs by 0.1 or more."""
MAX_COMPARED_ROWS = 4
"""Rows that are compared with exact attention, whose weights take memory."""


@dataclass(frozen=True)
class AttentionCase:
    """What the choice of a kernel depends on.

    Attributes:
        length: S, positions in a row.
        heads: number of attention heads.
        head_dim: D, the width of one head.
        dropout: probability of dropping an attention weight.
        deterministic: whether two backward passes must give the same bits.
    """

    device: torch.device
    dtype: torch.dtype
    length: int
    heads: int
    head_dim: int
    dropout: float
    deterministic: bool = False


Outcome = tuple[Tensor, Tensor]
"""The context (B, S, heads, D), and the gradient (B, S, 3, heads, D) of query, key and value."""


class WrongResult(RuntimeError):
    """A kernel differs from exact attention by more than rounding."""


def choose_kernel(execution: ExecutionOptions, device: torch.device, length: int) -> str:
    """Returns the kernel for packed rows of `length` positions: one of `ATTENTION_KERNELS` other than "auto"."""
    if execution.attention != "auto":
        return execution.attention
    if device.type != "cpu" or execution.compile or torch.compiler.is_compiling():
        return "masked"
    return "sequences" if length > MAX_MASKED_LENGTH else "masked"


def candidates(case: AttentionCase) -> list[str]:
    """Returns the kernels that may serve `case` on a GPU, first "masked", which always works.

    FlashAttention and cuDNN do not support fp32. The backward pass of cuDNN adds in no fixed order; those of the others
    can be told to. With a mask, cuDNN gives NaN on Hopper for some rows of 64, 192, 320, ... positions (pytorch/pytorch
    issue 196678), and its heads are limited to 128.
    """
    names = ["masked"]
    if case.dtype in (torch.float16, torch.bfloat16):
        if case.length % 128 != 64 and case.head_dim % 8 == 0 and case.head_dim <= 128:
            names.append("cudnn")
        if flash_supports(case.head_dim):
            names.append("flash")
    return [name for name in names if not (case.deterministic and name in NOT_DETERMINISTIC)]


def seconds_of(case: AttentionCase, kernel: str, sequence_ids: Tensor, cu_seqlens: Tensor | None) -> float:
    """Returns the seconds of a forward and backward pass of `kernel` on random numbers.

    Args:
        sequence_ids: int64 (B, S) on the device of `case`: a micro-batch of the size that will be trained on.
        cu_seqlens: see `AttentionPattern.for_packed_rows`.
    Raises:
        WrongResult: the result or the gradients differ from those of exact attention.
        Exception: of torch or cuDNN, where the kernel is unavailable.
    """
    rows, length = sequence_ids.shape
    shape = (rows, length, 3, case.heads, case.head_dim)
    projected = torch.randn(shape, device=case.device, dtype=case.dtype, requires_grad=True)  # (B, S, 3, heads, D)
    direction = torch.randn_like(projected[:, :, 0])  # (B, S, heads, D)

    def run(pattern: AttentionPattern, dropout: float) -> Outcome:
        context = attend(projected, pattern, dropout)  # (B, S, heads, D)
        (gradient,) = torch.autograd.grad(context, projected, direction)  # (B, S, 3, heads, D)
        return context.detach(), gradient

    # Made once for all layers of a model, so it is not timed.
    made = AttentionPattern.for_packed_rows(sequence_ids, kernel, cu_seqlens)
    if not agrees_with_exact_attention(run(made, 0.0), projected, direction, sequence_ids):
        raise WrongResult("its results are wrong here")
    run(made, case.dropout)
    return _seconds(lambda: run(made, case.dropout), case.device) / REPEATS


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """The seconds of `REPEATS` calls, on the device: a GPU's own clock does not count how long the host launches."""
    if device.type != "cuda":
        began = time.perf_counter()
        for _ in range(REPEATS):
            work()
        return time.perf_counter() - began
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(REPEATS):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def agrees_with_exact_attention(found: Outcome, projected: Tensor, direction: Tensor, sequence_ids: Tensor) -> bool:
    """Whether a kernel's outcome for `projected` is that of plain products in fp32, up to rounding.

    Args:
        projected: (B, S, 3, heads, D), query, key and value.
        direction: (B, S, heads, D), the gradient of the context.
        sequence_ids: (B, S).
    """
    rows = slice(MAX_COMPARED_ROWS)
    inputs = projected[rows].detach().float().requires_grad_()  # (R, S, 3, heads, D)
    ids = sequence_ids[rows]  # (R, S)
    query, key, value = inputs.permute(2, 0, 3, 1, 4).unbind(0)  # (R, heads, S, D)
    mask = ids[:, None, :, None] == ids[:, None, None, :]  # (R, 1, S, S)
    with sdpa_kernel(SDPBackend.MATH):
        context = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)  # (R, heads, S, D)
    context = context.transpose(1, 2)  # (R, S, heads, D)
    (gradient,) = torch.autograd.grad(context, inputs, direction[rows].float())  # (R, S, 3, heads, D)
    return all(
        bool((one[rows].float() - exact).abs().max() <= TOLERANCE * exact.abs().max())
        for one, exact in zip(found, (context, gradient))
    )
