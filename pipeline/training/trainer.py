"""The training loop. DeepSpeed's engine computes; callbacks do everything else (`pipeline.training.callbacks`)."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from pipeline.data import rng
from pipeline.data.prefetch import prefetch, to_device
from pipeline.data.sampler import batches_to_come
from pipeline.engine import step as engine_step
from pipeline.training.agreement import Agreements
from pipeline.training.callback import REMEDY, Callback, EvaluationLeft, Phase, TrainingFailed, tell
from pipeline.training.saves import Saves
from pipeline.training.schedule import step_of_progress
from pipeline.training.state import TrainingRun
from pipeline.training.training_task import TrainingTask

MicroBatches = Sequence[Any]
"""A rank's micro-batches of a step, each a NamedTuple of numpy arrays."""


class Due(NamedTuple):
    """What follows a step. `last`: it is the last step of the run."""

    log: bool
    evaluate: bool
    save: bool
    last: bool


@dataclass
class Trainer:
    """Trains the engine of `run` on the batches of `task`, from the state of `run` on.

    Attributes:
        agreements: with the votes of the callbacks.
        callbacks: see `Callback`; the same on all ranks.
        saves: saves checkpoints; it is one of the callbacks, too.
    """

    run: TrainingRun
    task: TrainingTask
    agreements: Agreements
    callbacks: list[Callback]
    saves: Saves

    def train(self) -> int | None:
        """Trains to the end of the run. Collective.

        Returns:
            None if the final step was completed and saved. Otherwise the number of the signal that ended training
            early, after a save.
        Raises:
            TrainingFailed: the loss stays non-finite, the fp16 loss scale is at its floor, the last save failed, or a
                rank holds wrong weights.
        """
        run, state, engine, task = self.run, self.run.state, self.run.engine, self.task
        batches = batches_to_come(state.step, run.settings.steps, run.settings.skipped_batches)
        schedule = run.settings.schedule()
        micro_batches_per_step = run.settings.engine.world_size * run.settings.engine.accumulation_steps
        with self._callbacks_at_work(), contextlib.closing(prefetch(task.steps(batches))) as prefetched:
            run.clock.lap()  # the time before is no training: trackers open
            stop_signal = None if state.finished else self._begin_training()  # a finished run only ends its records
            steps, upcoming = run.clock.waiting(prefetched), None
            while stop_signal is None and not state.finished:
                micro_batches = upcoming or self._next_step(steps, state.step)
                began = time.perf_counter()
                self._enter("agreement")
                run.ends, upcoming = state.step + 1 == run.settings.steps, None
                agreed = self.agreements.finish()
                if agreed.stop_signal is not None and self._save_to_stop():
                    return agreed.stop_signal
                due = self._due(state.step + 1)

                rate = schedule(step_of_progress(run.schedule_progress, state.step, run.settings.steps))
                engine_step.set_learning_rate(engine, rate)
                torch.manual_seed(rng.dropout_seed(run.settings.flags.seed, state.step, run.control.rank))
                for number, batch in enumerate(micro_batches, 1):
                    self._enter("forward", number)
                    tensors = to_device(batch, engine.device)
                    output = engine(**tensors)
                    loss = task.loss(output, agreed.label_counts, micro_batches_per_step)  # ()
                    self._enter("backward", number)
                    engine.backward(loss)
                    # Signals and clock are looked at after an evaluation or a save, so the next step is not begun yet.
                    if number == len(micro_batches) and not (due.last or due.evaluate or due.save):
                        upcoming = self._next_step(steps, state.step + 1)
                    self._enter("optimizer", number)
                    self._step_engine()  # which updates the weights in the last micro-step
                    tell(self.callbacks, Callback.on_micro_step, tensors, output, loss)
                state.step += 1
                run.score = None
                tell(self.callbacks, Callback.on_step, time.perf_counter() - began)

                if due.log:
                    self._enter("logging")
                    tell(self.callbacks, Callback.on_log, {"learning_rate": rate})
                stop_signal = self._finish_step(due)
        return stop_signal

    def _due(self, step: int) -> Due:
        """What follows the step with this number."""
        settings, last = self.run.settings, self.run.ends
        return Due(
            log=step % settings.log_interval == 0 or last,
            evaluate=self.task.evaluates and (step % settings.eval_interval == 0 or last),
            save=step % settings.save_interval == 0,
            last=last,
        )

    def _finish_step(self, due: Due) -> int | None:
        """Evaluates and saves after a step, as far as it is due. Sets `state.finished`.

        Returns:
            The number of the signal that ended the evaluation early. The checkpoint then says that it is due.
        """
        run, state = self.run, self.run.state
        run.ends = due.last
        if due.evaluate:
            self.saves.finish()  # otherwise it could go on only at the next step
            try:
                self._evaluate()
            except EvaluationLeft as error:
                run.engine.train()
                state.evaluation_due = "last" if due.last else "earlier"
                self._save(required=True)
                return error.stop_signal
        state.evaluation_due, state.finished = None, run.ends
        if due.save or run.ends:
            self._save(required=run.ends)
        return None

    def _begin_training(self) -> int | None:
        """Makes what is due before the first step: a trial evaluation, and one that was interrupted.

        Returns:
            See `_finish_step`.
        """
        state = self.run.state
        if self.task.evaluates:
            self._enter("evaluation")
            with self.run.clock.paused():
                evaluation, fraction = self.task.try_evaluation(self.run.engine)
                tell(self.callbacks, Callback.on_trial, evaluation, fraction)
        if state.evaluation_due is None:
            return None
        last = state.evaluation_due == "last"
        return self._finish_step(Due(log=False, evaluate=self.task.evaluates, save=True, last=last))

    def _next_step(self, steps: Iterator[MicroBatches], step: int) -> MicroBatches:
        """Waits for this rank's micro-batches of the step after `step` steps, and starts the agreement on it.

        Collective.
        """
        self._enter("data")
        micro_batches = next(steps)
        self._enter("agreement")
        self.agreements.start(step, self.task.label_counts(micro_batches))
        return micro_batches

    def _step_engine(self) -> None:
        try:
            engine_step.step(self.run.engine)
        except engine_step.LossScaleAtFloor as error:
            raise TrainingFailed(
                f"gradients overflow at step {self.run.state.step + 1} with the fp16 loss scale at its floor, "
                f"{error.loss_scale:g}; {REMEDY}"
            ) from None

    def _evaluate(self) -> None:
        began = time.perf_counter()
        self._enter("evaluation")
        pace = self.agreements.pace(beat=lambda: self._enter("evaluation"))
        with self.run.clock.paused():
            evaluation = self.task.evaluate(self.run.engine, pace)
        tell(self.callbacks, Callback.on_evaluation, evaluation, time.perf_counter() - began)

    def _save(self, required: bool) -> None:
        """Starts a save, if the weights may be saved. Waits for its end if it is required. Collective.

        Training goes on after a failure of a save that is not required: it costs time only if the run is killed before
        the next save.
        """
        self._enter("save")
        if not (reason := self._reason_not_to_save()):
            self.saves.save(required)
        elif required:
            raise TrainingFailed(f"{reason} at step {self.run.state.step}, the last; {REMEDY}")
        else:
            self.run.say(f"no checkpoint of step {self.run.state.step}: {reason}")

    def _save_to_stop(self) -> bool:
        """Saves before a stop. False if the weights must not be saved yet. Collective."""
        if self._reason_not_to_save():
            return False
        self.saves.finish()
        if self.run.state.step != self.saves.saved_step:  # saving again would discard this step's score
            self._save(required=True)
        return True

    def _reason_not_to_save(self) -> str:
        """The first reason of a callback; "" if there is none. Callbacks behind the first reason are not called."""
        return next((reason for callback in self.callbacks if (reason := callback.on_save())), "")

    def _enter(self, phase: Phase, micro_step: int = 0) -> None:
        tell(self.callbacks, Callback.on_phase, phase, micro_step)

    @contextlib.contextmanager
    def _callbacks_at_work(self) -> Iterator[None]:
        """Starts the callbacks and ends them, the last one first, whatever ends training."""
        with contextlib.ExitStack() as ends:
            for callback in self.callbacks:
                callback.on_start()
                ends.callback(callback.on_end)
            with self.saves:
                yield
