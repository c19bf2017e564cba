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
        now: a clock, in seconds.
    """

    def __init__(self, run: TrainingRun, name: str, now: Callable[[], float] = time.monotonic) -> None:
        self._run, self._steps, self._first_step = run, run.settings.steps, run.state.step
        self._bar = Progress(name, self._steps, "steps", enabled=run.is_rank_0, plain_lines=False)
        self._now, self._began = now, now()
        self._printed: float | None = None
        self._overflow_explained = run.engine.skipped_steps > 0
        run.say = self._bar.say

    def on_start(self) -> None:
        """Shows the bar."""
        self._bar.__enter__()
        self._bar.resume(self._first_step)

    def on_step(self, seconds: float) -> None:
        """Moves the bar."""
        self._bar.update(1)

    def on_log(self, record: dict[str, Any]) -> None:
        """Prints the line of a record, if it is due, and explains the first overflow."""
        run, settings, now = self._run, self._run.settings, self._now()
        if self._printed is None or run.ends or now - self._printed >= LINE_SECONDS:
            self._printed = now
            run.say(self._training_line(record))
        if record["overflow_steps"] and not self._overflow_explained:
            self._overflow_explained = True
            scale = record["loss_scale"]
            run.say(explain_overflow(settings.engine.precision, record["overflow_steps"], run.state.step, scale))

    def on_trial(self, evaluation: Evaluation | None, fraction: float) -> None:
        """Prints the line of the evaluation before the first step."""
        if evaluation is not None:
            step = self._run.state.step
            self._run.say(evaluation_line(step, evaluation.metrics, evaluation.shown, evaluation.tasks, fraction))

    def on_evaluation(self, evaluation: Evaluation, seconds: float) -> None:
        """Prints the line of an evaluation."""
        step = self._run.state.step
        self._run.say(evaluation_line(step, evaluation.metrics, evaluation.shown, evaluation.tasks))

    def on_end(self) -> None:
        """Removes the bar."""
        self._bar.__exit__(None, None, None)

    def _training_line(self, record: Mapping[str, Any]) -> str:
        """The line of a logging interval. Further numbers are added if the line has room, the most important first."""
        run, step, steps = self._run, self._run.state.step, self._steps
        parts = [f"step {step:>{len(str(steps))}}/{steps}", f"loss {record['loss']:.4f}"]
        parts += [f"{task} {100 * record[f'{task}_accuracy']:.1f} %" for task in TASKS if _has_accuracy(record, task)]
        if not math.isnan(record.get("accuracy", math.nan)):
            parts.append(f"accuracy {100 * record['accuracy']:.1f} %")
        parts.append(f"{record['tokens_per_second']:,.0f} tokens/s")
        left, made = math.inf, step - self._first_step
        if made:
            left = (self._now() - self._began) / made * (steps - step)
        if run.settings.max_hours is not None:
            left = min(left, max(0.0, 3600 * run.settings.max_hours - record["seconds"]))
        if not run.ends and math.isfinite(left):
            parts.append(f"{format_duration(left)} left")
        further = []
        if record["data_wait_share"] >= WAITING:
            further.append(f"waiting {100 * record['data_wait_share']:.0f} %")
        if run.engine.device.type != "cpu" and "peak_share" in record:
            further.append(f"MFU {100 * record['peak_share']:.0f} %")
        elif run.engine.device.type != "cpu" and "tflops_per_gpu" in record:
            further.append(f"{record['tflops_per_gpu']:.3g} TFLOP/s")
        if record["overflow_steps"]:
            further.append(f"overflows {record['overflow_steps']}")
        for part in further:
            if len("  ".join([*parts, part])) <= WIDTH:
                parts.append(part)
        return "  ".join(parts)


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
    in_steps = f"in {skipped} of {steps:,} steps. Their updates were skipped"
    if precision != "fp16":
        return f"{precision}: gradients were infinite or no number {in_steps}. If it continues, lower the learning rate"
    return (
        f"fp16: gradients overflowed {in_steps}, and the loss scale was lowered to {loss_scale:g}. Some overflows are "
        "normal: they find the scale. If they continue, lower the learning rate or use --precision bf16"
    )
