"""The training loop. DeepSpeed's engine does the work; this decides what it works on, and when to stop."""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from data_prep.progress import Progress
from pipeline import checkpoints, draws, health, lines, zero
from pipeline.checkpoint_files import BYTES_A_PARAMETER
from pipeline.clock import Clock
from pipeline.control import Control, StopSignals
from pipeline.deadline import Deadline, schedule_step
from pipeline.engine_config import EngineConfig
from pipeline.health import LossWatch, TrainingFailed
from pipeline.lamb import Lamb
from pipeline.monitor import Monitor
from pipeline.schedule import Schedule
from pipeline.statistics import Meter
from pipeline.tensors import prefetch, to_device
from pipeline.throughput import Throughput, peak_memory_gb
from pipeline.workload import Workload


@dataclass
class Position:
    """How far a run has come: all that a resume needs beside the engine's own state.

    Attributes:
        step: steps made, including those whose update fp16 overflow skipped. With the batch size it gives the
            samples consumed, and with the seed every row that is still to come.
        seconds: wall-clock time spent, over all starts.
        tokens: tokens trained on up to the last logged line, without padding.
        meter: sums over the steps since then, over all ranks.
        best_score: of the evaluations so far.
        best_step: the step after which it was first reached.
        finished: whether the last step is made, of however many.
    """

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    meter: list[float] | None = None
    best_score: float | None = None
    best_step: int = 0
    finished: bool = False


