"""Texts and pairs of texts with a class or a number (the GLUE tasks), or with any number of labels."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from data_prep.text.vocabulary import Vocabulary
from pipeline.tasks.files.rows import Columns, ExampleRow, find_classes, name_of, rows_of
from pipeline.tasks.files.tables import Table
from pipeline.tasks.kinds.logits import Logits, LogitsKind
from pipeline.tasks.kinds.row_packing import (
    IGNORED_LABEL,
    EncodedTexts,
    SegmentPair,
    cls_grid,
    pack,
    to_host,
    truncate_pair,
)
from pipeline.tasks.task import Statistic, Task

if TYPE_CHECKING:
    from model.classification import ClassificationOutput

_BIT = re.compile(r"-?[01](?:\.0*)?|0?\.\d+|false|true", re.IGNORECASE)
_BITS_IN_CELL = re.compile(rf"(?:{_BIT.pattern})(?:[\s;|]+(?:{_BIT.pattern}))+", re.IGNORECASE)
_NAMES = 'name the labels that a text has, such as ["sports", "arts"], or give --label-names for a 0 or 1 of each label'
_SWITCHES = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


@dataclass(frozen=True)
class TextExample:
    """A text or a pair of texts.

    Attributes:
        label: the number of the class, the number of a regression, or the numbers of several labels; None if unknown.
    """

    id: str
    first: str
    second: str | None = None
    label: int | float | tuple[int, ...] | None = None


class TextBatch(NamedTuple):
    """The arguments of the `forward` of `AlbertForSequenceClassification` and `AlbertForMultipleChoice`."""

    input_ids: NDArray[np.int64]  # (B, S)
    token_type_ids: NDArray[np.int64]  # (B, S)
    position_ids: NDArray[np.int64]  # (B, S)
    sequence_ids: NDArray[np.int64]  # (B, S)
    cls_positions: NDArray[np.int64]  # (B, P)
    sequences: NDArray[np.int64]  # (N,), or (N, K) of the options: row * P + number
    labels: NDArray  # (N,) int64 classes, -100 where unknown; float32 numbers, NaN where unknown; or (N, C) of these

    @property
    def label_count(self) -> int:
        """The number of known labels."""
        return int(_known(self.labels).sum())


class TextFeatures:
    """The features of texts and pairs; a sample is one example. Implements `Features`.

    Attributes:
        options: (K,) if a sample has K sequences; empty if it has one.
    """

    options: tuple[int, ...] = ()

    def __init__(self, task: Task, vocabulary: Vocabulary, examples: Sequence[TextExample], max_length: int) -> None:
        """Cuts sequences of more than `max_length` tokens at the end of the longer text."""
        self.describe(task, examples)
        self._max_length = max_length
        self._first, self._second = EncodedTexts(vocabulary, [example.first for example in examples]), None
        lengths = self._first.lengths + 2
        if examples[0].second is not None:
            self._second = EncodedTexts(vocabulary, [example.second or "" for example in examples])
            lengths = lengths + self._second.lengths + 1
        self.lengths, self.cut = np.minimum(lengths, max_length), int((lengths > max_length).sum())

    def describe(self, task: Task, examples: Sequence[Any]) -> None:
        """Keeps the ids and the labels of the examples."""
        self.examples = len(examples)
        self.ids = np.array([example.id for example in examples])
        numbers = task.kind.predicts_numbers
        unknown = math.nan if numbers else IGNORED_LABEL  # any number may be a label, -100 too
        labels = [unknown if example.label is None else example.label for example in examples]
        self.labels = np.array(labels, dtype=np.float32 if numbers else np.int64)

    def segments(self, sample: int) -> list[SegmentPair]:
        """The sequences of a sample: here one, the tokens of its text or texts, cut to the maximal length."""
        if self._second is None:
            return [(self._first[sample][: self._max_length - 2], None)]
        return [truncate_pair(self._first[sample], self._second[sample], self._max_length - 3)]

    def batch(self, samples: Sequence[int], training: bool) -> TextBatch:
        rows, placement = pack([pair for sample in samples for pair in self.segments(sample)])
        grid = cls_grid(placement, len(rows.input_ids))
        sequences = placement.row * grid.shape[1] + placement.number
        sequences = sequences.reshape(len(samples), *self.options)  # (N,) or (N, K)
        return TextBatch(*rows, grid, sequences, self.labels[np.asarray(samples, dtype=np.int64)])

    def decode(
        self, samples: Sequence[int], batch: TextBatch, output: "ClassificationOutput"
    ) -> list[NDArray[np.float32]]:
        """The logits (C,) of each sample."""
        return list(to_host(output.logits))

    def predictions(self, outputs: Mapping[int, NDArray[np.float32]]) -> Logits:
        logits = np.stack([outputs[sample] for sample in range(self.examples)])
        return Logits(self.ids, logits, self.labels if _known(self.labels).all() else None)


def _known(labels: NDArray) -> NDArray[np.bool_]:
    return ~np.isnan(labels) if labels.dtype.kind == "f" else labels != IGNORED_LABEL


class Classification(LogitsKind):
    """One class for each text or pair."""

    name = "classification"
    own_tasks: ClassVar = {"classification": Columns("text"), "pairs": Columns("text", "text_pair")}
    model_class = "model.classification.AlbertForSequenceClassification"
    features = TextFeatures
    architecture = "AlbertForSequenceClassification"
    problem_type = "single_label_classification"
    pipeline_tag = "text-classification"

    def find_labels(self, table: Table, columns: Columns) -> tuple[str, ...]:
        """The classes, see `find_classes`."""
        return find_classes(table, columns, lambda row: (row.label,))

    def choose_metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("accuracy", "f1_macro", "matthews") if len(labels) == 2 else ("accuracy", "f1_macro")

    def read_label(self, row: ExampleRow, labels: Sequence[str]) -> int | float | tuple[int, ...] | None:
        """The label of a row: here the number of the class."""
        return row.class_of(row.label, labels)

    def read_row(self, row: ExampleRow, labels: Sequence[str]) -> TextExample:
        columns = row.columns
        second = None if columns.second_text is None else row.text(columns.second_text)
        return TextExample(row.id, row.text(columns.text), second, self.read_label(row, labels))


class Regression(Classification):
    """One number for each text or pair."""

    name = "regression"
    own_tasks: ClassVar = {"regression": Columns("text")}
    predicts_numbers = True
    record_names = ("prediction",)
    problem_type = "regression"

    def find_labels(self, table: Table, columns: Columns) -> tuple[str, ...]:
        """One label, called as the column. Raises UserError if the column holds one number only."""
        if len({row.number() for row in rows_of(table, columns)}) < 2:
            raise UserError(f"{table.source}: column {columns.label!r} holds one number only; name another column")
        return (columns.label,)

    def choose_metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("pearson", "spearman", "rmse")

    def read_label(self, row: ExampleRow, labels: Sequence[str]) -> float | None:
        """The number."""
        return row.number()

    def spell(self, task: Task, predictions: Logits) -> list[str]:
        """The numbers, cut to the range of the task."""
        return [f"{value:.3f}" for value in np.clip(predictions.predictions(), *task.value_range)]

    def records(self, task: Task, predictions: Logits) -> dict[str, dict[str, Any]]:
        """The number as "prediction"."""
        numbers = predictions.predictions().tolist()  # (N,)
        return {name: {"prediction": value} for name, value in zip(predictions.ids.tolist(), numbers)}


class MultiLabelFeatures(TextFeatures):
    """The features of texts and pairs; the labels are float32 (N, C) of 0 and 1, NaN where they are not known."""

    def describe(self, task: Task, examples: Sequence[TextExample]) -> None:
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
    record_names = ("prediction", "probabilities")
    problem_type = "multi_label_classification"
    pipeline_input = '"This is a text.", top_k=None'

    def find_labels(self, table: Table, columns: Columns) -> tuple[str, ...]:
        """The labels, see `find_classes`. Raises UserError if the rows have a number for each label, without names."""
        if columns.label_names:
            return columns.label_names
        given = [_names(row) or () for row in rows_of(table, columns, "optional")]
        names = {str(name_of(name)) for row in given for name in row}
        if len({len(row) for row in given}) == 1 and all(_BIT.fullmatch(name) for name in names) and names:
            fault = f"holds values such as {', '.join(map(str, given[0][:5]))} in all rows"
            raise UserError(f"{table.source}: column {columns.label!r} {fault}; {_NAMES}")
        return find_classes(table, columns, lambda row: _names(row) or ())

    def choose_metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("f1_micro", "f1_macro", "exact_match")

    def read_label(self, row: ExampleRow, labels: Sequence[str]) -> tuple[int, ...] | None:
        """The numbers of the labels of a row."""
        names = _names(row)
        if names is None:
            row.name_of(None)  # raises if a label is needed
            return None
        numbers = tuple(number for number in (row.class_of(name, labels) for name in names) if number is not None)
        if twice := next((labels[number] for number in numbers if numbers.count(number) > 1), None):
            raise row.mistake(f"column {row.columns.label!r} has the label {twice!r} twice; {_NAMES}")
        return numbers

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
            assert metric == "f1_macro"
            return float((2 * right / np.maximum(both, 1))[both > 0].mean()) if both.any() else 0.0

        return compute

    def records(self, task: Task, predictions: Logits) -> dict[str, dict[str, Any]]:
        """The list of the labels as "prediction", and the "probabilities" of all labels, which do not sum to 1."""
        shares = 1 / (1 + np.exp(-predictions.logits.astype(np.float64)))  # (N, C)
        records = {}
        for name, row in zip(predictions.ids.tolist(), shares.tolist()):
            chosen = [label for label, share in zip(task.labels, row) if share > 0.5]
            records[name] = {"prediction": chosen, "probabilities": dict(zip(task.labels, row))}
        return records


def _names(row: ExampleRow) -> Sequence[Any] | None:
    """The names of the labels in a row: a list, or in a cell a JSON list or names with commas between them.

    None if they are missing. An empty cell is no label. With `Columns.label_names` the row has a 0 or 1 for each.
    """
    values, names = _listed(row), row.columns.label_names
    if not names:
        return values
    if not values:
        return None
    switches = [_SWITCHES.get(str(value).strip().lower()) for value in values]
    if len(switches) != len(names) or None in switches:
        fault = f"holds {', '.join(map(str, values))!r:.80}, and --label-names {len(names)} labels"
        raise row.mistake(f"column {row.columns.label!r} {fault}; give a 0 or a 1 for each")
    return [name for name, is_set in zip(names, switches) if is_set]


def _listed(row: ExampleRow) -> Sequence[Any] | None:
    value = row.label
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            raise row.mistake(f"column {row.columns.label!r} holds {value!r:.80}, which is no JSON list") from None
    if isinstance(value, str):
        names = re.split(r"[\s;|]+", value) if _BITS_IN_CELL.fullmatch(value.strip()) else value.split(",")
        return [name.strip() for name in names if name.strip()]
    return None if value is None else row.check_list(row.columns.label, value)
