"""Questions with options about a passage: RACE."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.vocabulary import Vocabulary
from model.classification import ClassificationOutput
from pipeline.tasks.examples import ChoiceExample
from pipeline.tasks.features import EncodedTexts, to_host
from pipeline.tasks.predictions import Logits
from pipeline.tasks.rows import IGNORED, Segments, cls_grid, pack
from pipeline.tasks.task import Task

MAX_QUERY_LENGTH = 128
"""Tokens that remain of question + option, the last ones."""

_BLANK = re.compile(r"_+")


class ChoiceBatch(NamedTuple):
    """The arguments of `AlbertForMultipleChoice.forward`."""

    input_ids: NDArray[np.int64]  # (B, S)
    token_type_ids: NDArray[np.int64]  # (B, S)
    position_ids: NDArray[np.int64]  # (B, S)
    sequence_ids: NDArray[np.int64]  # (B, S)
    cls_positions: NDArray[np.int64]  # (B, P)
    sequences: NDArray[np.int64]  # (N, K) which sequence each option is, row * P + number
    labels: NDArray[np.int64]  # (N,) -100 where unknown

    @property
    def label_count(self) -> int:
        """How many labels there are."""
        return int((self.labels != IGNORED).sum())


class ChoiceFeatures:
    """A unit is a question with its options. `Features`."""

    def __init__(self, task: Task, vocabulary: Vocabulary, examples: Sequence[ChoiceExample], max_length: int) -> None:
        """Args: max_length: tokens of the longest sequence; the passage is cut to what question and option leave."""
        self.examples = len(examples)
        self._ids = np.array([example.id for example in examples])
        self._levels = np.array([example.level for example in examples])
        self._labels = np.array([IGNORED if example.label is None else example.label for example in examples], np.int64)
        self._options = len(task.labels)
        self._max_length = max_length
        self._query_length = min(MAX_QUERY_LENGTH, max_length // 2)
        passages = {example.passage: None for example in examples}
        numbers = {passage: number for number, passage in enumerate(passages)}
        self._passage_of = [numbers[example.passage] for example in examples]
        self._passages = EncodedTexts(vocabulary, list(passages))
        queries = [query(example.question, option) for example in examples for option in example.options]
        self._queries = EncodedTexts(vocabulary, queries)
        self.lengths = self._lengths()

    def _lengths(self) -> NDArray[np.int64]:
        queries = np.minimum(self._queries.lengths, self._query_length).reshape(-1, self._options)  # (units, K)
        passages = self._passages.lengths[self._passage_of, None]  # (units, 1)
        return np.minimum(queries + passages + 3, self._max_length).sum(axis=1)

    def segments(self, unit: int) -> list[Segments]:
        """The passage and the question with each option, as tokens."""
        passage = self._passages[self._passage_of[unit]]
        found: list[Segments] = []
        for option in range(self._options):
            asked = self._queries[unit * self._options + option][-self._query_length :]
            found.append((passage[: self._max_length - 3 - len(asked)], asked))
        return found

    def batch(self, units: Sequence[int], training: bool) -> ChoiceBatch:
        """See `Features.batch`."""
        rows, places = pack([segments for unit in units for segments in self.segments(unit)])
        grid = cls_grid(places, len(rows.input_ids))
        sequences = (places.row * grid.shape[1] + places.number).reshape(len(units), self._options)
        return ChoiceBatch(*rows, grid, sequences, self._labels[np.asarray(units, dtype=np.int64)])

    def found(
        self, units: Sequence[int], batch: ChoiceBatch, output: ClassificationOutput
    ) -> list[NDArray[np.float32]]:
        """The logits (K,) of each unit."""
        return list(to_host(output.logits))

    def predictions(self, found: Mapping[int, NDArray[np.float32]]) -> Logits:
        """See `Features.predictions`."""
        logits = np.stack([found[unit] for unit in range(self.examples)])
        return Logits(self._ids, logits, None if (self._labels == IGNORED).any() else self._labels, self._levels)


def query(question: str, option: str) -> str:
    """Question and option as one text: the option in the place of each blank, or behind a question without one."""
    if "_" in question:
        return _BLANK.sub(lambda _: option, question)
    return f"{question} {option}"
