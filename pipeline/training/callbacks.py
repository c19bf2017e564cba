"""The callbacks of a run, on rank 0: the lines on the console; `metrics.jsonl` and TensorBoard."""

import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from common.text import format_duration
from pipeline.checkpoint.save_and_load import Saved
from pipeline.settings.run_settings import as_json
from pipeline.training.metrics_file import METRICS, drop_after, finite
from pipeline.training.training_run import Callback, Evaluation, TrainingRun

LINE_SECONDS = 10.0
"""A line of training follows the previous one after this time at the earliest. metrics.jsonl has every interval."""
WAITING = 0.05  # part of the time spent waiting for data from which a line says so
SHRINKING = 0.8  # part of LAMB's update that the weight decay is, from which a line says so; else below 0.01
TASKS = ("mlm", "sop", "nsp")
_COUNTS = {"step", "samples", "tokens", "interval_tokens", "pairs", "predictions", "seconds", "epochs"}
"""Numbers of a record that are no curves, nor are those of one corpus or held-out directory."""


class Console(Callback):
    """Prints what happens, on rank 0. now: a clock, in seconds."""

    def __init__(self, run: TrainingRun, now: Callable[[], float] = time.monotonic) -> None:
        self._run, self._first_step = run, run.state.step
        self._now, self._began = now, now()
        self._printed: float | None = None
        self._overflow_explained = run.engine.skipped_steps > 0
        self._shrinking_explained = False

    def on_log(self, record: Mapping[str, Any], is_last: bool) -> None:
        """Prints the line of a record, if it is due, and explains the first overflow and the first lost gradients."""
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
                line += f" or use --precision bf16. The loss scale is {record['loss_scale']:g} now"
            run.say(line)
        if not self._shrinking_explained and (shrinking := self._shrinking(record)):
            self._shrinking_explained = True
            run.say(
                f"LAMB shrinks {', '.join(shrinking)} at each step: their gradients are so small that the update is "
                "mostly weight decay. If the loss stands still, start again with a lower rate"
            )

    def _shrinking(self, record: Mapping[str, Any]) -> list[str]:
        """The tensors whose update is mostly weight decay. Of weight decay alone the trust ratio is 1 / weight_decay.

        Heads and poolers may have no gradient because nothing trains them.
        """
        ratios = {n: r for n, r in record.get("trust_ratios", {}).items() if ".embeddings." in n or ".encoder." in n}
        decay = max((group["weight_decay"] for group in self._run.engine.optimizer.param_groups), default=0.0)
        return [name for name, ratio in ratios.items() if ratio * decay > SHRINKING]

    def on_trial(self, evaluation: Evaluation, fraction: float) -> None:
        """Prints the line of the evaluation before the first step, from which on the time that is left is estimated."""
        self._began = self._now()
        self._run.say("\n".join(evaluation_lines(self._run.state.step, evaluation, fraction)))

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Prints the line of an evaluation. One before the first step does not count for the time that is left."""
        if self._run.state.step == self._first_step:
            self._began = self._now()
        self._run.say("\n".join(evaluation_lines(self._run.state.step, evaluation)))

    def _training_line(self, record: Mapping[str, Any], is_last: bool) -> str:
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


def evaluation_lines(step: int, evaluation: Evaluation, fraction: float = 1.0) -> list[str]:
    """The lines of an evaluation of the `fraction` of the held-out rows, one for each held-out set."""
    return [
        _evaluation_line(f"step {step}: held out{name and f' {name}'}", evaluation, metrics, fraction)
        for name, metrics in evaluation.parts().items()
    ]


def _evaluation_line(begin: str, evaluation: Evaluation, metrics: Mapping[str, Any], fraction: float) -> str:
    parts = [begin]
    for task in evaluation.tasks:
        if _has_accuracy(metrics, task):
            accuracy = f"{100 * metrics[f'{task}_accuracy']:.1f} %"
            parts.append(
                f"{task} {metrics[f'{task}_loss']:.3f} ({accuracy})" if task == "mlm" else f"{task} {accuracy}"
            )
    if evaluation.shown in metrics and evaluation.shown.removesuffix("_loss") not in evaluation.tasks:
        parts.append(f"{evaluation.shown} {metrics[evaluation.shown]:.4f}")
    if fraction < 1.0:
        parts.append(f"({100 * fraction:.3g} % of the rows)")
    elif "mlm_below_unigram" in metrics:
        below = 100 * metrics["mlm_below_unigram"]
        parts.append(f"MLM loss {abs(below):.1f} % {'below' if below >= 0 else 'above'} the unigram entropy")
    return "  ".join(parts)


def _has_accuracy(metrics: Mapping[str, Any], task: str) -> bool:
    return not math.isnan(metrics.get(f"{task}_accuracy", math.nan))


class MetricsLog(Callback):
    """Writes a record for each logged line, evaluation and save.

    Records of later steps than the state's are dropped first: a run that was killed wrote them, and this start will
    write them again. A full disk does not end the run: records wait in memory until there is space, and the curves of
    TensorBoard end. On ranks other than 0 it does nothing.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._run, self._enabled = run, run.is_rank_0
        if not self._enabled:
            return
        output = run.settings.flags.output
        # A record of the first step can only be that of its evaluation, which a new start makes again.
        drop_after(output, run.state.step - (run.state.step == run.settings.first_step))
        self._file = (output / METRICS).open("ab", buffering=0)
        self._unwritten = b""
        self._complained = False
        self._tensorboard: Any = None
        self._guarded(self._open_tensorboard)

    def on_log(self, record: Mapping[str, Any], is_last: bool) -> None:
        """Writes the record of the present step."""
        self.log(self._run.state.step, record)

    def on_trial(self, evaluation: Evaluation, fraction: float) -> None:
        """Gives the curves of a new run their first point, which is none of metrics.jsonl."""
        if self._run.state.step == 0 and self._enabled:
            self._log_curves(0, evaluation.metrics, "eval")

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Writes the record of an evaluation."""
        step = self._run.state.step
        self.log(step, evaluation.metrics | {"samples": self._run.settings.samples_after(step)}, "eval")

    def on_save(self) -> None:
        """Makes the records so far survive a power loss: a run that resumes from the save does not write them again."""
        if self._enabled:
            self._guarded(self._write_records)
            self._guarded(lambda: os.fsync(self._file.fileno()))

    def on_checkpoint(self, checkpoint: Saved) -> None:
        """Writes what a save has cost."""
        seconds = {"checkpoint_seconds": checkpoint.seconds, "blocked_seconds": checkpoint.blocked_seconds}
        self.log(checkpoint.step, seconds, "save")

    def on_end(self) -> None:
        """Closes the files."""
        if self._enabled:
            self._guarded(self._write_records)
            if self._tensorboard is not None:
                self._guarded(self._tensorboard.close)
            self._file.close()

    def log(self, step: int, metrics: Mapping[str, Any], split: str = "train") -> None:
        """Writes one record to metrics.jsonl, and its curves, such as `train/loss`, to TensorBoard.

        A number that is not finite (a mean over nothing) is null in the record.
        """
        if self._enabled:
            record = {"step": step, "split": split, **finite(metrics)}
            self._unwritten += json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
            self._guarded(self._write_records)
            self._log_curves(step, metrics, split)

    def _open_tensorboard(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        _silence_the_writer()
        settings, step = json.loads(as_json(vars(self._run.settings))), self._run.state.step
        settings.pop("pretraining", None)  # of the run that fine-tuning started from
        directory = self._run.settings.flags.output / "tensorboard"
        self._tensorboard = SummaryWriter(str(directory), purge_step=step + 1 if step else 0, flush_secs=10)
        # Of each start, because some may change. As code, in which no character has a meaning.
        self._tensorboard.add_text("settings", f"```json\n{json.dumps(settings, indent=2)}\n```", step)

    def _write_records(self) -> None:
        while self._unwritten:
            self._unwritten = self._unwritten[self._file.write(self._unwritten) :]

    def _log_curves(self, step: int, metrics: Mapping[str, Any], split: str) -> None:
        def write() -> None:
            if self._tensorboard is not None:
                for tag, value in curves_of(split, metrics).items():
                    self._tensorboard.add_scalar(tag, value, step)

        self._guarded(write)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Calls `work`. Prints the first I/O error; training continues after any of them."""
        try:
            work()
        except OSError as error:
            if not self._complained:
                print(f"metrics cannot be written, training goes on: {error}", file=sys.stderr, flush=True)
            self._complained = True
            # The event file may end in the middle of an event: nothing may follow it.
            tensorboard, self._tensorboard = self._tensorboard, None
            if tensorboard is not None:
                with contextlib.suppress(OSError):
                    tensorboard.close()


def _silence_the_writer() -> None:
    """Keeps I/O errors of TensorBoard's own thread off the console: its next call raises them again."""
    usual = threading.excepthook

    def hook(failure: threading.ExceptHookArgs) -> None:
        is_the_writer = type(failure.thread).__module__.startswith("tensorboard.")
        if not (is_the_writer and issubclass(failure.exc_type, OSError)):
            usual(failure)

    if usual.__module__ != __name__:
        threading.excepthook = hook


def curves_of(split: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a record that become curves, by tag, such as "train/loss". Counts do not."""
    if split not in ("train", "eval"):
        return {}
    part = -1 if split == "eval" else 0  # "wikipedia/pairs" of held-out rows, but "samples/wikipedia" of training
    numbers = {f"{split}/{name}": n for name, n in _numbers(metrics) if name.split("/")[part] not in _COUNTS}
    if ratios := dict(_numbers(metrics.get("trust_ratios") or {})):
        numbers |= {"train/trust_ratio_min": min(ratios.values()), "train/trust_ratio_max": max(ratios.values())}
    return numbers


def _numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield name, float(value)
