"""The training loop. DeepSpeed's engine does the work; this decides what it works on, and when to stop."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from data_prep.progress import Progress
from pipeline import checkpoints, draws
from pipeline.clock import Clock
from pipeline.control import Control, StopSignals
from pipeline.engine_config import EngineConfig
from pipeline.monitor import Monitor
from pipeline.schedule import Schedule
from pipeline.statistics import Meter
from pipeline.tensors import prefetch, to_device
from pipeline.workload import Evaluation, Workload


class TrainingFailed(RuntimeError):
    """Training cannot go on; the message says why and what to try."""


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
    """

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    meter: list[float] | None = None
    best_score: float | None = None
    best_step: int = 0


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
        kept_checkpoints: how many of the newest remain, beside the best.
        patience: steps without a better evaluation after which training ends; None: it never ends for that.
    """

    settings: TrainingSettings
    engine: Any
    schedule: Schedule
    workload: Workload
    control: Control
    monitor: Monitor
    position: Position
    kept_checkpoints: int = 5
    patience: int | None = None

    def __post_init__(self) -> None:
        self.config = self.settings.engine
        self.clock = Clock(self.position.seconds)
        self.meter = Meter(self.workload.sums_count, self.engine.device)
        self._scores: dict[int, float] = {}  # of each evaluated step; the best checkpoint is kept by its own
        if self.position.meter is not None and self.control.rank == 0:
            self.meter.load(self.position.meter)

    def train(self) -> int | None:
        """Trains to the end of the run.

        Returns:
            None when the last step is made and saved, or the number of the signal that ended it early, once saved.
        Raises:
            TrainingFailed: the loss is no number.
        """
        if self._has_waited_enough():
            return None
        signals = StopSignals()
        settings, position = self.settings, self.position
        if position.step == 0 and self.workload.evaluates:
            self.workload.try_evaluation(self.engine)

        on_rank_0 = self.control.rank == 0
        with Progress(self.workload.name, settings.steps - position.step, "steps", enabled=on_rank_0) as progress:
            for micro_batches in self.clock.waiting(prefetch(self.workload.steps(position.step))):
                *counts, signal_number, seconds = self.control.sum(
                    [
                        *self.workload.counts(micro_batches),
                        float(signals.received or 0) if on_rank_0 else 0.0,
                        self.clock.seconds() if on_rank_0 else 0.0,
                    ]
                )
                if signal_number:
                    self._save(must_succeed=True)
                    return int(signal_number)
                share = self._share_behind(seconds)
                rate = self._set_learning_rate(share)
                self._step(micro_batches, counts)
                position.step += 1
                last = position.step == settings.steps or share >= 1.0

                if position.step % settings.log_interval == 0 or last:
                    figures = self._report(rate)
                    speed = f"{figures['tokens_per_second']:,.0f}"
                    progress.update(0, loss=f"{figures['loss']:.3f}", tokens_per_s=speed)
                progress.update(1)
                if self.workload.evaluates and (position.step % settings.eval_interval == 0 or last):
                    evaluation = self._evaluate(last)
                    progress.update(
                        0, **{f"held_out_{evaluation.shown}": f"{evaluation.figures[evaluation.shown]:.3f}"}
                    )
                    last = last or self._has_waited_enough()
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
            self.engine.backward(self.workload.loss(output, counts, shares))
            self._update()
            self.meter.add(self.workload.sums(output, tensors))

    def _update(self) -> None:
        try:
            self.engine.step()
        except Exception as error:  # DeepSpeed raises nothing more exact when the fp16 loss scale is at its floor
            if "loss scale" not in str(error):
                raise
            raise TrainingFailed(
                f"gradients overflow at step {self.position.step} with the fp16 loss scale at its floor; lower the "
                "learning rate, lengthen the warm-up or use --precision bf16, and start again with another --output"
            ) from None

    def _share_behind(self, seconds: float) -> float:
        """Share of the run that is done: of its steps or, with a limit on time, of its hours, whichever is more."""
        steps = self.position.step / self.settings.steps
        hours = self.settings.max_hours
        return steps if hours is None else min(1.0, max(steps, seconds / 3600.0 / hours))

    def _set_learning_rate(self, share: float) -> float:
        """Sets the rate of the step to come and returns it. A run that time will end walks the same curve faster."""
        step = self.position.step
        if self.settings.max_hours is not None:
            step = max(step, int(share * self.settings.steps))
        rate = self.schedule(step)
        for group in self.engine.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def _report(self, rate: float) -> dict[str, Any]:
        """Logs the figures of the steps since the last report. The one place that waits for the device."""
        totals = self.control.sum(self.meter.totals())
        self.meter.reset()
        lap = self.clock.lap()
        figures = self.workload.summarise(totals)
        if not math.isfinite(figures["loss"]):
            raise TrainingFailed(
                f"the loss is {figures['loss']} at step {self.position.step}; lower the learning rate, lengthen the "
                "warm-up or use --precision bf16, and start again with another --output"
            )
        tokens, rows = totals[-2:]
        self.position.tokens += int(tokens)
        norm = self.engine.get_global_grad_norm()
        samples = self.position.step * self.config.train_batch_size
        figures |= self.workload.progress(samples)
        figures |= {
            "samples": samples,
            "tokens": self.position.tokens,
            "learning_rate": rate,
            "grad_norm": 0.0 if norm is None else float(norm),
            "loss_scale": float(self.engine.loss_scale()) if self.config.precision == "fp16" else 1.0,
            "overflow_steps": int(self.engine.skipped_steps),
            "tokens_per_second": tokens / lap.seconds,
            "rows_per_second": rows / lap.seconds,
            "data_wait_share": lap.waiting / lap.seconds,
            "seconds": self.clock.seconds(),
        }
        self.monitor.log(self.position.step, figures)
        return figures

    def _evaluate(self, last: bool) -> Evaluation:
        with self.clock.paused():
            evaluation = self.workload.evaluate(self.engine, last)
        position = self.position
        self._scores[position.step] = evaluation.score
        if position.best_score is None or evaluation.score > position.best_score:
            position.best_score, position.best_step = evaluation.score, position.step
        samples = position.step * self.config.train_batch_size
        self.monitor.log(position.step, evaluation.figures | {"samples": samples}, "eval")
        return evaluation

    def _has_waited_enough(self) -> bool:
        return self.patience is not None and self.position.step - self.position.best_step >= self.patience

    def _save(self, must_succeed: bool) -> None:
        """Saves a checkpoint. One that fails on the way costs only what would be redone after a kill: it is said,
        and training goes on; the last one must succeed."""
        self.position.seconds = self.clock.seconds()
        self.position.meter = self.control.sum(self.meter.totals())
        with self.clock.paused():
            try:
                checkpoints.save(
                    self.engine,
                    self.settings.output / "checkpoints",
                    asdict(self.position),
                    keep=self.kept_checkpoints,
                    score=self._scores.get(self.position.step),
                )
            except checkpoints.SaveFailed as error:
                if must_succeed:
                    raise TrainingFailed(f"the checkpoint of step {self.position.step} failed: {error}") from None
                if self.control.rank == 0:
                    print(f"checkpoint of step {self.position.step} failed, training goes on: {error}", flush=True)


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """The seed of a rank's dropout in a step: a resumed run draws what an uninterrupted one would have."""
    return int(draws.words(seed, draws.Purpose.DROPOUT, step, rank, 1)[0] >> 1)
