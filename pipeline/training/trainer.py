"""The training loop. DeepSpeed's engine computes; the trainer decides when to log, evaluate, save and stop."""

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from common.progress import Progress
from pipeline.checkpoint.manifest import BYTES_A_PARAMETER
from pipeline.data import rng
from pipeline.data.prefetch import prefetch, to_device
from pipeline.data.sampler import batch_of_step
from pipeline.distributed import collective_times
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import StopSignals
from pipeline.distributed.hangs import progress
from pipeline.engine import step as engine_step
from pipeline.engine import zero_layout
from pipeline.engine.protocol import Engine
from pipeline.training.agreement import Agreements
from pipeline.training.deadline import SLOWEST_SAVE, Deadline, schedule_step
from pipeline.training.divergence import non_finite, rollback
from pipeline.training.divergence.non_finite import NonFiniteLossCounter, TrainingFailed
from pipeline.training.divergence.rollback import Rollback
from pipeline.training.divergence.spike_watch import SpikeWatch
from pipeline.training.evaluation_pace import EvaluationLeft, EvaluationPace
from pipeline.training.reporting.clock import Clock
from pipeline.training.reporting.console import Console, evaluation_line
from pipeline.training.reporting.metrics import Meter, sum_over_ranks
from pipeline.training.reporting.metrics_log import MetricsLog
from pipeline.training.reporting.stragglers import Stragglers
from pipeline.training.reporting.throughput import Throughput, peak_memory_gb
from pipeline.training.saves import RunSaves
from pipeline.training.settings import RunSettings
from pipeline.training.silent_errors import SilentErrorCheck
from pipeline.training.state import TrainState
from pipeline.training.training_task import TrainingTask


