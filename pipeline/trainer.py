"""The training loop. DeepSpeed's engine does the work; this decides what it works on, and when to stop."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from data_prep.progress import Progress
from model.albert import PreTrainingOutput
from pipeline import batches, checkpoints, draws
from pipeline.batches import Batch, Reader
from pipeline.clock import Clock
from pipeline.control import Control, StopSignals
from pipeline.evaluation import evaluate
from pipeline.monitor import Monitor
from pipeline.schedule import Schedule
from pipeline.settings import Settings
from pipeline.statistics import Meter, summarise
from pipeline.tensors import prefetch, to_device

SANITY_BATCHES = 2  # evaluated before the first step, so that a broken evaluation is found at once


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
    """

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    meter: list[float] | None = None


@dataclass
class Trainer:
    """Trains `engine` on the rows of `training` as `settings` say, from `position` on.

    Attributes:
        schedule: learning rate of each step.
        held_out: rows to evaluate on, if any.
    """

    settings: Settings
    engine: Any
    schedule: Schedule
    training: Reader
    held_out: Reader | None
    control: Control
    monitor: Monitor
    position: Position

    def __post_init__(self) -> None:
        self.config = self.settings.engine
        self.clock = Clock(self.position.seconds)
        self.meter = Meter(self.engine.device)
        self._mlm_accuracy: float | None = None  # of the last evaluation; the best checkpoint is kept by it
        if self.position.meter is not None and self.control.rank == 0:
            self.meter.load(self.position.meter)

    def train(self) -> int | None:
        """Trains to the end of the run.

        Returns:
            None when the last step is made and saved, or the number of the signal that ended it early, once saved.
        Raises:
            TrainingFailed: the loss is no number.
        """
        signals = StopSignals()
        settings, position = self.settings, self.position
        if position.step == 0 and self.held_out is not None:
            evaluate(self.engine, self.held_out, self.control, self.config.micro_batch_size, SANITY_BATCHES)

        on_rank_0 = self.control.rank == 0
        with Progress("pretrain", settings.steps - position.step, "steps", enabled=on_rank_0) as progress:
            for micro_batches in self.clock.waiting(prefetch(self._steps())):
                predictions, pairs, signal_number, seconds = self.control.sum(
                    [
                        sum(int((batch.masked_labels != batches.IGNORED).sum()) for batch in micro_batches),
                        sum(int((batch.sentence_labels != batches.IGNORED).sum()) for batch in micro_batches),
                        float(signals.received or 0) if on_rank_0 else 0.0,
                        self.clock.seconds() if on_rank_0 else 0.0,
                    ]
                )
                if signal_number:
                    self._save(must_succeed=True)
                    return int(signal_number)
                share = self._share_behind(seconds)
                rate = self._set_learning_rate(share)
                self._step(micro_batches, predictions, pairs)
                position.step += 1
                last = position.step == settings.steps or share >= 1.0

                if position.step % settings.log_interval == 0 or last:
                    figures = self._report(rate)
                    speed = f"{figures['tokens_per_second']:,.0f}"
                    progress.update(0, loss=f"{figures['loss']:.3f}", tokens_per_s=speed)
                progress.update(1)
                if self.held_out is not None and (position.step % settings.eval_interval == 0 or last):
                    figures = self._evaluate(None if last else settings.eval_batches)
                    progress.update(0, held_out_mlm_loss=f"{figures['mlm_loss']:.3f}")
                if position.step % settings.save_interval == 0 or last:
                    self._save(must_succeed=last)
                if last:
                    break
        return None

    def _steps(self) -> Iterator[list[Batch]]:
        for step in range(self.position.step, self.settings.steps):
            yield batches.training_step(
                self.training,
                step,
                self.control.rank,
                self.control.world_size,
                self.config.micro_batch_size,
                self.config.train_batch_size,
            )

    def _step(self, micro_batches: list[Batch], predictions: float, pairs: float) -> None:
        """One optimizer step; DeepSpeed makes the update in the last of its micro-steps."""
        model, settings = self.settings.model, self.settings
        if model.hidden_dropout_prob or model.attention_probs_dropout_prob:
            torch.manual_seed(dropout_seed(settings.seed, self.position.step, self.control.rank))
        shares = self.config.world_size * self.config.accumulation_steps
        for batch in micro_batches:
            tensors = to_device(batch, self.engine.device)
            output = self.engine(**tensors)
            self.engine.backward(mean_loss(output, predictions, pairs, shares))
            self._update()
            self.meter.add(output, tensors["sequence_ids"])

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
        task = None if self.settings.objective == "mlm" else self.settings.objective
        figures = summarise(totals, task)
        if not math.isfinite(figures["loss"]):
            raise TrainingFailed(
                f"the loss is {figures['loss']} at step {self.position.step}; lower the learning rate, lengthen the "
                "warm-up or use --precision bf16, and start again with another --output"
            )
        tokens, rows = totals[-2:]
        self.position.tokens += int(tokens)
        norm = self.engine.get_global_grad_norm()
        figures |= {
            "samples": self.position.step * self.config.train_batch_size,
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

    def _evaluate(self, limit: int | None) -> dict[str, Any]:
        assert self.held_out is not None
        with self.clock.paused():
            figures = evaluate(self.engine, self.held_out, self.control, self.config.micro_batch_size, limit)
        figures["samples"] = self.position.step * self.config.train_batch_size
        self._mlm_accuracy = figures["mlm_accuracy"]
        self.monitor.log(self.position.step, figures, "eval")
        return figures

    def _save(self, must_succeed: bool) -> None:
        """Saves a checkpoint. One that fails on the way costs only what would be redone after a kill: it is said,
        and training goes on; the last one must succeed."""
        self.position.seconds = self.clock.seconds()
        self.position.meter = self.control.sum(self.meter.totals())
        with self.clock.paused():
            try:
                checkpoints.save(
                    self.engine, self.settings.output / "checkpoints", asdict(self.position), score=self._mlm_accuracy
                )
            except checkpoints.SaveFailed as error:
                if must_succeed:
                    raise TrainingFailed(f"the checkpoint of step {self.position.step} failed: {error}") from None
                if self.control.rank == 0:
                    print(f"checkpoint of step {self.position.step} failed, training goes on: {error}", flush=True)


def mean_loss(output: PreTrainingOutput, predictions: float, pairs: float, shares: int) -> Tensor:
    """The part of one micro-batch in the loss of the global batch: MLM loss + sentence loss, each a mean.

    The means are over all predicted tokens and all pairs of the global batch, so that how the batch is cut into
    ranks and micro-steps does not matter. DeepSpeed averages gradients over the `shares` = ranks x micro-steps;
    multiplying by their number turns its mean back into a sum.
    """
    assert output.mlm_loss_sum is not None
    assert output.sentence_loss_sum is not None
    mlm_loss = output.mlm_loss_sum * (shares / max(predictions, 1.0))
    return mlm_loss + output.sentence_loss_sum * (shares / max(pairs, 1.0))


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """The seed of a rank's dropout in a step: a resumed run draws what an uninterrupted one would have."""
    return int(draws.words(seed, draws.Purpose.DROPOUT, step, rank, 1)[0] >> 1)
