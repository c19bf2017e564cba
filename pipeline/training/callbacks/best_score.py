"""Remembers the best evaluation, and ends a run that is out of patience."""

from pipeline.training.callback import Callback
from pipeline.training.state import TrainingRun
from pipeline.training.training_task import Evaluation


class BestScore(Callback):
    """Compares the scores of evaluations. Each checkpoint is saved with the score of its step."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run

    def evaluated(self, evaluation: Evaluation, seconds: float) -> None:
        """Records the score. Ends the run after `patience` steps without a better one."""
        run, state = self._run, self._run.state
        run.score = evaluation.score
        if state.best_score is None or evaluation.score > state.best_score:
            state.best_score, state.best_step = evaluation.score, state.step
        patience = run.settings.patience
        if patience is not None and state.step - state.best_step >= patience:
            run.ends = True
