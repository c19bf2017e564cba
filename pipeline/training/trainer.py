"""The training loop. DeepSpeed computes; callbacks look on (`Callback` in `pipeline.training.training_run`)."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import NamedTuple, TypeVar

import torch

from common.progress_bar import Progress
from pipeline.checkpoint.save_and_load import SaveFailed, Saver
from pipeline.data import rng
from pipeline.data.prefetch import prefetch, to_device
from pipeline.data.sampler import batch_of_step
from pipeline.distributed import progress
from pipeline.distributed.exits import StopSignals
from pipeline.engine import engine_state, workarounds
from pipeline.training import schedule
from pipeline.training.callbacks import Console, MetricsLog
from pipeline.training.run_end import (
    Deadline,
    Divergence,
    NextStep,
    check_equal_weights,
    check_trial,
    expected_save_seconds,
)
from pipeline.training.step_metrics import StepMetrics
from pipeline.training.training_run import REMEDY, Callback, TrainingFailed, TrainingRun, cannot_begin
from pipeline.training.training_task import TrainingTask

T = TypeVar("T")

QUIET_SECONDS = 10.0  # an evaluation that takes less time shows no progress
FAILED_SAVES = 3
"""A run ends after this many saves that failed, if none of this start has succeeded: all of its work would be lost."""


class AfterStep(NamedTuple):
    """What follows a step. `last`: it is the last step of the run."""

    log: bool
    evaluate: bool
    save: bool
    last: bool


class Trainer:
    """Trains the engine of `run` on the batches of `task`, from the state of `run` on. The callbacks look on."""

    def __init__(
        self, run: TrainingRun, task: TrainingTask, signals: StopSignals, callbacks: Sequence[Callback]
    ) -> None:
        self.run, self.task, self.signals, self.callbacks = run, task, signals, list(callbacks)
        settings, save_seconds = run.settings, expected_save_seconds(run.engine)
        self.deadline = Deadline(settings.flags.max_hours, settings.steps, save_seconds, settings.first_step)
        self.divergence = Divergence(run)
        self.metrics = StepMetrics(run, task)
        kept = settings.kept_checkpoints, settings.milestones, settings.scored_on
        self.saver = Saver(run.engine, run.control, settings.flags.output / "checkpoints", *kept)
        self._bar = Progress(task.name, settings.steps, "steps", enabled=run.is_rank_0, plain_lines=False)
        run.say = self._bar.say
        self._score: float | None = None  # of the evaluation after the present step
        # Of its newest checkpoint: a resumed run starts at one, and a branch at another run's.
        self._saved_step = run.state.step if run.state.step > settings.first_step else None
        self._failed_saves, self._has_saved = 0, False  # of this start
        self._compilations = 0  # of this run, up to the last look
        progress.get_progress().took_save(save_seconds)
        if settings.execution.compile:
            progress.note_compilations()

    def train(self) -> int | None:
        """Trains to the end of the run. Collective.

        Returns None if the final step was completed and saved. Otherwise the number of the signal that ended training
        early, after a save. Raises TrainingFailed: the loss stays non-finite, the fp16 loss scale is at its floor, the
        last save failed or all have, or a rank holds wrong weights.
        """
        run, state, engine, task = self.run, self.run.state, self.run.engine, self.task
        batches = (batch_of_step(step, run.settings.skipped_batches) for step in range(state.step, run.settings.steps))
        micro_batches_per_step = run.settings.engine.world_size * run.settings.engine.accumulation_steps
        rate_of = schedule.of_run(run.settings)
        with self._callbacks_ended(), contextlib.closing(prefetch(task.steps(batches))) as prefetched:
            run.clock.lap()  # the time before is no training
            if task.evaluates and not state.finished:  # a finished run only ends its records
                self._try_evaluation()
                if run.settings.starts_trained and state.step == run.settings.first_step:
                    self._evaluate()
            next_step = NextStep(run, task, self.signals, self.deadline, run.clock.waiting(prefetched))
            while not state.finished:
                next_step.begin(state.step, self.saver.is_writing)
                began = time.perf_counter()
                micro_batches, agreed = next_step.take()
                if not agreed.writers:
                    self._finish_save()
                if agreed.stop_signal is not None and self._save_to_stop():
                    return agreed.stop_signal
                after = self._after(state.step + 1, is_last=agreed.progress >= 1.0)

                rate = rate_of(schedule.step_of_progress(agreed.progress, state.step, run.settings.steps))
                engine_state.set_learning_rate(engine, rate)
                torch.manual_seed(rng.dropout_seed(run.settings.flags.seed, state.step, run.control.rank))
                for number, batch in enumerate(micro_batches, 1):
                    run.enter("forward", number)
                    tensors = to_device(batch, engine.device)
                    output = engine(**tensors)
                    loss = task.loss(output, agreed.label_counts, micro_batches_per_step)  # ()
                    run.enter("backward", number)
                    engine.backward(loss)
                    # Signals and clock are looked at after an evaluation or a save, so the next step is not begun yet.
                    if number == len(micro_batches) and not (after.last or after.evaluate or after.save):
                        next_step.begin(state.step + 1, self.saver.is_writing)
                    run.enter("optimizer", number)
                    self._step_engine()  # which updates the weights in the last micro-step
                    self.divergence.add(loss)
                    self.metrics.add(output, tensors)
                self._end_step(time.perf_counter() - began)

                if after.log:
                    self._log(rate, after.last)
                if after.evaluate:
                    self._finish_save()  # otherwise it could go on only at the next step
                    self._evaluate()
                state.finished = after.last
                if after.save or after.last:
                    self._save(required=after.last)
        return None

    def _after(self, step: int, is_last: bool) -> AfterStep:
        settings, last = self.run.settings, is_last or step == self.run.settings.steps
        return AfterStep(
            log=step % settings.log_interval == 0 or last,
            evaluate=self.task.evaluates and (step % settings.eval_interval == 0 or last),
            save=step % settings.save_interval == 0 or step in settings.milestones,
            last=last,
        )

    def _try_evaluation(self) -> None:
        """Evaluates on a few batches. With a time limit twice: the first time also compiles and allocates."""
        self.run.enter("evaluation")
        with self.run.clock.paused():
            evaluation, fraction = self.task.try_evaluation(self.run.engine)
            if evaluation is not None:
                check_trial(evaluation, self.run.state.step)
                for callback in self.callbacks:
                    callback.on_trial(evaluation, fraction)
            if self.deadline.is_set:
                began = time.perf_counter()
                self.task.try_evaluation(self.run.engine)
                self.deadline.learn("evaluation", (time.perf_counter() - began) / fraction)

    def _step_engine(self) -> None:
        try:
            self.run.engine.step()
        except workarounds.LossScaleAtFloor as error:
            raise TrainingFailed(
                f"gradients overflow at step {self.run.state.step + 1} with the fp16 loss scale at its floor, {error}; "
                f"{REMEDY}"
            ) from None

    def _end_step(self, seconds: float) -> None:
        self.run.state.step += 1
        self._score = None
        self.divergence.end_step()
        has_compiled = self._has_compiled()
        is_first = self.run.settings.execution.compile and not progress.get_progress().has_made_a_step
        if not (is_first or has_compiled):
            self.deadline.learn("step", seconds)
        progress.get_progress().took_step(seconds)
        self._bar.update()
        for callback in self.callbacks:
            callback.on_step(self.run.state.step)

    def _has_compiled(self) -> bool:
        """Whether something was compiled since the last call: a new shape takes seconds once, also in mid-run."""
        before, self._compilations = self._compilations, progress.get_progress().compilations
        return before != self._compilations

    def _log(self, rate: float, is_last: bool) -> None:
        """Makes a record of the steps since the last one. Collective; waits for the device."""
        self.run.enter("logging")
        self.divergence.judge()
        record = {"learning_rate": rate, **self.metrics.record()}
        for callback in self.callbacks:
            callback.on_log(record, is_last)

    def _evaluate(self) -> None:
        """Evaluates. The next checkpoint has the score. Collective."""
        run = self.run
        began = time.perf_counter()
        run.enter("evaluation")
        with run.clock.paused():
            evaluation = self.task.evaluate(run.engine, self._monitored)
        if not self._has_compiled():
            self.deadline.learn("evaluation", time.perf_counter() - began)
        self._score = evaluation.score
        for callback in self.callbacks:
            callback.on_evaluation(evaluation)

    def _monitored(self, batches: Iterable[T], count: int) -> Iterator[T]:
        """The batches of an evaluation: shows its progress, and tells the watch that it goes on."""
        with Progress("evaluation", count, "batches", enabled=self.run.is_rank_0, quiet_seconds=QUIET_SECONDS) as bar:
            for batch in batches:
                self.run.enter("evaluation")
                yield batch
                bar.update()

    def _save(self, required: bool) -> None:
        """Starts a save, if the weights may be saved. Waits for its end if it is required. Collective.

        Raises TrainingFailed: the ranks hold different weights, a required save failed, or `FAILED_SAVES` did and none
        succeeded. If another save fails, training goes on: it costs time only if a kill comes before the next.
        """
        run = self.run
        run.enter("save")
        if not self._may_save():
            if required:
                raise TrainingFailed(f"the loss is infinite or no number at step {run.state.step}, the last; {REMEDY}")
            run.say(f"no checkpoint of step {run.state.step}: the loss is infinite or no number")
            return
        self._finish_save()
        for callback in self.callbacks:
            callback.on_save()
        with self._saving(required):
            began = time.perf_counter()
            check_equal_weights(run)
            checked = time.perf_counter() - began
            self.saver.start(asdict(run.state), self._score, not required, checked)
        if required:
            self._finish_save(required)

    def _finish_save(self, required: bool = False) -> None:
        if not self.saver.is_saving:
            return
        with self._saving(required):
            checkpoint = self.saver.finish()
            self._saved_step, self._has_saved = checkpoint.step, True
            progress.get_progress().took_save(checkpoint.seconds)
            self.deadline.learn("save", checkpoint.seconds)
            for callback in self.callbacks:
                callback.on_checkpoint(checkpoint)

    @contextlib.contextmanager
    def _saving(self, required: bool) -> Iterator[None]:
        """Around each half of a save: says why it failed, or ends training if the save is required or none succeeds."""
        self.run.enter("save")
        with self.run.clock.paused():
            try:
                yield
            except SaveFailed as error:
                self._failed_saves += 1
                from_step = f"from step {self._saved_step}" if self._saved_step else "from the beginning"
                goes_on = f"{error}; mend that, and the same command goes on {from_step}"
                if required:
                    raise TrainingFailed(f"the checkpoint of step {error.step} failed: {goes_on}") from None
                if self._failed_saves >= FAILED_SAVES and not self._has_saved:
                    raise TrainingFailed(f"all {FAILED_SAVES} saves of this start have failed: {goes_on}") from None
                self.run.say(f"checkpoint of step {error.step} failed, training goes on: {error}")

    def _save_to_stop(self) -> bool:
        """Saves before a stop. False if the weights must not be saved yet. Collective."""
        if not self._may_save():
            return False
        self._finish_save()
        if self.run.state.step != self._saved_step:  # saving again would discard this step's score
            self._save(required=True)
        return True

    def _may_save(self) -> bool:
        """Whether the last loss was finite. If so, writes into the state what a resume needs. Collective."""
        if not self.divergence.judge():
            return False
        self.metrics.store()
        return True

    @contextlib.contextmanager
    def _callbacks_ended(self) -> Iterator[None]:
        """Shows the bar, and ends the callbacks, whatever ends training.

        A save in progress ends as well if all ranks fail together. Otherwise it is given up, and nothing is written
        later. The weights of a save are checked before it, so what ends training later does not make them wrong.
        """
        with contextlib.ExitStack() as ends:
            ends.enter_context(self._bar)
            self._bar.resume(self.run.state.step)
            for callback in self.callbacks:
                ends.callback(callback.on_end)
            ends.callback(self.saver.abandon)
            try:
                yield
            except TrainingFailed:
                with contextlib.suppress(TrainingFailed):  # the first failure is the reason
                    self._finish_save()
                raise


def make_trainer(run: TrainingRun, task: TrainingTask, signals: StopSignals) -> Trainer:
    """A trainer with the callbacks of every run. Arguments as of `Trainer`.

    Raises UserError: rank 0 cannot write the metrics; on all ranks.
    """
    metrics_log = run.control.all_or_raise(lambda: MetricsLog(run), (OSError,), cannot_begin)
    return Trainer(run, task, signals, [metrics_log, Console(run)])
