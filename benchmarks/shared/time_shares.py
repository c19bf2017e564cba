"""Profiles the time of a step by kind of work."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.shared.measure import synchronise

# (kind, parts of the names of torch's operators and inductor's kernels); the first line that matches decides.
_KINDS = (
    ("cross entropy", ("log_softmax", "nll_loss", "argmax")),
    ("attention", ("bmm", "softmax", "attention", "AttentionInSequences")),
    ("linear layers", ("::mm", "::addmm", "linear")),
    ("fused kernels", ("triton",)),
    ("GELU", ("gelu",)),
    ("LayerNorm", ("layer_norm",)),
    ("copies", ("copy_", "::cat", "::stack", "::clone", "::fill_", "::zero_")),
    ("sums and products", ("::add", "::mul", "::div", "::sum")),
)


def time_shares(
    gradients: Callable[[], object], update: Callable[[], object], device: torch.device
) -> dict[str, float]:
    """The part of each kind of work in the time of the operators of `gradients()` and `update()`, the largest first.

    The update counts as one kind.
    """
    kinds = _by_kind(gradients, device)
    kinds["LAMB update"] = sum(_by_kind(update, device).values())
    total = sum(kinds.values())
    return {kind: spent / total for kind, spent in sorted(kinds.items(), key=lambda item: -item[1])}


def _by_kind(work: Callable[[], object], device: torch.device) -> dict[str, float]:
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with profile(activities=activities) as profiled:
        work()
        synchronise(device)
    return sum_by_kind(profiled.key_averages(), on_gpu=device.type == "cuda")


def sum_by_kind(events: Iterable[Any], on_gpu: bool) -> dict[str, float]:
    """Microseconds of each kind of work in torch.profiler's `events`.

    On a GPU each kernel is listed twice: in the operator that launched it, whose name says its purpose, and alone. Only
    the operators count.
    """
    kinds = dict[str, float]()
    for event in events:
        if event.device_type != DeviceType.CPU:
            continue
        spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        kind = next((kind for kind, parts in _KINDS if any(part in event.key for part in parts)), "other")
        kinds[kind] = kinds.get(kind, 0.0) + spent
    return kinds
