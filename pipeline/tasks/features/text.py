"""Features of texts and pairs of texts with a class or a number: the GLUE tasks."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.text.vocabulary import Vocabulary
from model.classification import ClassificationOutput
from model.layers.heads import IGNORED_LABEL
from pipeline.tasks.examples import TextExample
from pipeline.tasks.features.base import EncodedTexts, to_host
from pipeline.tasks.features.row_packing import SegmentPair, cls_grid, pack, truncate_pair
from pipeline.tasks.predictions import Logits
from pipeline.tasks.task import Task


class TextBatch(NamedTuple):
    """The arguments of the `forward` of `AlbertForSequenceClassification` and `AlbertForMultipleChoice`."""

    input_ids: NDArray[np.int64]  # (B, S)
    token_type_ids: NDArray[np.int64]  # (B, S)
    position_ids: NDArray[np.int64]  # (B, S)
    sequence_ids: NDArray[np.int64]  # (B, S)
    cls_positions: NDArray[np.int64]  # (B, P)
    sequences: NDArray[np.int64]  # (N,), or (N, K) of the options: row * P + number
    labels: NDArray  # (N,) int64 classes, -100 where unknown, or float32 numbers, NaN where unknown

    @property
    def label_count(self) -> int:
        """The number of known labels."""
        return int(_known(self.labels).sum())


class TextFeatures:
    """The features of texts and pairs; a sample is one example. Implements `Features`."""

    def __init__(self, task: Task, vocabulary: Vocabulary, examples: Sequence[TextExample], max_length: int) -> None:
        """Cuts sequences of more than `max_length` tokens at the end of the longer text."""
        self.examples = len(examples)
        self._ids = np.array([example.id for example in examples])
        dtype = np.float32 if task.kind == "regression" else np.int64
        unknown = math.nan if task.kind == "regression" else IGNORED_LABEL  # any number may be a label, -100 too
        labels = [unknown if example.label is None else example.label for example in examples]
        self._labels = np.array(labels, dtype=dtype)
        self._max_length = max_length
        self._first = EncodedTexts(vocabulary, [example.first for example in examples])
        self._second = None
        self.lengths = np.minimum(self._first.lengths + 2, max_length)
        if examples[0].second is not None:
            self._second = EncodedTexts(vocabulary, [example.second or "" for example in examples])
            self.lengths = np.minimum(self._first.lengths + self._second.lengths + 3, max_length)

    def segments(self, sample: int) -> SegmentPair:
        """The tokens of an example's text or texts, cut to the maximal length."""
        if self._second is None:
            return self._first[sample][: self._max_length - 2], None
        return truncate_pair(self._first[sample], self._second[sample], self._max_length - 3)

    def batch(self, samples: Sequence[int], training: bool) -> TextBatch:
        """See `Features.batch`."""
        rows, placement = pack([self.segments(sample) for sample in samples])
        grid = cls_grid(placement, len(rows.input_ids))
        sequences = placement.row * grid.shape[1] + placement.number
        return TextBatch(*rows, grid, sequences, self._labels[np.asarray(samples, dtype=np.int64)])

    def decode(
        self, samples: Sequence[int], batch: TextBatch, output: ClassificationOutput
    ) -> list[NDArray[np.float32]]:
        """The logits (C,) of each sample."""
        return list(to_host(output.logits))

    def predictions(self, outputs: Mapping[int, NDArray[np.float32]]) -> Logits:
        """See `Features.predictions`."""
        logits = np.stack([outputs[sample] for sample in range(self.examples)])
        return Logits(self._ids, logits, self._labels if _known(self._labels).all() else None)


def _known(labels: NDArray) -> NDArray[np.bool_]:
    return ~np.isnan(labels) if labels.dtype.kind == "f" else labels != IGNORED_LABEL
