"""The lines of a run on the console, few of them."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from common.text import format_duration
from pipeline.training.training_run import Callback, TrainingRun
from pipeline.training.training_task import Evaluation

LINE_SECONDS = 10.0
"""A line of training follows the previous one after this time at the earliest. metrics.jsonl has every interval."""
WAITING = 0.05
"""Part of the time spent waiting for data from which a line says so."""
TASKS = ("mlm", "sop", "nsp")


class Console(Callback):
    """Prints what happens, on rank 0.

    Args:
        now: a clock, in seconds.
    """

    def __init__(self, run: TrainingRun, now: Callable[[], float] = time.monotonic) -> None:
        self._run, self._first_step = run, run.state.step
        self._now, self._began = now, now()
        self._printed: float | None = None
        self._overflow_explained = run.engine.skipped_steps > 0

    def on_log(self, record: Mapping[str, Any], is_last: bool) -> None:
        """Prints the line of a record, if it is due, and explains the first overflow."""
        run, now = self._run, self._now()
        if self._printed is None or is_last or now - self._printed >= LINE_SECONDS:
            self._printed = now
            run.say(self._training_line(record, is_last))
        if record["overflow_steps"] and not self._overflow_explained:
            self._overflow_explained = True
            precision = run.settings.engine.precision
            what = "overflowed" if precision == "fp16" else "were infinite or no number"
            line = (
                f"{precision}: gradients {what} in {record['overflow_steps']} of {run.state.step:,} steps. Their "
                "updates were skipped; if it continues, lower the learning rate"
            )
            if precision == "fp16":
                line += f" or use --precision bf16. The loss scale was lowered to {record['loss_scale']:g}"
            run.say(line)

    def on_trial(self, evaluation: Evaluation, fraction: float) -> None:
        """Prints the line of the evaluation before the first step."""
        self._run.say(evaluation_line(self._run.state.step, evaluation, fraction))

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Prints the line of an evaluation."""
        self._run.say(evaluation_line(self._run.state.step, evaluation))

    def _training_line(self, record: Mapping[str, Any], is_last: bool) -> str:
        """The line of a logging interval."""
        run, step, steps = self._run, self._run.state.step, self._run.settings.steps
        parts = [f"step {step:>{len(str(steps))}}/{steps}", f"loss {record['loss']:.4f}"]
        parts += [f"{task} {100 * record[f'{task}_accuracy']:.1f} %" for task in TASKS if _has_accuracy(record, task)]
        if not math.isnan(record.get("accuracy", math.nan)):
            parts.append(f"accuracy {100 * record['accuracy']:.1f} %")
        parts.append(f"{record['tokens_per_second']:,.0f} tokens/s")
        if not is_last:
            left = (self._now() - self._began) / (step - self._first_step) * (steps - step)
            if run.settings.flags.max_hours is not None:
                left = min(left, max(0.0, 3600 * run.settings.flags.max_hours - record["seconds"]))
            parts.append(f"{format_duration(left)} left")
        if record["data_wait_share"] >= WAITING:
            parts.append(f"waiting {100 * record['data_wait_share']:.0f} %")
        if run.engine.device.type != "cpu" and "peak_share" in record:
            parts.append(f"MFU {100 * record['peak_share']:.0f} %")
        if record["overflow_steps"]:
            parts.append(f"overflows {record['overflow_steps']}")
        return "  ".join(parts)


def evaluation_line(step: int, evaluation: Evaluation, fraction: float = 1.0) -> str:
    """The line of an evaluation of the `fraction` of the held-out rows."""
    metrics, parts = evaluation.metrics, [f"step {step}: held out"]
    for task in evaluation.tasks:
        if _has_accuracy(metrics, task):
            accuracy = f"{100 * metrics[f'{task}_accuracy']:.1f} %"
            parts.append(
                f"{task} {metrics[f'{task}_loss']:.3f} ({accuracy})" if task == "mlm" else f"{task} {accuracy}"
            )
    if evaluation.shown.removesuffix("_loss") not in evaluation.tasks:
        parts.append(f"{evaluation.shown} {metrics[evaluation.shown]:.4f}")
    if fraction < 1.0:
        parts.append(f"({100 * fraction:.3g} % of the rows)")
    elif "mlm_below_unigram" in metrics:
        below = 100 * metrics["mlm_below_unigram"]
        parts.append(f"MLM loss {abs(below):.1f} % {'below' if below >= 0 else 'above'} the unigram entropy")
    return "  ".join(parts)


def _has_accuracy(metrics: Mapping[str, Any], task: str) -> bool:
    return not math.isnan(metrics.get(f"{task}_accuracy", math.nan))