class TrainingSettings(Protocol):
    """What a trainer is told; `pipeline.settings.Settings` says what each means."""

    @property
    def output(self) -> Path: ...
    @property
    def engine(self) -> EngineConfig: ...
    @property
    def seed(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def log_interval(self) -> int: ...
    @property
    def save_interval(self) -> int: ...
    @property
    def eval_interval(self) -> int: ...
    @property
    def max_hours(self) -> float | None: ...


@dataclass
class Trainer:
    """Trains `engine` on the batches of `workload` as `settings` say, from `position` on.

    Attributes:
        schedule: learning rate of each step.
        throughput: turns counts into speeds; without, no TFLOP/s are told.
        kept_checkpoints: how many of the newest remain, beside the best.
        patience: steps without a better evaluation after which training ends; None: it never ends for that.
        signals: those that end training early; one that came before training began does so, too.
    """

    settings: TrainingSettings
    engine: Any
    schedule: Schedule
    workload: Workload
    control: Control
    monitor: Monitor
    position: Position
    throughput: Throughput | None = None
    kept_checkpoints: int = 5
    patience: int | None = None
    signals: StopSignals = field(default_factory=StopSignals)

    def __post_init__(self) -> None:
        self.config = self.settings.engine
        self.clock = Clock(self.position.seconds)
        self.meter = Meter(self.workload.sums_count, self.engine.device)
        self._saved_step = self.position.step or None  # a run that goes on begins at a checkpoint
        self._scores: dict[int, float] = {}  # of each evaluated step; the best checkpoint is kept by its own
        self.losses = LossWatch(self.engine.device)
        self._speed = self.throughput or Throughput(None, self.control.world_size, None)
        parameters = sum(getattr(tensor, "ds_numel", tensor.numel()) for tensor in self.engine.module.parameters())
        self.deadline = Deadline(self.settings.steps, self.settings.max_hours, BYTES_A_PARAMETER * parameters)
        self._overflow_explained = self.engine.skipped_steps > 0
        if self.position.meter is not None and self.control.rank == 0:
            self.meter.load(self.position.meter)
        steps, on_rank_0 = self.settings.steps - self.position.step, self.control.rank == 0
        self.progress = Progress(self.workload.name, steps, "steps", enabled=on_rank_0, plain_lines=False)

    def train(self) -> int | None:
        """Trains to the end of the run.

        Returns:
            None when the last step is made and saved, or the number of the signal that ended it early, once saved.
        Raises:
            TrainingFailed: the loss stays no number, the fp16 loss scale is at its floor, or the last save failed.
        """
        if self.position.finished:
            return None
        settings, position, signals = self.settings, self.position, self.signals
        if self.workload.evaluates:
            self._try_evaluation()

        with self.progress:
            for micro_batches in self.clock.waiting(prefetch(self.workload.steps(position.step))):
                began = time.perf_counter()
                share = self.deadline.share(position.step, self.clock.seconds())
                flags = signals.flags()
                told = self.control.sum(
                    [
                        *flags,
                        share if self.control.rank == 0 else 0.0,  # the clocks differ
                        *self.workload.counts(micro_batches),
                    ]
                )
                stops, share, counts = told[: len(flags)], told[len(flags)], told[len(flags) + 1 :]
                if any(stops):
                    if position.step != self._saved_step:  # else its checkpoint would lose the score that it has
                        self._save(must_succeed=True)
                    return next(int(number) for number, stop in zip(signals.NUMBERS, stops) if stop)
                rate = self._set_learning_rate(share)
                self._step(micro_batches, counts)
                position.step += 1
                last = position.step == settings.steps or share >= 1.0
                self.deadline.took("step", time.perf_counter() - began)

                if position.step % settings.log_interval == 0 or last:
                    self._report(rate)
                self.progress.update(1)
                if self.workload.evaluates and (position.step % settings.eval_interval == 0 or last):
                    self._evaluate(last)
                    last = last or self._has_waited_enough()
                position.finished = last
                if position.step % settings.save_interval == 0 or last:
                    self._save(must_succeed=last)
                if last:
                    break
        return None

    def _step(self, micro_batches: Sequence[Any], counts: Sequence[float]) -> None:
        """One optimizer step; DeepSpeed makes the update in the last of its micro-steps."""
        torch.manual_seed(dropout_seed(self.settings.seed, self.position.step, self.control.rank))
        shares = self.config.world_size * self.config.accumulation_steps
        for batch in micro_batches:
            tensors = to_device(batch, self.engine.device)
            output = self.engine(**tensors)
            loss = self.workload.loss(output, counts, shares)
            self.engine.backward(loss)
            self._update()
            self.meter.add(self.workload.sums(output, tensors))
            self.losses.add(loss)
        self.losses.end_step()

    def _update(self) -> None:
        try:
            self.engine.step()
        except Exception as error:  # DeepSpeed raises nothing more exact when the fp16 loss scale is at its floor
            if "loss scale" not in str(error):
                raise
            raise TrainingFailed(
                f"gradients overflow at step {self.position.step} with the fp16 loss scale at its floor, "
                f"{zero.loss_scale(self.engine):g}; {health.REMEDY}"
            ) from None

    def _set_learning_rate(self, share: float) -> float:
        """Sets the rate of the step to come and returns it."""
        step = self.position.step
        if self.settings.max_hours is not None:
            step = schedule_step(share, step, self.settings.steps)
        rate = self.schedule(step)
        for group in self.engine.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def _check_losses(self) -> bool:
        """Whether the loss of the last step was a number on every rank. Waits for the device; collective.

        Raises TrainingFailed where it has been none for too long.
        """
        steps = self.losses.steps()
        now, too_long = self.control.sum([steps > 0, steps >= health.NON_FINITE_STEPS])
        if too_long:
            raise TrainingFailed(
                f"the loss has been infinite or no number for {health.NON_FINITE_STEPS} steps or more at step "
                f"{self.position.step}, on {too_long:.0f} of {self.control.world_size} ranks; {health.REMEDY}"
            )
        return not now

    def _report(self, rate: float) -> None:
        """Logs the figures of the steps since the last report. Beside evaluations and saves, the one place that waits
        for the device."""
        self._check_losses()
        totals = self.control.sum(self.meter.totals())
        self.meter.reset()
        lap = self.clock.lap()
        tokens, rows = totals[-2:]
        self.position.tokens += int(tokens)
        norm = self.engine.get_global_grad_norm()
        samples = self.position.step * self.config.train_batch_size
        figures = self.workload.summarise(totals) | self.workload.progress(samples)
        figures |= {
            "samples": samples,
            "tokens": self.position.tokens,
            "learning_rate": rate,
            "grad_norm": 0.0 if norm is None else float(norm),
            "loss_scale": zero.loss_scale(self.engine),
            "overflow_steps": int(self.engine.skipped_steps),
            **self._speed.figures(tokens, rows, lap),
            "peak_memory_gb": peak_memory_gb(self.engine.device),
            "seconds": self.clock.seconds(),
        }
        optimizer = self.engine.basic_optimizer
        if isinstance(optimizer, Lamb):
            figures["trust_ratios"] = dict(zip(optimizer.tensor_names, optimizer.last_trust_ratios.tolist()))
        self.monitor.log(self.position.step, figures)
        self.progress.say(lines.training_line(self.position.step, self.settings.steps, figures))
        if figures["overflow_steps"] and not self._overflow_explained:
            self._overflow_explained = True
            skipped, scale = figures["overflow_steps"], figures["loss_scale"]
            self.progress.say(health.explain_overflow(skipped, self.position.step, scale))

    def _try_evaluation(self) -> None:
        began = time.perf_counter()
        found, share = self.workload.try_evaluation(self.engine)
        self.deadline.took("evaluation", (time.perf_counter() - began) / share)
        if found is None:
            return
        value = found.figures[found.shown]
        if not math.isfinite(value):
            raise TrainingFailed(
                f"the held-out {found.shown} is {value} after {self.position.step} steps; the data, the checkpoint or "
                "the precision is at fault"
            )
        line = lines.evaluation_line(self.position.step, found.figures, found.shown)
        self.progress.say(f"{line} ({100 * share:.3g} % of the rows)")

    def _evaluate(self, last: bool) -> None:
        began = time.perf_counter()
        with self.clock.paused():
            evaluation = self.workload.evaluate(self.engine, last)
        self.deadline.took("evaluation", time.perf_counter() - began)
        position = self.position
        self._scores[position.step] = evaluation.score
        if position.best_score is None or evaluation.score > position.best_score:
            position.best_score, position.best_step = evaluation.score, position.step
        samples = position.step * self.config.train_batch_size
        self.monitor.log(position.step, evaluation.figures | {"samples": samples}, "eval")
        self.progress.say(lines.evaluation_line(position.step, evaluation.figures, evaluation.shown))

    def _has_waited_enough(self) -> bool:
        position = self.position
        if self.patience is None or position.best_score is None:
            return False
        return position.step - position.best_step >= self.patience

    def _save(self, must_succeed: bool) -> None:
        """Saves a checkpoint. One that fails on the way costs only what would be redone after a kill: it is said,
        and training goes on; the last one must succeed. Weights whose loss is no number are no progress to save."""
        step = self.position.step
        if not self._check_losses():
            if must_succeed:
                raise TrainingFailed(f"the loss is infinite or no number at step {step}, the last; {health.REMEDY}")
            self.progress.say(f"no checkpoint of step {step}: its loss is infinite or no number")
            return
        began = time.perf_counter()
        self.position.seconds = self.clock.seconds()
        self.position.meter = self.control.sum(self.meter.totals())
        directory = self.settings.output / "checkpoints"
        with self.clock.paused():
            try:
                position, score = asdict(self.position), self._scores.get(step)
                checkpoints.save(self.engine, directory, position, keep=self.kept_checkpoints, score=score)
            except checkpoints.SaveFailed as error:
                if must_succeed:
                    raise TrainingFailed(f"the checkpoint of step {step} failed: {error}") from None
                self.progress.say(f"checkpoint of step {step} failed, training goes on: {error}")
                return
        self._saved_step = step
        seconds = time.perf_counter() - began
        self.deadline.took("save", seconds)
        self.monitor.log(step, {"checkpoint_seconds": seconds}, "save")


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """The seed of a rank's dropout in a step: a resumed run draws what an uninterrupted one would have."""
    return int(draws.words(seed, draws.Purpose.DROPOUT, step, rank, 1)[0] >> 1)
