"""Features of questions with options about a passage: RACE."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from data_prep.text.vocabulary import Vocabulary
from model.classification import ClassificationOutput
from model.layers.heads import IGNORED_LABEL
from pipeline.tasks.examples import ChoiceExample
from pipeline.tasks.features.base import EncodedTexts, to_host
from pipeline.tasks.features.row_packing import SegmentPair, cls_grid, pack
from pipeline.tasks.features.text import TextBatch
from pipeline.tasks.predictions import Logits
from pipeline.tasks.task import Task

MAX_QUERY_LENGTH = 128
"""The largest number of tokens of question + option; only the last ones are kept."""

_BLANK = re.compile(r"_+")


class ChoiceFeatures:
    """The features of questions; a sample is one question with its K options. Implements `Features`."""

    def __init__(self, task: Task, vocabulary: Vocabulary, examples: Sequence[ChoiceExample], max_length: int) -> None:
        """Cuts the passage if question, option and passage have more than `max_length` tokens."""
        self.examples = len(examples)
        self._ids = np.array([example.id for example in examples])
        self._levels = np.array([example.level for example in examples])
        labels = [IGNORED_LABEL if example.label is None else example.label for example in examples]
        self._labels = np.array(labels, dtype=np.int64)
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
        queries = np.minimum(self._queries.lengths, self._query_length).reshape(-1, self._options)  # (samples, K)
        passages = self._passages.lengths[self._passage_of, None]  # (samples, 1)
        return np.minimum(queries + passages + 3, self._max_length).sum(axis=1)

    def segments(self, sample: int) -> list[SegmentPair]:
        """The passage and the question with each option, as tokens, K pairs."""
        passage = self._passages[self._passage_of[sample]]
        pairs: list[SegmentPair] = []
        for option in range(self._options):
            asked = self._queries[sample * self._options + option][-self._query_length :]
            pairs.append((passage[: self._max_length - 3 - len(asked)], asked))
        return pairs

    def batch(self, samples: Sequence[int], training: bool) -> TextBatch:
        """See `Features.batch`."""
        rows, placement = pack([segments for sample in samples for segments in self.segments(sample)])
        grid = cls_grid(placement, len(rows.input_ids))
        sequences = (placement.row * grid.shape[1] + placement.number).reshape(len(samples), self._options)
        return TextBatch(*rows, grid, sequences, self._labels[np.asarray(samples, dtype=np.int64)])

    def decode(
        self, samples: Sequence[int], batch: TextBatch, output: ClassificationOutput
    ) -> list[NDArray[np.float32]]:
        """The logits (K,) of each sample."""
        return list(to_host(output.logits))

    def predictions(self, outputs: Mapping[int, NDArray[np.float32]]) -> Logits:
        """See `Features.predictions`."""
        logits = np.stack([outputs[sample] for sample in range(self.examples)])
        labels = None if (self._labels == IGNORED_LABEL).any() else self._labels
        return Logits(self._ids, logits, labels, self._levels)


def query(question: str, option: str) -> str:
    """Question and option as one text: the option replaces each blank, or follows a question without a blank."""
    if "_" in question:
        return _BLANK.sub(lambda _: option, question)
    return f"{question} {option}"
