"""The learning rate of every step, as pure functions of the step.

Steps count from 0: the update of step `s` uses `rate(s)`. The functions keep no state, so a run that resumes at step
`s` has no scheduler state to restore.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from common.errors import UserError
from pipeline.settings.run_settings import RunSettings

Schedule = Callable[[int], float]

KINDS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "WarmupStableDecay")  # values of `scheduler.type`
WITH_PEAK = ("WarmupLR", "WarmupDecayLR")  # those that may have a `warmup_max_lr`
MAX_RATE = 3e38  # the largest learning rate, near the largest number in fp32


def albert(step: int, peak: float, warmup_steps: int, total_steps: int) -> float:
    """The schedule of the paper's code (`create_optimizer`): a linear warm-up, then a linear decay to 0.

    The decay line starts at step 0, not at the end of the warm-up. So the rate *drops* when the warm-up ends:
    0.00176 * 3124/3125 at step 3124, then 0.00176 * (1 - 3125/125000) at step 3125.
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    return peak * max(0.0, 1.0 - step / total_steps)


def warmup(step: int, steps: int, shape: str) -> float:
    """Progress of a warm-up of `steps` steps, 0 to 1: "linear", or "log" (DeepSpeed's default)."""
    if step >= steps:
        return 1.0
    return step / steps if shape == "linear" else math.log(step + 1) / math.log(max(2, steps))


def decay(steps_left: int, steps: int, shape: str) -> float:
    """The part of the peak, 1 to 0, with `steps_left` steps left of which the last `steps` are a decay.

    "linear", or "1-sqrt": 1 minus the square root of the part of the decay that is over (Hägele et al., 2405.18392).
    """
    if steps_left >= steps:
        return 1.0
    return steps_left / steps if shape == "linear" else 1.0 - math.sqrt(1.0 - steps_left / steps)


def of_run(settings: RunSettings) -> Schedule:
    """The schedule of a run. Raises UserError as `from_config`."""
    engine = settings.engine
    return from_config(engine.json.get("scheduler"), engine.learning_rate, settings.warmup_steps, settings.steps)


def warmup_length(block: Mapping[str, Any] | None, warmup_steps: int | None, total_steps: int) -> int:
    """The steps of the warm-up. See `from_config`."""
    if warmup_steps is not None:
        return warmup_steps
    from_block = (block or {}).get("params", {}).get("warmup_num_steps")
    return round(0.025 * total_steps) if from_block is None else int(from_block)


def from_config(block: Mapping[str, Any] | None, peak: float, warmup_steps: int | None, total_steps: int) -> Schedule:
    """The schedule of a DeepSpeed JSON's `scheduler` block; the paper's schedule without a block.

    WarmupLR stays at its peak after the warm-up, WarmupDecayLR falls linearly to its `warmup_min_lr`, WarmupCosineLR
    along half a cosine to `cos_min_ratio` times the peak. WarmupStableDecay is not DeepSpeed's: it stays at its peak
    and falls to 0 in the last `decay_num_steps` steps, see `decay`.

    Args:
        peak: learning rate; the block's `warmup_max_lr` replaces it.
        warmup_steps: of the command line; None for the block's, or 2.5 % of the steps (the paper's) without one.
        total_steps: length of the run; the block's `total_num_steps` is ignored.
    """
    warmup_steps = warmup_length(block, warmup_steps, total_steps)
    if not 0 <= warmup_steps <= total_steps:
        fault = f"{warmup_steps} warm-up steps do not fit into {total_steps} steps"
        raise UserError(f"{fault}; lengthen the run or shorten the warm-up")
    kind, params = (block or {}).get("type"), dict((block or {}).get("params", {}))
    if kind not in (None, *KINDS):
        raise UserError(f"scheduler.type {kind!r} is not known; use {', '.join(KINDS)}, or no block for the paper's")
    shape = params.pop("warmup_type", "linear" if kind == "WarmupStableDecay" else "log")
    floor = start = end = 0.0
    decay_steps, decay_shape = 0, "linear"
    if kind in WITH_PEAK:
        floor, peak = float(params.pop("warmup_min_lr", 0.0)), float(params.pop("warmup_max_lr", peak))
    elif kind == "WarmupCosineLR":
        start, end = float(params.pop("warmup_min_ratio", 0.0)), float(params.pop("cos_min_ratio", 0.0001))
    elif kind == "WarmupStableDecay":
        decay_steps, decay_shape = params.pop("decay_num_steps", 0), params.pop("decay_type", "linear")
        if not 0 <= decay_steps <= total_steps - warmup_steps:
            raise UserError(
                f"{warmup_steps} warm-up steps and {decay_steps} steps of decay do not fit into {total_steps} steps; "
                "lengthen the run or shorten one of them"
            )
    if unknown := sorted(params.keys() - {"total_num_steps", "warmup_num_steps"}):
        raise UserError(f"scheduler.params.{unknown[0]} is not a parameter of {kind}; remove it")
    if peak > MAX_RATE:
        raise UserError(f"a learning rate of {peak:g} is larger than any number in fp32; lower it")

    def rate(step: int) -> float:
        if kind is None:
            return albert(step, peak, warmup_steps, total_steps)
        warm = warmup(step, warmup_steps, shape)
        if kind == "WarmupCosineLR":
            if step < warmup_steps:
                return peak * (start + (1.0 - start) * warm)
            progress = min(1.0, (step - warmup_steps + 1) / max(1, total_steps - warmup_steps))
            return peak * (end + (1.0 - end) * (1.0 + math.cos(math.pi * progress)) / 2.0)
        if kind == "WarmupStableDecay":
            return peak * warm * decay(total_steps - step, decay_steps, decay_shape)
        if kind == "WarmupDecayLR" and step >= warmup_steps:
            warm = max(0.0, (total_steps - step) / max(1, total_steps - warmup_steps))
        return floor + (peak - floor) * warm

    return rate


def step_of_progress(progress: float, step: int, steps: int) -> int:
    """The step of the schedule to use at `step`: a later one if a time limit will end the run early.

    progress: how far the run is by its time limit, 0 to 1; 0 without one.
    """
    return min(max(step, int(progress * steps)), steps - 1)
