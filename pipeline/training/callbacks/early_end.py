"""Ends a run before its last step: within --max-hours, or when its evaluations get no better (--patience).

Schedule, last evaluation and last save are within the hours. The time of a run is the wall-clock time of all its
starts. The time between two starts does not count, and neither does what a start that was killed took after its last
checkpoint.
"""

import time

from pipeline.checkpoint.manifest import BYTES_A_PARAMETER
from pipeline.checkpoint.saver import Saved
from pipeline.engine import step as engine_step
from pipeline.training.callback import Callback
from pipeline.training.state import TrainingRun
from pipeline.training.training_task import Evaluation, TrainingTask

MARGIN = 1.25
"""Measured times are multiplied by this factor and reserved."""

SLOWEST_SAVE = 100e6
"""Assumed speed of a save in bytes a second, until one has been measured."""


class Deadline(Callback):
    """Moves the schedule and sets the last step of a run with a time limit, by the clock of rank 0.

    The hours of training are the limit minus a reserve. The reserve is 1.25 times the longest step, evaluation, save
    and export so far. Step, evaluation and save count twice: once for the end of the run, once for what may still
    happen before the clock is read again. A step counts once more, because the clock is read before the end of the
    step before (`pipeline.training.agreement`). An export is assumed to take as long as a save, and counts once. Each
    start makes a new deadline, which measures anew.

    Args:
        hours: the limit.
    """

    def __init__(self, run: TrainingRun, task: TrainingTask, hours: float) -> None:
        self._run, self._task, self._limit = run, task, 3600.0 * hours
        saved_bytes = BYTES_A_PARAMETER * engine_step.parameter_count(run.engine)
        self._longest = {"save": saved_bytes / SLOWEST_SAVE, "evaluation": 0.0, "step": 0.0}
        self._progress = 0.0

    @property
    def reserve(self) -> float:
        """Seconds reserved for what comes after the last step has begun."""
        return MARGIN * (2 * sum(self._longest.values()) + self._longest["save"] + self._longest["step"])

    def progress(self, step: int, seconds: float) -> float:
        """The progress after `step` steps and `seconds` of the run: of the steps or of the hours, if these are further.

        From 0 to 1; it never decreases. At 1 the next step is the last.
        """
        left = self._limit - self.reserve
        by_time = seconds / left if left > 0 else 1.0
        self._progress = min(1.0, max(self._progress, step / self._run.settings.steps, by_time))
        return self._progress

    def on_vote(self, step: int) -> list[float]:
        """The progress before the next step; the ranks' clocks differ, so only rank 0 tells it."""
        progress = self.progress(step, self._run.clock.seconds())
        return [progress if self._run.is_rank_0 else 0.0]

    def on_agreement(self, sums: list[float]) -> None:
        """Moves the schedule. At a progress of 1, the step that begins is the last."""
        (self._run.schedule_progress,) = sums
        self._run.ends = self._run.ends or self._run.schedule_progress >= 1.0

    def on_step(self, seconds: float) -> None:
        """Learns how long a step takes."""
        self._learn("step", seconds)

    def on_trial(self, evaluation: Evaluation | None, fraction: float) -> None:
        """Tries the evaluation once more, to learn what a whole one takes. The first one also compiles and allocates.

        Collective.
        """
        began = time.perf_counter()
        self._task.try_evaluation(self._run.engine)
        self._learn("evaluation", (time.perf_counter() - began) / fraction)

    def on_evaluation(self, evaluation: Evaluation, seconds: float) -> None:
        """Learns how long an evaluation takes."""
        self._learn("evaluation", seconds)

    def on_checkpoint(self, checkpoint: Saved) -> None:
        """Learns how long a save takes."""
        self._learn("save", checkpoint.seconds)

    def _learn(self, what: str, seconds: float) -> None:
        self._longest[what] = max(self._longest[what], seconds)


class BestScore(Callback):
    """Compares the scores of evaluations. Each checkpoint is saved with the score of its step."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run

    def on_evaluation(self, evaluation: Evaluation, seconds: float) -> None:
        """Records the score. Ends the run after `patience` steps without a better one."""
        run, state = self._run, self._run.state
        run.score = evaluation.score
        if state.best_score is None or evaluation.score > state.best_score:
            state.best_score, state.best_step = evaluation.score, state.step
        patience = run.settings.patience
        if patience is not None and state.step - state.best_step >= patience:
            run.ends = True
