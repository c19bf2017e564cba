"""The metrics of a task's predictions, from the predictions alone."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pipeline.tasks import metrics, squad_metrics, tagging_metrics
from pipeline.tasks.predictions import Answers, Logits, Predictions, TagLogits, null_odds, squad_answers
from pipeline.tasks.task import Task


def metrics_of(task: Task, predictions: Predictions) -> dict[str, float]:
    """The metrics of one split, by name; empty if its labels are not known.

    Classes, tags and numbers have `task.metrics`. Questions with options also have the accuracy of each level. Answers
    have the metrics of `squad_metrics.squad`.
    """
    if isinstance(predictions, Logits):
        labels, levels = predictions.labels, predictions.levels
        if labels is None:
            return {}
        predicted = predictions.predictions()  # (N,)
        found = metrics.compute(task.metrics, predicted, labels)
        return found if levels is None else found | metrics.accuracy_by_level(predicted, labels, levels.tolist())
    if isinstance(predictions, TagLogits):
        return {} if predictions.labels is None else tagging_metrics.compute(task, predictions)
    if not has_gold(predictions):
        return {}
    odds = null_odds(predictions) or None
    spans = {question: answers.best() for question, answers in predictions.items()}
    version = "1.1" if odds is None else "2.0"
    return squad_metrics.squad(spans, gold_of(predictions), odds, version=version, threshold=0.0)


def question_f1(answers: Mapping[str, Answers]) -> NDArray[np.float64]:
    """(N,) F1, 0 to 1, of every question at the default threshold. The accepted answers must be known."""
    scores = squad_metrics.squad_scores(squad_answers(answers), gold_of(answers))
    return np.array([f1 for _, f1 in scores.values()])


def has_gold(answers: Mapping[str, Answers]) -> bool:
    """Whether the accepted answers to all questions are known."""
    return all(given.gold is not None for given in answers.values())


def gold_of(answers: Mapping[str, Answers]) -> dict[str, tuple[str, ...]]:
    """The accepted answers to each question, empty for an unanswerable one. They must be known."""
    return {question: given.gold or () for question, given in answers.items()}
