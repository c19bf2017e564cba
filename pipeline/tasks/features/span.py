"""Features of questions about passages, window by window: SQuAD 1.1 and 2.0."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from data_prep.text.offsets import OffsetEncoder, TokensWithOffsets
from data_prep.text.vocabulary import Vocabulary
from model.spans import SpanOutput
from pipeline.tasks.examples import Question
from pipeline.tasks.features.base import EncodedTexts
from pipeline.tasks.features.best_spans import BestSpans, best_spans
from pipeline.tasks.features.row_packing import SegmentPair, pack
from pipeline.tasks.features.windows import best_window_of_tokens, tokens_of_answer, windows_of
from pipeline.tasks.predictions import Answers, Span


@dataclass(frozen=True)
class SpanLimits:
    """The limits of windows and answers, with the paper's values as defaults.

    Attributes:
        doc_stride: tokens from the start of one window to the start of the next one.
        max_query_length: the largest number of tokens of the question; only the first ones are kept.
        max_answer_length: tokens of the longest answer.
        nbest: the number of answers that are kept for each question.
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
    window_positions: NDArray[np.int64]  # (N, L) row * S + position of each token, -1 after the window's end
    allowed: NDArray[np.int64]  # (N, L) 1 at [CLS] and the passage
    start_positions: NDArray[np.int64] | None  # (N,) in the window; 0 if it holds no answer
    end_positions: NDArray[np.int64] | None  # (N,)

    @property
    def label_count(self) -> int:
        """The number of windows with a label."""
        return 0 if self.start_positions is None else len(self.start_positions)


class WindowSpans(NamedTuple):
    """The best answers in one window, in tokens of the passage, and the log-odds that the window has no answer."""

    spans: list[tuple[int, int, float]]  # first token, last token, score
    null_logit: float | None


class _QuestionWindow(NamedTuple):
    """One window of a question's passage. All positions are tokens of the passage."""

    question: int  # its number
    start: int
    length: int
    first: int  # of the answer; -1 if the window does not hold it
    last: int  # of the answer
    startable: NDArray[np.bool_]  # (length,) tokens whose best window this is


class SpanFeatures:
    """The features of questions; a sample is one window of a passage. Implements `Features`."""

    def __init__(
        self, vocabulary: Vocabulary, examples: Sequence[Question], max_length: int, limits: SpanLimits
    ) -> None:
        """Makes windows that have, with question and special tokens, at most `max_length` tokens."""
        self.examples = len(examples)
        self._questions = examples
        self._limits = limits
        self._query_length = min(limits.max_query_length, max_length // 2)
        self._queries = EncodedTexts(vocabulary, [question.text for question in examples])
        encoder = OffsetEncoder(vocabulary)
        passages: dict[str, TokensWithOffsets] = {}
        for question in examples:
            if question.passage.text not in passages:
                passages[question.passage.text] = encoder.encode(question.passage.text)
        self._passages = [passages[question.passage.text] for question in examples]
        self._windows: list[_QuestionWindow] = []
        for number in range(len(examples)):
            self._add_windows(number, max_length)
        queries = np.minimum(self._queries.lengths, self._query_length)
        lengths = [queries[window.question] + window.length + 3 for window in self._windows]
        self.lengths = np.array(lengths, dtype=np.int64)

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
            startable = best[start : start + length] == index
            self._windows.append(_QuestionWindow(number, start, length, first, last, startable))

    def _query(self, number: int) -> NDArray[np.uint16]:
        return self._queries[number][: self._query_length]

    def segments(self, sample: int) -> SegmentPair:
        """The tokens of the question and of the window."""
        number, start, length = self._windows[sample][:3]
        return self._query(number), self._passages[number].ids[start : start + length]

    def batch(self, samples: Sequence[int], training: bool) -> SpanBatch:
        """See `Features.batch`."""
        rows, placement = pack([self.segments(sample) for sample in samples])
        longest = int(placement.length.max(initial=1))
        offsets = np.arange(longest)  # (L,)
        begins = placement.row * rows.input_ids.shape[1] + placement.start  # (N,)
        inside = offsets < placement.length[:, None]  # (N, L)
        window_positions = np.where(inside, begins[:, None] + offsets, -1)
        first_of_passage = self._passage_starts(samples)  # (N,)
        in_passage = (offsets >= first_of_passage[:, None]) & (offsets < placement.length[:, None] - 1)
        allowed = (in_passage | (offsets == 0)).astype(np.int64)
        if not training:
            return SpanBatch(*rows, window_positions, allowed, None, None)
        labels = np.zeros((len(samples), 2), dtype=np.int64)
        for index, sample in enumerate(samples):
            window, shift = self._windows[sample], first_of_passage[index]
            if window.first >= 0:
                labels[index] = window.first - window.start + shift, window.last - window.start + shift
        return SpanBatch(*rows, window_positions, allowed, labels[:, 0].copy(), labels[:, 1].copy())

    def _passage_starts(self, samples: Sequence[int]) -> NDArray[np.int64]:
        """The position of the first passage token in each window, after [CLS] question [SEP], (N,)."""
        questions = [self._windows[sample].question for sample in samples]
        return np.array([len(self._query(number)) + 2 for number in questions], dtype=np.int64)

    def decode(self, samples: Sequence[int], batch: SpanBatch, output: SpanOutput) -> list[WindowSpans]:
        """The best spans of each window. A span may begin only at a token whose best window this is."""
        startable = np.zeros(batch.allowed.shape, dtype=bool)  # (N, L)
        first_of_passage = self._passage_starts(samples)
        for index, sample in enumerate(samples):
            window, start = self._windows[sample], first_of_passage[index]
            startable[index, start : start + window.length] = window.startable
        mask = torch.from_numpy(startable).to(output.start_logits.device)
        spans = best_spans(output, mask, self._limits.nbest, self._limits.max_answer_length)
        nulls = None if output.null_logits is None else output.null_logits.tolist()
        return [
            WindowSpans(
                self._in_passage(spans, index, self._windows[sample].start - int(first_of_passage[index])),
                None if nulls is None else nulls[index],
            )
            for index, sample in enumerate(samples)
        ]

    def _in_passage(self, spans: BestSpans, index: int, shift: int) -> list[tuple[int, int, float]]:
        """The spans of window `index`, moved by `shift` from positions of the window to tokens of the passage."""
        return [
            (start + shift, end + shift, score)
            for start, end, score in zip(spans.starts[index], spans.ends[index], spans.scores[index])
            if score > -np.inf
        ]

    def predictions(self, outputs: Mapping[int, WindowSpans]) -> dict[str, Answers]:
        """The best spans over all windows of each question, in the passage's own characters."""
        by_question: dict[int, list[WindowSpans]] = defaultdict(list)
        for sample, window in enumerate(self._windows):
            by_question[window.question].append(outputs[sample])
        return {
            question.id: self._answers(number, by_question[number]) for number, question in enumerate(self._questions)
        }

    def _answers(self, number: int, windows: Sequence[WindowSpans]) -> Answers:
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
