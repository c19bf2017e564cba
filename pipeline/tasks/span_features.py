"""Questions about passages, window by window: SQuAD 1.1 and 2.0."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from data_prep.offsets import PlacedTokens, PlacingEncoder
from data_prep.vocabulary import Vocabulary
from model.spans import SpanOutput
from pipeline.tasks.best_spans import BestSpans, best_spans
from pipeline.tasks.examples import Question
from pipeline.tasks.features import EncodedTexts
from pipeline.tasks.predictions import Answers, Span
from pipeline.tasks.rows import Segments, pack
from pipeline.tasks.windows import best_window_of_tokens, tokens_of_answer, windows_of


@dataclass(frozen=True)
class SpanLimits:
    """How passages are cut and answers looked for; the paper's values.

    Attributes:
        doc_stride: tokens from one window's start to the next one's.
        max_query_length: tokens of the question that are read, the first ones.
        max_answer_length: tokens of the longest answer.
        nbest: answers that are kept of each question.
    """

    doc_stride: int = 128
    max_query_length: int = 64
    max_answer_length: int = 30
    nbest: int = 20


class SpanBatch(NamedTuple):
    """The arguments of the models of `model.spans`."""

    input_ids: NDArray[np.int64]  # (B, S)
    token_type_ids: NDArray[np.int64]  # (B, S)
    position_ids: NDArray[np.int64]  # (B, S)
    sequence_ids: NDArray[np.int64]  # (B, S)
    window_positions: NDArray[np.int64]  # (N, L) row * S + position of each window's tokens, -1 behind its end
    allowed: NDArray[np.int64]  # (N, L) 1 at [CLS] and the passage
    start_positions: NDArray[np.int64] | None  # (N,) in the window; 0 where it holds no answer
    end_positions: NDArray[np.int64] | None  # (N,)

    @property
    def label_count(self) -> int:
        """How many windows have a label."""
        return 0 if self.start_positions is None else len(self.start_positions)


class FoundSpans(NamedTuple):
    """The best answers in one window, in tokens of the passage, and the log-odds that it holds none."""

    spans: list[tuple[int, int, float]]  # first token, last token, score
    null_logit: float | None


class SpanFeatures:
    """A unit is a window of a passage. `Features`."""

    def __init__(
        self, vocabulary: Vocabulary, examples: Sequence[Question], max_length: int, limits: SpanLimits
    ) -> None:
        """Args: max_length: tokens of the longest window with its question, special ones included."""
        self.examples = len(examples)
        self._questions = examples
        self._limits = limits
        self._query_length = min(limits.max_query_length, max_length // 2)
        self._queries = EncodedTexts(vocabulary, [question.text for question in examples])
        encoder = PlacingEncoder(vocabulary)
        passages: dict[str, PlacedTokens] = {}
        for question in examples:
            if question.passage.text not in passages:
                passages[question.passage.text] = encoder.encode(question.passage.text)
        self._passages = [passages[question.passage.text] for question in examples]
        self._units: list[tuple[int, int, int, int, int]] = []  # question, start, length, first and last answer token
        self._startable: list[NDArray[np.bool_]] = []  # of each unit: (length,) tokens that it shows best
        for number in range(len(examples)):
            self._add_windows(number, max_length)
        queries = np.minimum(self._queries.lengths, self._query_length)
        self.lengths = np.array([queries[unit[0]] + unit[2] + 3 for unit in self._units], dtype=np.int64)

    def _add_windows(self, number: int, max_length: int) -> None:
        question, tokens = self._questions[number], self._passages[number]
        answer = None
        if question.answers:
            answer = tokens_of_answer(tokens, *question.answers[0])
        capacity = max_length - 3 - len(self._query(number))
        windows = windows_of(len(tokens.ids), capacity, self._limits.doc_stride)
        best = best_window_of_tokens(windows, len(tokens.ids))
        for index, (start, length) in enumerate(windows):
            first = last = -1
            if answer is not None and start <= answer[0] and answer[1] < start + length:
                first, last = answer
            self._units.append((number, start, length, first, last))
            self._startable.append(best[start : start + length] == index)

    def _query(self, number: int) -> NDArray[np.uint16]:
        return self._queries[number][: self._query_length]

    def segments(self, unit: int) -> Segments:
        """The question and the window's part of the passage, as tokens."""
        number, start, length, *_ = self._units[unit]
        return self._query(number), self._passages[number].ids[start : start + length]

    def batch(self, units: Sequence[int], training: bool) -> SpanBatch:
        """See `Features.batch`."""
        rows, places = pack([self.segments(unit) for unit in units])
        longest = int(places.length.max(initial=1))
        offsets = np.arange(longest)  # (L,)
        begins = places.row * rows.input_ids.shape[1] + places.start  # (N,)
        inside = offsets < places.length[:, None]  # (N, L)
        window_positions = np.where(inside, begins[:, None] + offsets, -1)
        first_of_passage = self._passage_starts(units)  # (N,)
        in_passage = (offsets >= first_of_passage[:, None]) & (offsets < places.length[:, None] - 1)
        allowed = (in_passage | (offsets == 0)).astype(np.int64)
        if not training:
            return SpanBatch(*rows, window_positions, allowed, None, None)
        labels = np.zeros((len(units), 2), dtype=np.int64)
        for index, unit in enumerate(units):
            _, start, _, first, last = self._units[unit]
            if first >= 0:
                labels[index] = first - start + first_of_passage[index], last - start + first_of_passage[index]
        return SpanBatch(*rows, window_positions, allowed, labels[:, 0].copy(), labels[:, 1].copy())

    def _passage_starts(self, units: Sequence[int]) -> NDArray[np.int64]:
        """(N,) the place of each window's first token of the passage: behind [CLS] question [SEP]."""
        return np.array([len(self._query(self._units[unit][0])) + 2 for unit in units], dtype=np.int64)

    def found(self, units: Sequence[int], batch: SpanBatch, output: SpanOutput) -> list[FoundSpans]:
        """The best spans of each window that begin where it, of all windows, shows the passage best."""
        startable = np.zeros(batch.allowed.shape, dtype=bool)  # (N, L)
        first_of_passage = self._passage_starts(units)
        for index, unit in enumerate(units):
            start = first_of_passage[index]
            startable[index, start : start + len(self._startable[unit])] = self._startable[unit]
        mask = torch.from_numpy(startable).to(output.start_logits.device)
        spans = best_spans(output, mask, self._limits.nbest, self._limits.max_answer_length)
        nulls = None if output.null_logits is None else output.null_logits.tolist()
        return [
            FoundSpans(
                self._in_passage(spans, index, self._units[unit][1] - int(first_of_passage[index])),
                None if nulls is None else nulls[index],
            )
            for index, unit in enumerate(units)
        ]

    def _in_passage(self, spans: BestSpans, index: int, shift: int) -> list[tuple[int, int, float]]:
        """The spans of one window, from places in the window to tokens of the passage."""
        return [
            (start + shift, end + shift, score)
            for start, end, score in zip(spans.starts[index], spans.ends[index], spans.scores[index])
            if score > -np.inf
        ]

    def predictions(self, found: Mapping[int, FoundSpans]) -> dict[str, Answers]:
        """See `Features.predictions`: the best spans over each question's windows, as the passage spells them."""
        by_question: dict[int, list[FoundSpans]] = defaultdict(list)
        for unit, (number, *_) in enumerate(self._units):
            by_question[number].append(found[unit])
        return {
            question.id: self._answers(number, by_question[number]) for number, question in enumerate(self._questions)
        }

    def _answers(self, number: int, windows: Sequence[FoundSpans]) -> Answers:
        question, tokens = self._questions[number], self._passages[number]
        spans = sorted((span for window in windows for span in window.spans), key=itemgetter(2), reverse=True)
        nbest = []
        for first, last, score in spans[: self._limits.nbest]:
            start, end = int(tokens.starts[first]), int(tokens.ends[last])
            if start < end:
                nbest.append(Span(question.passage.text[start:end], start, end, score))
        nulls = [window.null_logit for window in windows if window.null_logit is not None]
        gold = tuple(text for text, _ in question.answers) if question.labelled else None
        return Answers(tuple(nbest), min(nulls) if nulls else None, gold)
