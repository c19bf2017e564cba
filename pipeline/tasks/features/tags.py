"""Features of texts with a tag for each token: the first piece of a token carries its tag.

A text that is longer than the model's sequence is divided into windows, so that each token gets a tag.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.text.vocabulary import Vocabulary
from model.classification import ClassificationOutput
from model.layers.heads import IGNORED_LABEL
from pipeline.tasks.examples import TagExample
from pipeline.tasks.features.base import EncodedTexts, to_host
from pipeline.tasks.features.row_packing import Tokens, cls_grid, pack
from pipeline.tasks.predictions import TagLogits
from pipeline.tasks.task import Task

OUTSIDE = "O"
"""The tag of a token that has no piece, if the task has such a tag; otherwise its first tag."""


class TagBatch(NamedTuple):
    """The arguments of `AlbertForTokenClassification.forward`."""

    input_ids: NDArray[np.int64]  # (B, S)
    token_type_ids: NDArray[np.int64]  # (B, S)
    position_ids: NDArray[np.int64]  # (B, S)
    sequence_ids: NDArray[np.int64]  # (B, S)
    cls_positions: NDArray[np.int64]  # (B, P)
    token_positions: NDArray[np.int64]  # (T,) row * S + position of the first piece of each token
    labels: NDArray[np.int64]  # (T,) -100 where unknown

    @property
    def label_count(self) -> int:
        """The number of known labels."""
        return int((self.labels != IGNORED_LABEL).sum())


class _Window(NamedTuple):
    """Tokens [start, end) of all texts' tokens, which belong to one text."""

    start: int
    end: int


class TagFeatures:
    """The features of texts in tokens; a sample is one window of a text. Implements `Features`."""

    def __init__(self, task: Task, vocabulary: Vocabulary, examples: Sequence[TagExample], max_length: int) -> None:
        """Makes windows of whole tokens with at most `max_length` pieces; a longer token is cut."""
        self.examples = len(examples)
        self._ids = np.array([example.id for example in examples])
        self._token_counts = np.array([len(example.tokens) for example in examples], dtype=np.int64)
        self._classes = len(task.labels)
        self._outside = task.labels.index(OUTSIDE) if OUTSIDE in task.labels else 0
        self._pieces = EncodedTexts(vocabulary, [token for example in examples for token in example.tokens])
        self._capacity = max_length - 2
        self._lengths = np.minimum(self._pieces.lengths, self._capacity)  # (tokens,)
        unknown = [IGNORED_LABEL]
        self._labels = np.array(
            [label for example in examples for label in example.labels or unknown * len(example.tokens)], dtype=np.int64
        )  # (tokens,)
        self._windows = self._make_windows()
        self.lengths = np.array(
            [2 + self._lengths[start:end].sum() for start, end in self._windows], dtype=np.int64
        )  # (samples,)

    def _make_windows(self) -> list[_Window]:
        windows = []
        end = 0
        for count in self._token_counts.tolist():
            start, end, filled = end, end + count, 0
            for token, length in enumerate(self._lengths[start:end].tolist(), start=start):
                if filled + length > self._capacity:
                    windows.append(_Window(start, token))
                    start, filled = token, 0
                filled += length
            windows.append(_Window(start, end))
        return windows

    def segments(self, sample: int) -> Tokens:
        """The pieces of a window's tokens."""
        start, end = self._windows[sample]
        return np.concatenate([self._pieces[token][: self._capacity] for token in range(start, end)])

    def _seen(self, sample: int) -> NDArray[np.int64]:
        """The tokens of a window that have a piece. Of the others normalisation leaves nothing."""
        start, end = self._windows[sample]
        return start + np.flatnonzero(self._lengths[start:end])

    def batch(self, samples: Sequence[int], training: bool) -> TagBatch:
        """See `Features.batch`."""
        rows, placement = pack([(self.segments(sample), None) for sample in samples])
        grid = cls_grid(placement, len(rows.input_ids))
        positions, tokens = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for number, sample in enumerate(samples):
            seen = self._seen(sample)
            lengths = self._lengths[seen]
            first = placement.row[number] * rows.input_ids.shape[1] + placement.start[number] + 1  # behind [CLS]
            positions.append(first + np.cumsum(lengths) - lengths)
            tokens.append(seen)
        return TagBatch(*rows, grid, np.concatenate(positions), self._labels[np.concatenate(tokens)])

    def decode(
        self, samples: Sequence[int], batch: TagBatch, output: ClassificationOutput
    ) -> list[NDArray[np.float32]]:
        """The logits (tokens, C) of each window. A token without a piece gets the tag `OUTSIDE`."""
        logits = to_host(output.logits)  # (T, C)
        found = []
        end = 0
        for sample in samples:
            window, seen = self._windows[sample], self._seen(sample)
            start, end = end, end + len(seen)
            of_window = np.zeros((window.end - window.start, self._classes), dtype=np.float32)
            of_window[:, self._outside] = 1.0
            of_window[seen - window.start] = logits[start:end]
            found.append(of_window)
        return found

    def predictions(self, outputs: Mapping[int, NDArray[np.float32]]) -> TagLogits:
        """See `Features.predictions`."""
        logits = np.concatenate([outputs[sample] for sample in range(len(self._windows))])
        labels = None if (self._labels == IGNORED_LABEL).any() else self._labels
        return TagLogits(self._ids, self._token_counts, logits, labels)
