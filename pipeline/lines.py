"""A record of metrics as one line for people."""

import math
from collections.abc import Mapping
from typing import Any

TASKS = ("mlm", "sop", "nsp")


def training_line(step: int, steps: int, figures: Mapping[str, Any]) -> str:
    """The line of a logging interval, from the figures of `metrics.jsonl`."""
    parts = [f"step {step:>{len(str(steps))}}/{steps}", f"loss {figures['loss']:.4f}", *_accuracies(figures)]
    parts += [f"lr {figures['learning_rate']:.3e}", f"grad norm {figures['grad_norm']:.3g}"]
    if figures["overflow_steps"]:
        parts.append(f"overflows {figures['overflow_steps']}")
    parts.append(f"{figures['tokens_per_second']:,.0f} tokens/s")
    if "tflops_per_gpu" in figures:
        parts.append(f"{figures['tflops_per_gpu']:.3g} TFLOP/s a rank{_of_peak(figures)}")
    parts.append(f"waiting {100 * figures['data_wait_share']:.0f} %")
    parts.append(f"{figures['peak_memory_gb']:.2f} GB")
    return "  ".join(parts)


def evaluation_line(step: int, figures: Mapping[str, Any], shown: str) -> str:
    """The line of an evaluation, from the figures of `metrics.jsonl`; `shown` is one of them."""
    parts = [f"step {step}: held out", *_accuracies(figures)]
    if shown.removesuffix("_loss") not in TASKS:
        parts.append(f"{shown} {figures[shown]:.4f}")
    if "mlm_below_unigram" in figures:
        below = 100 * figures["mlm_below_unigram"]
        parts.append(f"MLM loss {abs(below):.1f} % {'below' if below >= 0 else 'above'} the unigram entropy")
    return "  ".join(parts)


def _accuracies(figures: Mapping[str, Any]) -> list[str]:
    names = [task for task in TASKS if not math.isnan(figures.get(f"{task}_accuracy", math.nan))]
    return [f"{name} {figures[f'{name}_loss']:.3f} ({100 * figures[f'{name}_accuracy']:.1f} %)" for name in names]


def _of_peak(figures: Mapping[str, Any]) -> str:
    return f" ({100 * figures['peak_share']:.0f} % of peak)" if "peak_share" in figures else ""
