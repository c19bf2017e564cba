"""Says which attention kernel the tokens of packed rows go through."""

import torch
from torch import Tensor

from model.config import ExecutionOptions, flash_supports

MAX_MASKED_LENGTH = 128
"""On a CPU, rows of at most this many positions use the masked kernel. One product for each sequence is slower for
them: a step of albert-tiny with rows of 64 takes 1.3 times as long."""

FLASH_CAPABILITY = (8, 0)
"""The compute capability of the oldest GPUs that FlashAttention runs on."""


def choose_kernel(execution: ExecutionOptions, hidden: Tensor, head_dim: int, has_offsets: bool) -> str:
    """Returns the kernel for packed rows: one of `ATTENTION_KERNELS` other than "auto".

    Args:
        hidden: (B, S, H), the input of the first layer.
        has_offsets: whether the batch has `cu_seqlens`, which "flash" needs.
    """
    if execution.attention != "auto":
        return execution.attention
    if hidden.device.type == "cpu":
        is_compiled = execution.compile or torch.compiler.is_compiling()
        return "masked" if is_compiled or hidden.shape[1] <= MAX_MASKED_LENGTH else "sequences"
    is_16_bit = hidden.dtype in (torch.float16, torch.bfloat16)
    if hidden.device.type != "cuda" or not is_16_bit or not has_offsets or not flash_supports(head_dim):
        return "masked"
    return "flash" if torch.cuda.get_device_capability(hidden.device) >= FLASH_CAPABILITY else "masked"