@dataclass
class Trainer:
    """Trains `engine` on the batches of `task`, starting from `state`.

    Attributes:
        signals: stop-signal handlers; signals received before training count.
        throughput: computes speeds; None leaves out TFLOP/s.
        hosts: host name of each rank, on rank 0.
        rollbacks: that the run has made.
    """

    settings: RunSettings
    engine: Engine
    task: TrainingTask
    control: ControlGroup
    metrics_log: MetricsLog
    state: TrainState
    signals: StopSignals
    throughput: Throughput | None = None
    hosts: Sequence[str] = ()
    rollbacks: Sequence[Rollback] = ()

    def __post_init__(self) -> None:
        settings, state, is_rank_0 = self.settings, self.state, self.control.rank == 0
        self.schedule = settings.schedule()
        self.clock = Clock(state.seconds)
        self.console = Console(settings.steps, state.step, on_gpu=self.engine.device.type != "cpu")
        saved_bytes = BYTES_A_PARAMETER * engine_step.parameter_count(self.engine)
        self.deadline = Deadline(settings.steps, settings.max_hours, saved_bytes)
        self.progress = progress.of_this_process()
        self.progress.took_save(saved_bytes / SLOWEST_SAVE)
        self.loss_counter = NonFiniteLossCounter(self.engine.device)
        self.spikes = SpikeWatch(settings, self.engine.device, state.spikes, len(self.rollbacks))
        self.passed_over = rollback.passed_over(self.rollbacks)
        self.meter = Meter(self.task.sums_kind, self.engine.device)
        if state.meter is not None:
            self.meter.load(state.meter)  # on all ranks, so that all of them refuse sums that do not fit
            if not is_rank_0:
                self.meter.reset()  # the sums are already those of all ranks
        self.bar = Progress(self.task.name, settings.steps - state.step, "steps", enabled=is_rank_0, plain_lines=False)
        self._pace = EvaluationPace(self.control, self.signals)
        self._collective_times = collective_times.of_this_process()
        self._stragglers = Stragglers(self.control.rank, self.control.world_size, self.hosts)
        batches = state.batches if is_rank_0 else 0
        self._silent_errors = SilentErrorCheck(self.control, self.engine, settings, self.hosts, batches)
        self._throughput = self.throughput or Throughput(None, self.control.world_size, None)
        self._overflow_explained = self.engine.skipped_steps > 0
        saved_step = state.step or None  # a resumed run starts at a checkpoint
        log, say = self.metrics_log, self.bar.say
        self._saves = RunSaves(self.engine, settings, self.clock, self.deadline, log, say, saved_step)
        self._agreements = Agreements(
            self.control, self.signals, self.deadline, self.clock, self._saves, self._stragglers, self.task
        )
        self._scores: dict[int, float] = {}  # by evaluated step: each checkpoint is saved with the score of its step

    def train(self) -> int | None:
        """Trains to the end of the run. Collective.

        Returns:
            None if the final step was completed and saved. Otherwise the number of the signal that ended training
            early, after a save.
        Raises:
            TrainingFailed: the loss stays non-finite, the fp16 loss scale is at its floor, the last save failed, or the
                run must end at a spike of the loss.
            SpikeFound: the run should go back to a checkpoint before a spike.
            SilentError: a rank holds wrong weights.
        """
        with self._saves:
            return self._train()

    def _train(self) -> int | None:
        settings, state, task = self.settings, self.state, self.task
        if state.finished:
            return None
        if settings.on_divergence == "rollback" and state.step == 0:
            self._save(must_succeed=True)  # a spike may come before any other save
        if settings.save_interval < settings.steps:
            self._saves.prepare()
        if task.evaluates:
            self._try_evaluation()

        with self.bar:
            if state.evaluation_due is not None:
                stop_signal = self._after_step(state.evaluation_due == "last", task.evaluates, save=True)
                if stop_signal is not None or state.finished:
                    return stop_signal
            with contextlib.closing(prefetch(task.steps(self._batches()))) as made:
                return self._make_steps(self.clock.waiting(made))

    def _make_steps(self, made: Iterator[Sequence[Any]]) -> int | None:
        """Makes the steps whose micro-batches `made` yields. Returns as `train`."""
        settings, state = self.settings, self.state
        upcoming: Sequence[Any] | None = None
        while True:
            self.progress.step = state.step + 1
            micro_batches = upcoming or self._prepare(made, state.step)
            if micro_batches is None:
                return None
            began = time.perf_counter()
            self.progress.enter("agreement")
            agreed = self._agreements.finish()
            if agreed.stop_signal is not None and self._check_losses():  # a loss that is not finite is not saved
                self._saves.finish()
                if state.step != self._saves.saved_step:  # saving again would discard this step's score
                    self._save(must_succeed=True)
                return agreed.stop_signal
            self._saves.go_on(agreed.busy_ranks)
            rate = self._set_learning_rate(agreed.progress)
            last = state.step + 1 == settings.steps or agreed.progress >= 1.0
            evaluate = self.task.evaluates and ((state.step + 1) % settings.eval_interval == 0 or last)
            save = (state.step + 1) % settings.save_interval == 0
            # After an evaluation or a save, the clock and the signals are looked at again before the next step.
            goes_on = not (last or evaluate or save)
            upcoming = self._step(micro_batches, agreed.label_counts, made if goes_on else iter(()))
            state.step += 1
            self.deadline.took("step", time.perf_counter() - began)
            self.progress.took_step(time.perf_counter() - began)

            if self._is_logged(state.step) or last:
                self._report(rate, last)
            self.bar.update(1)
            stop_signal = self._after_step(last, evaluate, save)
            if stop_signal is not None or state.finished:
                return stop_signal

    def _after_step(self, last: bool, evaluate: bool, save: bool) -> int | None:
        """Evaluates and saves after a step, as far as it is due. Sets `state.finished`.

        Args:
            last: whether the step is the last one; a run that is out of patience ends as well.
        Returns:
            The number of the signal that ended the evaluation early. The checkpoint then says that it is due.
        """
        if evaluate:
            self._saves.finish()  # it would wait for the next step otherwise
            try:
                self._evaluate()
            except EvaluationLeft as error:
                self.engine.train()
                self.state.evaluation_due = "last" if last else "earlier"
                self._save(must_succeed=True)
                return error.stop_signal
            last = last or self._is_out_of_patience()
        self.state.evaluation_due = None
        self.state.finished = last
        if save or last:
            self._save(must_succeed=last)
        return None

    def _batches(self) -> Iterator[int]:
        """The number of the global batch of each step to come."""
        return (batch_of_step(step, self.passed_over) for step in range(self.state.step, self.settings.steps))

    def _prepare(self, made: Iterator[Sequence[Any]], step: int) -> Sequence[Any] | None:
        """Waits for this rank's micro-batches of the step after `step` steps, and starts the agreement on it.

        Collective. Returns None if `made` has no further step.
        """
        self.progress.enter("data")
        micro_batches = next(made, None)
        if micro_batches is not None:
            self.progress.enter("agreement")
            self._agreements.start(step, micro_batches)
        return micro_batches

    def _set_learning_rate(self, progress: float) -> float:
        """Sets and returns the learning rate of the next step."""
        step = self.state.step
        if self.settings.max_hours is not None:
            step = schedule_step(progress, step, self.settings.steps)
        rate = self.schedule(step)
        engine_step.set_learning_rate(self.engine, rate)
        return rate

    def _is_logged(self, step: int) -> bool:
        """Whether a record is due after `step`."""
        return step % self.settings.log_interval == 0

    def _is_checked(self, step: int) -> bool:
        """Whether the record of `step` comes with a comparison of the ranks' weights."""
        every = self.settings.check_interval
        return every > 0 and self._is_logged(step) and step % every < self.settings.log_interval

    def _step(
        self, micro_batches: Sequence[Any], label_counts: Any, made: Iterator[Sequence[Any]]
    ) -> Sequence[Any] | None:
        """Makes one optimizer step; DeepSpeed updates the weights in the last of its micro-steps.

        Returns the micro-batches of the next step, if `made` has one. The agreement on it is started.
        """
        upcoming = None
        torch.manual_seed(dropout_seed(self.settings.seed, self.state.step, self.control.rank))
        micro_batches_per_step = self.settings.engine.world_size * self.settings.engine.accumulation_steps
        for number, batch in enumerate(micro_batches, 1):
            self.progress.enter("forward", number)
            tensors = to_device(batch, self.engine.device, self.settings.execution.attention == "flash")
            self._silent_errors.add_batch(tensors)
            output = self.engine(**tensors)
            loss = self.task.loss(output, label_counts, micro_batches_per_step)  # ()
            self.progress.enter("backward", number)
            self.engine.backward(loss)
            if number == len(micro_batches):
                upcoming = self._prepare(made, self.state.step + 1)
            self.progress.enter("optimizer", number)
            self._update()
            self.meter.add(self.task.sums(output, tensors))
            self.loss_counter.add(loss)
            self.spikes.add(loss)
        self.loss_counter.end_step()
        self.spikes.end_step(engine_step.gradient_norm_on_device(self.engine))
        return upcoming

    def _update(self) -> None:
        try:
            engine_step.step(self.engine)
        except engine_step.LossScaleAtFloor as error:
            raise TrainingFailed(
                f"gradients overflow at step {self.state.step + 1} with the fp16 loss scale at its floor, "
                f"{error.loss_scale:g}; {non_finite.REMEDY}"
            ) from None

    def _check_losses(self) -> bool:
        """Whether the loss of the last step was finite on every rank; looks for a spike in the steps since the last
        call. Waits for the device; collective.

        Raises:
            TrainingFailed: the loss has been non-finite for too many consecutive steps, or the run must end at a spike.
            SpikeFound: the run should go back to a checkpoint before a spike.
        """
        steps = self.loss_counter.consecutive_steps()
        (ranks_now, ranks_too_long), losses, norms = sum_over_ranks(
            self.control,
            [steps > 0, steps >= non_finite.NON_FINITE_STEPS],
            *self.spikes.take(self.control.rank == 0),
        )
        for spike in self.spikes.judge(self.state.step, losses, norms):
            self.bar.say(f"warning: {spike}")
            self.metrics_log.log(spike.last_step, spike._asdict(), "spike")
        if ranks_too_long:
            raise TrainingFailed(
                f"the loss has been infinite or no number for {non_finite.NON_FINITE_STEPS} steps or more at step "
                f"{self.state.step}, on {ranks_too_long:.0f} of {self.control.world_size} ranks; {non_finite.REMEDY}"
            )
        return not ranks_now

    def _report(self, rate: float, last: bool) -> None:
        """Logs the metrics of the steps since the last report. Apart from evaluations and saves, only this waits for
        the device."""
        self.progress.enter("logging")
        self._check_losses()
        (totals,) = sum_over_ranks(self.control, self.meter.totals())
        counts = self.meter.of_this_start(totals)
        self.meter.reset()
        lap = self.clock.lap()
        self.state.tokens += int(totals.tokens)
        samples = self.state.step * self.settings.engine.train_batch_size
        passed_over = batch_of_step(self.state.step - 1, self.passed_over) - (self.state.step - 1)
        behind = samples + passed_over * self.settings.engine.train_batch_size
        metrics = self.task.summarise(totals) | self.task.data_progress(behind)
        metrics |= {
            "samples": samples,
            "tokens": self.state.tokens,
            "learning_rate": rate,
            "grad_norm": engine_step.gradient_norm(self.engine),
            "loss_scale": zero_layout.loss_scale(self.engine),
            "overflow_steps": int(self.engine.skipped_steps),
            **self._throughput.metrics(*counts, lap),
            **self._stragglers.metrics(),
            "peak_memory_gb": peak_memory_gb(self.engine.device),
            "seconds": self.clock.seconds(),
        }
        if (ratios := engine_step.trust_ratios(self.engine)) is not None:
            metrics["trust_ratios"] = ratios
        if passed_over:
            metrics["batches_passed_over"] = passed_over
        if self._is_checked(self.state.step):
            metrics |= self._silent_errors.compare(self.state.step)
            self._silent_errors.forget_batches()
        self.metrics_log.log(self.state.step, metrics)
        hours = self.settings.max_hours
        seconds_left = math.inf if hours is None else max(0.0, 3600 * hours - metrics["seconds"])
        if (line := self.console.training_line(self.state.step, metrics, last, seconds_left)) is not None:
            self.bar.say(line)
        for line in (self._stragglers.line(), self._silent_errors.cost(lap.seconds)):
            if line:
                self.bar.say(line)
        if metrics["overflow_steps"] and not self._overflow_explained:
            self._overflow_explained = True
            skipped, scale = metrics["overflow_steps"], metrics["loss_scale"]
            self.bar.say(non_finite.explain_overflow(self.settings.engine.precision, skipped, self.state.step, scale))

    def _try_evaluation(self) -> None:
        """Evaluates on a few batches, so that a broken evaluation shows before the first step."""
        with self.clock.paused(), self.progress.during("evaluation"):
            evaluation, fraction = self.task.try_evaluation(self.engine)
            if self.settings.max_hours is not None:  # the first one also compiles and allocates
                began = time.perf_counter()
                self.task.try_evaluation(self.engine)
                self.deadline.took("evaluation", (time.perf_counter() - began) / fraction)
        if evaluation is None:
            return
        value = evaluation.metrics[evaluation.shown]
        if not math.isfinite(value):
            raise TrainingFailed(
                f"the held-out {evaluation.shown} is {value} after {self.state.step} steps; check the data, the "
                "checkpoint and the precision"
            )
        if self.state.step == 0:
            self.metrics_log.log(0, evaluation.metrics, "eval", recorded=False)
        self.bar.say(evaluation_line(self.state.step, evaluation.metrics, evaluation.shown, evaluation.tasks, fraction))

    def _evaluate(self) -> None:
        began = time.perf_counter()
        self._collective_times.leave_out()
        with self.clock.paused(), self.progress.during("evaluation"):
            evaluation = self.task.evaluate(self.engine, self._pace)
        self.deadline.took("evaluation", time.perf_counter() - began)
        state = self.state
        self._scores[state.step] = evaluation.score
        if state.best_score is None or evaluation.score > state.best_score:
            state.best_score, state.best_step = evaluation.score, state.step
        samples = state.step * self.settings.engine.train_batch_size
        self.metrics_log.log(state.step, evaluation.metrics | {"samples": samples}, "eval")
        self.bar.say(evaluation_line(state.step, evaluation.metrics, evaluation.shown, evaluation.tasks))

    def _is_out_of_patience(self) -> bool:
        state, patience = self.state, self.settings.patience
        if patience is None or state.best_score is None:
            return False
        return state.step - state.best_step >= patience

    def _save(self, must_succeed: bool) -> None:
        """Begins to save a checkpoint. Weights whose last loss is not finite are not saved.

        The last save of a run must succeed, and this waits for it. Training goes on after any other save that fails: it
        costs time only if the run is killed before the next save.
        """
        step = self.state.step
        self.progress.enter("save")
        self._collective_times.leave_out()
        if not self._check_losses():
            if must_succeed:
                raise TrainingFailed(f"the loss is infinite or no number at step {step}, the last; {non_finite.REMEDY}")
            self.bar.say(f"no checkpoint of step {step}: its loss is infinite or no number")
            return
        self._silent_errors.compare(step)
        self.state.batches = self._silent_errors.batches
        self.state.seconds = self.clock.seconds()
        self.state.meter = self.control.sum(self.meter.totals())
        self.state.spikes = self.spikes.state
        self._saves.begin(self.state, self._scores.get(step), self.spikes.undo_step(step), must_succeed)


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """The seed of a rank's dropout in a step. It depends on nothing else, so a resumed run draws the same values."""
    return int(rng.random_uint64(seed, rng.Purpose.DROPOUT, step, rank, 1)[0] >> 1)
