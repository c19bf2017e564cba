"""Texts and pairs of texts with any number of labels, also none."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline.tasks.files.rows import ExampleRow, find_classes
from pipeline.tasks.files.tables import Table
from pipeline.tasks.kind import Statistic
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.kinds.texts import Classification, TextExample, TextFeatures
from pipeline.tasks.task import Columns, Task


class MultiLabelFeatures(TextFeatures):
    """The features of texts and pairs; the labels are float32 (N, C) of 0 and 1, NaN where they are not known."""

    def describe(self, task: Task, examples: Sequence[TextExample]) -> None:
        """See `TextFeatures.describe`."""
        self.examples, self.ids = len(examples), np.array([example.id for example in examples])
        self.labels = np.full((len(examples), len(task.labels)), np.nan, dtype=np.float32)
        for row, example in zip(self.labels, examples):
            if isinstance(example.label, tuple):
                row[:] = 0.0
                row[list(example.label)] = 1.0


class MultiLabel(Classification):
    """Any number of labels for each text or pair: each one whose probability is above a half."""

    name = "multi_label"
    own_tasks: ClassVar = {"multi-label": Columns("text", label="labels")}
    features = MultiLabelFeatures
    own_metrics = ("f1_micro", "f1_macro", "exact_match")
    record_names = ("prediction", "probabilities")
    problem_type = "multi_label_classification"
    pipeline_input = '"This is a text.", top_k=None'

    def find_labels(self, table: Table, columns: Columns) -> tuple[str, ...]:
        """The labels, see `find_classes`."""
        return find_classes(table, columns, lambda row: _names(row) or ())

    def choose_metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        """See `Kind.choose_metrics`."""
        return self.own_metrics

    def read_label(self, row: ExampleRow, labels: Sequence[str]) -> tuple[int, ...] | None:
        """The numbers of the labels of a row."""
        names = _names(row)
        if names is None:
            row.name_of(None)  # raises if a label is needed
            return None
        return tuple(number for number in (row.class_of(name, labels) for name in names) if number is not None)

    def majority(self, task: Task, predictions: Logits) -> Logits:
        """See `Kind.majority`: the labels that more than half of the texts have."""
        assert predictions.labels is not None
        frequent = np.where(predictions.labels.mean(axis=0) > 0.5, 1.0, -1.0)  # (C,)
        return Logits(predictions.ids, np.broadcast_to(frequent, predictions.logits.shape), predictions.labels)

    def statistic(self, task: Task, metric: str, predictions: Logits) -> Statistic:
        """See `Kind.statistic`. F1 over all labels of all texts, or its mean over the labels that occur; or the share
        of the texts whose labels are all right.
        """
        if predictions.labels is None:
            raise ValueError("the labels are not known")
        chosen, true = predictions.logits > 0, predictions.labels > 0.5  # (N, C) each
        if metric == "exact_match":
            exact = (chosen == true).all(axis=1)  # (N,)
            return lambda texts: float(exact[texts].mean())
        hits, sizes = (chosen & true).astype(np.int64), chosen.astype(np.int64) + true  # (N, C) each

        def compute(texts: NDArray[np.int64]) -> float:
            right, both = hits[texts].sum(axis=0), sizes[texts].sum(axis=0)  # (C,) each
            if metric == "f1_micro":
                return float(2 * right.sum() / max(1, both.sum()))
            return float((2 * right / np.maximum(both, 1))[both > 0].mean()) if both.any() else 0.0

        return compute

    def records(self, task: Task, predictions: Logits) -> dict[str, dict[str, Any]]:
        """The list of the labels as "prediction", and the "probabilities" of all labels, which do not sum to 1."""
        shares = 1 / (1 + np.exp(-predictions.logits.astype(np.float64)))  # (N, C)
        return {
            name: {
                "prediction": [label for label, share in zip(task.labels, row) if share > 0.5],
                "probabilities": dict(zip(task.labels, row)),
            }
            for name, row in zip(predictions.ids.tolist(), shares.tolist())
        }


def _names(row: ExampleRow) -> Sequence[Any] | None:
    """The names of the labels in a row: a list, or in a cell a JSON list or names with commas between them.

    None if they are missing. An empty cell is no label.
    """
    value = row.label
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            raise row.mistake(f"column {row.columns.label!r} holds {value!r:.80}, which is no JSON list") from None
    if isinstance(value, str):
        return [name.strip() for name in value.split(",") if name.strip()]
    return None if value is None else row.check_list(row.columns.label, value)
