"""The lines of a run on the console: few, and none wider than 100 columns. On a terminal also a bar."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common.progress import Progress
from common.text import format_duration
from pipeline.training.callback import Callback
from pipeline.training.state import TrainingRun
from pipeline.training.training_task import Evaluation

WIDTH = 100
LINE_SECONDS = 10.0
"""A line of training follows the previous one after this time at the earliest. metrics.jsonl has every interval."""
WAITING = 0.05
"""Part of the time spent waiting for data from which a line says so."""
TASKS = ("mlm", "sop", "nsp")


class Console(Callback):
    """Prints what happens, on rank 0. It must follow the callbacks that add to records.

    Args:
        name: of the task, for the bar.
        steps: at which training ends; None for those of the run.
    """

    def __init__(self, run: TrainingRun, name: str, steps: int | None = None) -> None:
        steps, step = steps or run.settings.steps, run.state.step
        self._run = run
        self._bar = Progress(name, steps - step, "steps", enabled=run.is_rank_0, plain_lines=False)
        self._lines = ConsoleLines(steps, step, on_gpu=run.engine.device.type != "cpu")
        self._overflow_explained = run.engine.skipped_steps > 0
        run.say = self._bar.say

    def start(self) -> None:
        """Shows the bar."""
        self._bar.__enter__()

    def step(self, seconds: float) -> None:
        """Moves the bar."""
        self._bar.update(1)

    def log(self, record: dict[str, Any]) -> None:
        """Prints the line of a record, if it is due, and explains the first overflow."""
        run, settings = self._run, self._run.settings
        seconds_left = math.inf
        if settings.max_hours is not None:
            seconds_left = max(0.0, 3600 * settings.max_hours - record["seconds"])
        if (line := self._lines.training_line(run.state.step, record, run.ends, seconds_left)) is not None:
            run.say(line)
        if record["overflow_steps"] and not self._overflow_explained:
            self._overflow_explained = True
            scale = record["loss_scale"]
            run.say(explain_overflow(settings.engine.precision, record["overflow_steps"], run.state.step, scale))

    def tried_evaluation(self, evaluation: Evaluation | None, fraction: float) -> None:
        """Prints the line of the evaluation before the first step."""
        if evaluation is not None:
            step = self._run.state.step
            self._run.say(evaluation_line(step, evaluation.metrics, evaluation.shown, evaluation.tasks, fraction))

    def evaluated(self, evaluation: Evaluation, seconds: float) -> None:
        """Prints the line of an evaluation."""
        step = self._run.state.step
        self._run.say(evaluation_line(step, evaluation.metrics, evaluation.shown, evaluation.tasks))

    def end(self) -> None:
        """Removes the bar."""
        self._bar.__exit__(None, None, None)


class ConsoleLines:
    """Decides which lines of training are printed, and makes them.

    Args:
        steps: of the whole run.
        step: at which this start begins.
        on_gpu: whether the run trains on a GPU; only then a line has its speed in FLOP/s.
        now: a clock, in seconds.
    """

    def __init__(self, steps: int, step: int, on_gpu: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._steps, self._first_step, self._on_gpu, self._now = steps, step, on_gpu, now
        self._began = now()
        self._printed: float | None = None

    def training_line(
        self, step: int, metrics: Mapping[str, Any], last: bool, seconds_left: float = math.inf
    ) -> str | None:
        """The line of a logging interval; None if the previous line is too recent. First and last are always there.

        Args:
            metrics: a record of `metrics.jsonl`.
            last: whether it is the last step of the run.
            seconds_left: until the limit on the run's time.
        """
        now = self._now()
        if self._printed is not None and not last and now - self._printed < LINE_SECONDS:
            return None
        self._printed = now
        made = step - self._first_step
        left = min((now - self._began) / made * (self._steps - step), seconds_left) if made else seconds_left
        parts = [f"step {step:>{len(str(self._steps))}}/{self._steps}", f"loss {metrics['loss']:.4f}"]
        parts += [f"{task} {100 * metrics[f'{task}_accuracy']:.1f} %" for task in TASKS if _has_accuracy(metrics, task)]
        if not math.isnan(metrics.get("accuracy", math.nan)):
            parts.append(f"accuracy {100 * metrics['accuracy']:.1f} %")
        parts.append(f"{metrics['tokens_per_second']:,.0f} tokens/s")
        if not last and math.isfinite(left):
            parts.append(f"{format_duration(left)} left")
        for part in self._further(metrics):
            if len("  ".join([*parts, part])) <= WIDTH:
                parts.append(part)
        return "  ".join(parts)

    def _further(self, metrics: Mapping[str, Any]) -> list[str]:
        """What is added if the line has room for it, the most important first."""
        parts = []
        if metrics["data_wait_share"] >= WAITING:
            parts.append(f"waiting {100 * metrics['data_wait_share']:.0f} %")
        if self._on_gpu and "peak_share" in metrics:
            parts.append(f"MFU {100 * metrics['peak_share']:.0f} %")
        elif self._on_gpu and "tflops_per_gpu" in metrics:
            parts.append(f"{metrics['tflops_per_gpu']:.3g} TFLOP/s")
        if metrics["overflow_steps"]:
            parts.append(f"overflows {metrics['overflow_steps']}")
        return parts


def evaluation_line(
    step: int, metrics: Mapping[str, Any], shown: str, tasks: Sequence[str] = (), fraction: float = 1.0
) -> str:
    """The line of an evaluation.

    Args:
        metrics: a record of `metrics.jsonl`.
        shown: the name of one of its metrics.
        tasks: those of `TASKS` that the run trains.
        fraction: part of the held-out rows that was evaluated.
    """
    parts = [f"step {step}: held out"]
    for task in tasks:
        if _has_accuracy(metrics, task):
            accuracy = f"{100 * metrics[f'{task}_accuracy']:.1f} %"
            parts.append(
                f"{task} {metrics[f'{task}_loss']:.3f} ({accuracy})" if task == "mlm" else f"{task} {accuracy}"
            )
    if shown.removesuffix("_loss") not in tasks:
        parts.append(f"{shown} {metrics[shown]:.4f}")
    if fraction < 1.0:
        parts.append(f"({100 * fraction:.3g} % of the rows)")
    elif "mlm_below_unigram" in metrics:
        below = 100 * metrics["mlm_below_unigram"]
        parts.append(f"MLM loss {abs(below):.1f} % {'below' if below >= 0 else 'above'} the unigram entropy")
    return "  ".join(parts)


def _has_accuracy(metrics: Mapping[str, Any], task: str) -> bool:
    return not math.isnan(metrics.get(f"{task}_accuracy", math.nan))


def explain_overflow(precision: str, skipped: int, steps: int, loss_scale: float) -> str:
    """The message about the first step of a run whose gradients were not finite. In fp16 this is an overflow.

    Args:
        precision: "fp32", "bf16" or "fp16".
        skipped: steps whose update was skipped.
        steps: all steps so far.
        loss_scale: the present one.
    """
    if precision != "fp16":
        return (
            f"{precision}: gradients were infinite or no number in {skipped} of {steps:,} steps. Their updates were "
            "skipped (overflow_steps in metrics.jsonl counts them). If they continue, lower the learning rate or "
            "lengthen the warm-up"
        )
    return (
        f"fp16: gradients overflowed in {skipped} of {steps:,} steps. Their updates were skipped, and the loss scale "
        f"was lowered to {loss_scale:g}. Several overflows at the start and one now and then are normal: they find the "
        "loss scale (overflow_steps in metrics.jsonl counts them). If they continue, lower the learning rate or use "
        "--precision bf16"
    )
