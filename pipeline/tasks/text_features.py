"""Texts and pairs of texts with a class or a similarity: the GLUE tasks."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.vocabulary import Vocabulary
from model.classification import ClassificationOutput
from pipeline.tasks.examples import TextExample
from pipeline.tasks.features import EncodedTexts, to_host
from pipeline.tasks.predictions import Logits
from pipeline.tasks.rows import IGNORED, Segments, cls_grid, pack, truncate_pair
from pipeline.tasks.task import Task


class TextBatch(NamedTuple):
    """The arguments of `AlbertForSequenceClassification.forward`."""

    input_ids: NDArray[np.int64]  # (B, S)
    token_type_ids: NDArray[np.int64]  # (B, S)
    position_ids: NDArray[np.int64]  # (B, S)
    sequence_ids: NDArray[np.int64]  # (B, S)
    cls_positions: NDArray[np.int64]  # (B, P)
    sequences: NDArray[np.int64]  # (N,) which sequence each unit is, row * P + number
    labels: NDArray  # (N,) int64 classes or float32 similarities, -100 where unknown

    @property
    def label_count(self) -> int:
        """How many labels there are."""
        return int((self.labels != IGNORED).sum())


class TextFeatures:
    """A unit is an example. `Features`."""

    def __init__(self, task: Task, vocabulary: Vocabulary, examples: Sequence[TextExample], max_length: int) -> None:
        """Args: max_length: tokens of the longest sequence; what is longer loses the end of its longer text."""
        self.examples = len(examples)
        self._ids = np.array([example.id for example in examples])
        kind = np.float32 if task.kind == "regression" else np.int64
        labels = [IGNORED if example.label is None else example.label for example in examples]
        self._labels = np.array(labels, dtype=kind)
        self._max_length = max_length
        self._first = EncodedTexts(vocabulary, [example.first for example in examples])
        self._second = None
        self.lengths = np.minimum(self._first.lengths + 2, max_length)
        if examples[0].second is not None:
            self._second = EncodedTexts(vocabulary, [example.second or "" for example in examples])
            self.lengths = np.minimum(self._first.lengths + self._second.lengths + 3, max_length)

    def segments(self, unit: int) -> Segments:
        """The text or texts of an example as tokens, cut to the longest sequence."""
        if self._second is None:
            return self._first[unit][: self._max_length - 2], None
        return truncate_pair(self._first[unit], self._second[unit], self._max_length - 3)

    def batch(self, units: Sequence[int], training: bool) -> TextBatch:
        """See `Features.batch`."""
        rows, places = pack([self.segments(unit) for unit in units])
        grid = cls_grid(places, len(rows.input_ids))
        sequences = places.row * grid.shape[1] + places.number
        return TextBatch(*rows, grid, sequences, self._labels[np.asarray(units, dtype=np.int64)])

    def found(self, units: Sequence[int], batch: TextBatch, output: ClassificationOutput) -> list[NDArray[np.float32]]:
        """The logits (C,) of each unit."""
        return list(to_host(output.logits))

    def predictions(self, found: Mapping[int, NDArray[np.float32]]) -> Logits:
        """See `Features.predictions`."""
        logits = np.stack([found[unit] for unit in range(self.examples)])
        return Logits(self._ids, logits, None if (self._labels == IGNORED).any() else self._labels)
