"""Predictions as plain values with the names of the labels, for people and programs."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.tasks.predictions import Answers, Logits, Predictions, TagLogits
from pipeline.tasks.task import Kind, Task

_NAMES: dict[Kind, tuple[str, ...]] = {
    "classification": ("prediction", "probability", "probabilities"),
    "choice": ("prediction", "probability", "probabilities"),
    "regression": ("prediction",),
    "tagging": ("prediction", "probability"),
    "spans": ("prediction", "probability", "start", "end"),
    "conditioned_spans": ("prediction", "probability", "start", "end", "no_answer_score"),
}


def names_of(task: Task) -> tuple[str, ...]:
    """The keys of a task's records."""
    return _NAMES[task.kind]


def records(task: Task, predictions: Predictions) -> dict[str, dict[str, Any]]:
    """A record for each example, by its id.

    Classes and choices: the name with the highest probability as "prediction", its "probability", and the
    "probabilities" of all names. Numbers: "prediction". Tags: lists of the tags and their probabilities. Answers: the
    text, its characters "start" and "end" in the passage, its probability among the best spans, and the
    "no_answer_score" of a model that has one. No answer is "", with a start and an end of null.
    """
    if isinstance(predictions, Logits):
        rows = predictions.logits
        if task.kind == "regression":
            return {name: {"prediction": float(value)} for name, value in zip(predictions.ids.tolist(), rows[:, 0])}
        return {
            name: _chosen(task, of_row) for name, of_row in zip(predictions.ids.tolist(), probabilities(rows).tolist())
        }
    if isinstance(predictions, TagLogits):
        return _tags(task, predictions)
    return {name: _answer(answers) for name, answers in predictions.items()}


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """The softmax of logits (N, C), (N, C)."""
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))  # (N, C)
    return powers / powers.sum(axis=1, keepdims=True)


def _chosen(task: Task, of_row: list[float]) -> dict[str, Any]:
    best = max(range(len(of_row)), key=of_row.__getitem__)
    return {
        "prediction": task.labels[best],
        "probability": of_row[best],
        "probabilities": dict(zip(task.labels, of_row)),
    }


def _tags(task: Task, predictions: TagLogits) -> dict[str, dict[str, Any]]:
    tags, found = predictions.predictions(), probabilities(predictions.logits).max(axis=1)  # (T,) each
    made, end = {}, 0
    for name, length in zip(predictions.ids.tolist(), predictions.lengths.tolist()):
        start, end = end, end + length
        made[name] = {
            "prediction": [task.labels[tag] for tag in tags[start:end].tolist()],
            "probability": found[start:end].tolist(),
        }
    return made


def _answer(answers: Answers) -> dict[str, Any]:
    text = answers.answer()
    best = max(answers.nbest, key=lambda span: span.score, default=None)
    record: dict[str, Any] = {"prediction": text, "probability": None, "start": None, "end": None}
    if best is not None and text:
        weights = [math.exp(span.score - best.score) for span in answers.nbest]
        record |= {"probability": 1.0 / math.fsum(weights), "start": best.start, "end": best.end}
    return record if answers.null_score is None else record | {"no_answer_score": answers.null_score}
