"""Chooses the attention kernel for packed rows: by a rule on a CPU, by measurement on a GPU.

On a GPU the candidates run forward and backward on rows of the first batch. A candidate is rejected if it raises, or if
its result or gradients differ from those of the masked kernel by more than rounding. The fastest of the others serves
all later batches with rows of that length. The masked kernel always works, so there is always a choice.

Legend of the shapes: B rows, S positions in a row, D head_dim.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from model.attention.self_attention import AttentionLayout, attend
from model.config import ExecutionOptions, flash_supports

MAX_MASKED_LENGTH = 128
"""On a CPU, rows of at most this many positions use the masked kernel. One product for each sequence is slower for
them: a step of albert-tiny with rows of 64 takes 1.3 times as long."""

MAX_ROWS_MEASURED = 8
"""Kernels are measured on at most this many rows of a batch: enough to fill a GPU."""
REPEATS = 5
"""Timed runs of each kernel."""
TOLERANCE = 2e-2
"""Largest accepted difference to the masked kernel, relative to the largest value. bf16 rounds at 2**-9; a kernel that
attends to one token too many differs by 0.1 or more."""


@dataclass(frozen=True)
class AttentionCase:
    """What the choice of a kernel depends on.

    Attributes:
        length: positions in a row.
        max_sequences: largest number of sequences in a row, padding counted as one; None if it is not known.
        heads: number of attention heads.
        head_dim: D, the width of one head.
        dropout: probability of dropping an attention weight.
    """

    device: torch.device
    dtype: torch.dtype
    length: int
    max_sequences: int | None
    heads: int
    head_dim: int
    dropout: float


Outcome = tuple[Tensor, Tensor]
"""The context (B, S, heads, D), and the gradient (B, S, 3, heads, D) of query, key and value."""

_chosen: dict[AttentionCase, str] = {}


def choose_kernel(execution: ExecutionOptions, case: AttentionCase, sequence_ids: Tensor) -> str:
    """Returns the kernel for packed rows `sequence_ids` int64 (B, S): one of `ATTENTION_KERNELS` other than "auto".

    A GPU is synchronised only when a case occurs for the first time.

    Raises:
        ValueError: `execution` demands "flash", and `case` does not tell the largest number of sequences in a row.
    """
    if execution.attention == "flash" and case.max_sequences is None:
        raise ValueError("attention 'flash' has to know how many sequences a row can have; give cls_positions")
    if execution.attention != "auto":
        return execution.attention
    if torch.compiler.is_compiling():
        return "masked"
    if case.device.type == "cpu" and not execution.compile:
        return "sequences" if case.length > MAX_MASKED_LENGTH else "masked"
    if case.device.type != "cuda":
        return "masked"
    if case not in _chosen:
        _chosen[case] = measured_kernel(case, sequence_ids[:MAX_ROWS_MEASURED])
    return _chosen[case]


def chosen_kernels() -> dict[AttentionCase, str]:
    """Returns the choices that were measured in this process: the kernel of each case."""
    return dict(_chosen)


def candidates(case: AttentionCase) -> list[str]:
    """Returns the kernels that may serve `case` on a GPU, first "masked", which always works.

    FlashAttention and cuDNN do not support fp32. FlexAttention does not support dropout.
    """
    names = ["masked"]
    if case.dtype in (torch.float16, torch.bfloat16):
        names.append("cudnn")
        if case.max_sequences is not None and flash_supports(case.head_dim):
            names.append("flash")
    if not case.dropout:
        names.append("flex")
    return names


def measured_kernel(case: AttentionCase, sequence_ids: Tensor) -> str:
    """Returns the fastest candidate on the rows `sequence_ids` int64 (B, S), forward and backward on random numbers.

    The state of the random number generators is restored, so training does not depend on the measurement.
    """
    rows, length = sequence_ids.shape
    on_gpu = case.device.type == "cuda"
    with torch.random.fork_rng(devices=[case.device] if on_gpu else []), torch.enable_grad():
        shape = (rows, length, 3, case.heads, case.head_dim)
        where: dict[str, Any] = {"device": case.device, "dtype": case.dtype}
        projected = torch.randn(shape, **where, requires_grad=True)  # (B, S, 3, heads, D)
        direction = torch.randn(rows, length, case.heads, case.head_dim, **where)  # (B, S, heads, D)

        def layout(kernel: str) -> AttentionLayout:
            return AttentionLayout.for_packed_rows(sequence_ids, kernel, case.max_sequences)

        def run(layout: AttentionLayout, dropout: float) -> Outcome:
            context = attend(projected, layout, dropout)  # (B, S, heads, D)
            (gradient,) = torch.autograd.grad(context, projected, direction)  # (B, S, 3, heads, D)
            return context.detach(), gradient

        def clock() -> float:
            if on_gpu:
                torch.cuda.synchronize(case.device)
            return time.perf_counter()

        def seconds(kernel: str) -> float:
            made = layout(kernel)  # made once for all layers of a model, so it is not timed
            run(made, case.dropout)
            start = clock()
            for _ in range(REPEATS):
                run(made, case.dropout)
            return clock() - start

        def result(kernel: str) -> Outcome:
            return run(layout(kernel), 0.0)

        return fastest({kernel: partial(result, kernel) for kernel in candidates(case)}, seconds)


def fastest(results: Mapping[str, Callable[[], Outcome]], seconds: Callable[[str], float]) -> str:
    """Returns the name with the least `seconds` among those whose outcome agrees with that of the first name.

    A candidate that raises is skipped. A candidate that does not agree is skipped with a warning.
    """
    first, *others = results
    expected = results[first]()
    times = {first: seconds(first)}
    for name in others:
        try:
            with warnings.catch_warnings(action="ignore"):  # torch warns about unavailable kernels
                agrees = _agree(results[name](), expected)
                if agrees:
                    times[name] = seconds(name)
        except Exception:  # torch, Triton and cuDNN raise different errors where a kernel is unavailable
            continue
        if not agrees:
            warnings.warn(f"the attention kernel {name!r} gives wrong results here and is not used", stacklevel=2)
    return min(times, key=times.__getitem__)


def _agree(found: Outcome, expected: Outcome) -> bool:
    def near(one: Tensor, other: Tensor) -> bool:
        return bool((one - other).abs().max() <= TOLERANCE * other.abs().max())

    return all(near(one, other) for one, other in zip(found, expected))
