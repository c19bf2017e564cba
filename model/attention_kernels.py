"""Which kernel attends packed rows: by rule on a processor, by measurement on a GPU.

On a GPU the candidates run forward and backward on rows of the first batch of their kind. One that raises, or whose
result or gradients differ from those of the masked kernel by more than rounding, is out; of the others the fastest
serves all batches with rows of that length from then on. The masked kernel always works, so there is always one.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from model.attention import AttentionLayout, attend
from model.config import Implementation, flash_takes

LONGEST_MASKED_ROW = 128
"""On a processor, rows of at most so many positions are attended under a mask: going through their sequences one by one
costs more (1.3 times the whole step of albert-tiny at 64) than it saves."""

ROWS_TRIED = 8
"""Rows of a batch on which GPU kernels are measured: enough to fill a GPU, whatever the micro-batch."""
REPEATS = 5
TOLERANCE = 2e-2
"""Largest difference to the masked kernel, relative to the largest value: 16-bit numbers round at 2**-9 (bf16), and a
kernel that sees a token too many is off by a tenth and more."""


@dataclass(frozen=True)
class Case:
    """What a choice depends on: everything that decides a kernel's speed but the texts.

    Attributes:
        length: positions of a row.
        most_in_a_row: sequences that a row can have, padding included; None where that is not known.
        width: of one of the `heads`.
        dropout: of the attention weights.
    """

    device: torch.device
    dtype: torch.dtype
    length: int
    most_in_a_row: int | None
    heads: int
    width: int
    dropout: float


Outcome = tuple[Tensor, Tensor]
"""Contexts, and the gradient of the projections."""

_chosen: dict[Case, str] = {}


def choose_kernel(implementation: Implementation, case: Case, sequence_ids: Tensor) -> str:
    """One of `model.config.ATTENTION_KERNELS` but "auto", for packed rows `sequence_ids` (B, S) int64.

    The host waits for a GPU only when a case comes for the first time. Raises ValueError where "flash" is insisted on
    and `case` does not say how many sequences a row can have.
    """
    if implementation.attention == "flash" and case.most_in_a_row is None:
        raise ValueError("attention 'flash' has to know how many sequences a row can have; give cls_positions")
    if implementation.attention != "auto":
        return implementation.attention
    if torch.compiler.is_compiling():
        return "masked"
    if case.device.type == "cpu" and not implementation.compile:
        return "sequences" if case.length > LONGEST_MASKED_ROW else "masked"
    if case.device.type != "cuda":
        return "masked"
    if case not in _chosen:
        _chosen[case] = measured_kernel(case, sequence_ids[:ROWS_TRIED])
    return _chosen[case]


def chosen_kernels() -> dict[Case, str]:
    """What has been measured in this process so far: each case with the kernel that serves it."""
    return dict(_chosen)


def candidates(case: Case) -> list[str]:
    """The kernels that may serve a GPU, the one that always works first.

    FlashAttention and cuDNN have no fp32, FlexAttention no dropout.
    """
    names = ["masked"]
    if case.dtype in (torch.float16, torch.bfloat16):
        names.append("cudnn")
        if case.most_in_a_row is not None and flash_takes(case.width):
            names.append("flash")
    if not case.dropout:
        names.append("flex")
    return names


def measured_kernel(case: Case, sequence_ids: Tensor) -> str:
    """The fastest of the candidates on the rows `sequence_ids` (B, S), forward and backward with random projections.

    Leaves the state of the random numbers as it was: none that the training draws depends on what is tried here.
    """
    rows, length = sequence_ids.shape
    on_gpu = case.device.type == "cuda"
    with torch.random.fork_rng(devices=[case.device] if on_gpu else []), torch.enable_grad():
        shape = (rows, length, 3, case.heads, case.width)
        projected = torch.randn(shape, device=case.device, dtype=case.dtype, requires_grad=True)
        direction = torch.randn(rows, length, case.heads, case.width, device=case.device, dtype=case.dtype)

        def layout(kernel: str) -> AttentionLayout:
            return AttentionLayout.for_packed_rows(sequence_ids, kernel, case.most_in_a_row)

        def run(layout: AttentionLayout, dropout: float) -> Outcome:
            context = attend(projected, layout, dropout)  # (B, S, heads, D)
            (gradient,) = torch.autograd.grad(context, projected, direction)  # (B, S, 3, heads, D)
            return context.detach(), gradient

        def clock() -> float:
            if on_gpu:
                torch.cuda.synchronize(case.device)
            return time.perf_counter()

        def seconds(kernel: str) -> float:
            made = layout(kernel)  # once for all layers, so its time does not count
            run(made, case.dropout)
            start = clock()
            for _ in range(REPEATS):
                run(made, case.dropout)
            return clock() - start

        def result(kernel: str) -> Outcome:
            return run(layout(kernel), 0.0)

        return fastest({kernel: partial(result, kernel) for kernel in candidates(case)}, seconds)


def fastest(results: Mapping[str, Callable[[], Outcome]], seconds: Callable[[str], float]) -> str:
    """The name with the least `seconds`, of those whose result and gradients are those of the first.

    A candidate that raises, in its result or its timing, is passed over, and so is one that differs, which ought not
    to be and is a warning.
    """
    first, *others = results
    expected = results[first]()
    times = {first: seconds(first)}
    for name in others:
        try:
            with warnings.catch_warnings(action="ignore"):  # why a kernel is not to be had
                agrees = _agree(results[name](), expected)
                if agrees:
                    times[name] = seconds(name)
        except Exception:  # torch, Triton and cuDNN each have their own for what this GPU or this build lacks
            continue
        if not agrees:
            warnings.warn(f"the attention kernel {name!r} gives wrong results here and is not used", stacklevel=2)
    return min(times, key=times.__getitem__)


def _agree(found: Outcome, expected: Outcome) -> bool:
    def near(one: Tensor, other: Tensor) -> bool:
        return bool((one - other).abs().max() <= TOLERANCE * other.abs().max())

    return all(near(one, other) for one, other in zip(found, expected))
