"""The best evaluation, and the end of patience."""

from types import SimpleNamespace
from typing import Any

from pipeline.training.callbacks.best_score import BestScore
from pipeline.training.state import TrainingRun, TrainState
from pipeline.training.training_task import Evaluation


def ends_at(patience: int | None, scores: list[float]) -> tuple[list[int], TrainState]:
    """The steps after whose evaluation the run ends; there is an evaluation every 10 steps."""
    settings: Any = SimpleNamespace(patience=patience)
    run = TrainingRun(settings, SimpleNamespace(rank=0), None, TrainState())  # type: ignore[arg-type]
    best, ends = BestScore(run), []
    for number, score in enumerate(scores, 1):
        run.state.step, run.ends = 10 * number, False
        best.evaluated(Evaluation({}, score, "loss"), 1.0)
        assert run.score == score
        if run.ends:
            ends.append(run.state.step)
    return ends, run.state


def test_the_first_of_equal_scores_is_the_best() -> None:
    ends, state = ends_at(None, [0.1, 0.3, 0.3, 0.2])
    assert (ends, state.best_score, state.best_step) == ([], 0.3, 20)


def test_a_run_out_of_patience_ends() -> None:
    assert ends_at(20, [0.3, 0.2, 0.4, 0.4, 0.3])[0] == [50]
    assert ends_at(10, [-0.3, -0.2, -0.2])[0] == [30]
