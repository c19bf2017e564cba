"""Questions about passages, read window by window: SQuAD 1.1 and 2.0."""

import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.text.text_encoder import OffsetEncoder
from data_prep.text.vocabulary import TokensWithOffsets, Vocabulary
from pipeline.data.packed_rows import sequence_length
from pipeline.tasks.files.rows import Columns, ExampleRow, name_of, number_of
from pipeline.tasks.files.tables import Table
from pipeline.tasks.kinds.answers import Answers, AnswersById, Question, Span, squad, squad_scores
from pipeline.tasks.kinds.row_packing import EncodedTexts, SegmentPair, Tokens, pack
from pipeline.tasks.task import Features, Kind, SpanLimits, Statistic, Task

if TYPE_CHECKING:
    from torch import Tensor

    from model.spans import SpanOutput

    _Spans = tuple[Tensor, Tensor, Tensor]

STARTS = "answer_start"  # the column of the place of the answer, in characters of the passage
END_BEAM = 5  # the ends that are kept for each start in the beam of a conditioned model


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
    """One window of a question's passage. Positions are those of the window, from its [CLS] on."""

    question: int  # its number
    segments: SegmentPair  # tokens of the question, and those of the passage that are in the window
    shift: int  # from the number of a token of the passage to its position
    answer: tuple[int, int]  # first and last position, 0 if the window does not hold the answer
    startable: NDArray[np.bool_]  # (tokens up to the end of the passage,) whether this is the token's best window


def windows_of(tokens: int, capacity: int, stride: int) -> list[tuple[int, int]]:
    """Windows [start, end) of up to `capacity` tokens, `stride` or `capacity` apart, which cover the whole passage.

    An empty passage has one empty window.
    """
    step = min(stride, capacity)
    starts = range(0, max(tokens - capacity, 0) + step, step)
    return [(start, min(start + capacity, tokens)) for start in starts]


def best_window_of_tokens(windows: Sequence[tuple[int, int]], tokens: int) -> NDArray[np.int64]:
    """The window in which each token has the most context, (tokens,).

    The context of a token is counted on the side that has less of it, and a hundredth of the window's length is added.
    Of equal windows the earlier one is best. An answer is searched for only in the best window of its first token.
    """
    best, scores = np.zeros(tokens, dtype=np.int64), np.full(tokens, -np.inf)
    for number, (start, end) in enumerate(windows):
        window, inside = slice(start, end), np.arange(end - start)
        context = np.minimum(inside, inside[::-1]) + 0.01 * (end - start)  # (end - start,)
        best[window][context > scores[window]] = number
        scores[window] = np.maximum(scores[window], context)
    return best


def tokens_of_answer(tokens: TokensWithOffsets, answer: str, start: int) -> tuple[int, int] | None:
    """The first and last token of the answer that begins at character `start`; None if it has no token."""
    first = int(np.searchsorted(tokens.ends, start, side="right"))
    last = int(np.searchsorted(tokens.starts, start + len(answer), side="left")) - 1
    return (first, last) if first <= last else None


class SpanFeatures:
    """The features of questions; a sample is one window of a passage. Implements `Features`."""

    cut = 0  # the windows have the whole passage

    def __init__(
        self, vocabulary: Vocabulary, examples: Sequence[Question], max_length: int, limits: SpanLimits
    ) -> None:
        """Makes windows that have, with question and special tokens, at most `max_length` tokens."""
        self.examples = len(examples)
        self._questions, self._limits = examples, limits
        queries = EncodedTexts(vocabulary, [question.text for question in examples])
        encode = functools.cache(OffsetEncoder(vocabulary).encode)
        self._passages = [encode(question.passage) for question in examples]
        self._windows: list[_QuestionWindow] = []
        for number in range(len(examples)):
            self._add_windows(number, queries[number][: min(limits.max_query_length, max_length // 2)], max_length)
        self.lengths = np.array([sequence_length(*window.segments) for window in self._windows], dtype=np.int64)

    def _add_windows(self, number: int, query: Tokens, max_length: int) -> None:
        """Adds the windows of a question: [CLS] question [SEP] tokens of the passage [SEP]."""
        question, tokens = self._questions[number], self._passages[number]
        answer = tokens_of_answer(tokens, *question.answers[0]) if question.answers else None
        windows = windows_of(len(tokens.ids), max_length - 3 - len(query), self._limits.doc_stride)
        best = best_window_of_tokens(windows, len(tokens.ids))
        before = np.zeros(len(query) + 2, dtype=np.bool_)  # no answer starts in [CLS] question [SEP]
        for index, (start, end) in enumerate(windows):
            shift = len(before) - start
            positions = (0, 0)  # [CLS]: the window does not hold the whole answer
            if answer is not None and start <= answer[0] and answer[1] < end:
                positions = (answer[0] + shift, answer[1] + shift)
            startable = np.concatenate([before, best[start:end] == index])
            self._windows.append(_QuestionWindow(number, (query, tokens.ids[start:end]), shift, positions, startable))

    def segments(self, sample: int) -> SegmentPair:
        """The tokens of the question and of the window."""
        return self._windows[sample].segments

    def batch(self, samples: Sequence[int], training: bool) -> SpanBatch:
        windows = [self._windows[sample] for sample in samples]
        rows, placement = pack([window.segments for window in windows])
        offsets, lengths = np.arange(placement.length.max(initial=1)), placement.length[:, None]  # (L,), (N, 1)
        begins = placement.row * rows.input_ids.shape[1] + placement.start  # (N,)
        window_positions = np.where(offsets < lengths, begins[:, None] + offsets, -1)  # (N, L)
        ends_of_query = np.array([2 + len(window.segments[0]) for window in windows], dtype=np.int64)[:, None]  # (N, 1)
        in_passage = (offsets >= ends_of_query) & (offsets < lengths - 1)  # (N, L)
        allowed = (in_passage | (offsets == 0)).astype(np.int64)
        answers = np.array([window.answer for window in windows], dtype=np.int64).reshape(-1, 2)  # (N, 2)
        labels = (answers[:, 0].copy(), answers[:, 1].copy()) if training else (None, None)
        return SpanBatch(*rows, window_positions, allowed, *labels)

    def decode(self, samples: Sequence[int], batch: SpanBatch, output: "SpanOutput") -> list[WindowSpans]:
        """The best spans of each window. A span may begin only at a token whose best window this is."""
        import torch

        windows = [self._windows[sample] for sample in samples]
        startable = np.zeros(batch.allowed.shape, dtype=bool)  # (N, L)
        for row, window in zip(startable, windows):
            row[: len(window.startable)] = window.startable
        mask = torch.from_numpy(startable).to(output.start_logits.device)
        best = best_spans(output, mask, self._limits.nbest, self._limits.max_answer_length)
        nulls = [None] * len(samples) if output.null_logits is None else output.null_logits.tolist()
        found = []
        for spans, window, null in zip(best, windows, nulls, strict=True):
            kept = [span for span in spans if span[2] > -np.inf]
            in_passage = [(start - window.shift, end - window.shift, score) for start, end, score in kept]
            found.append(WindowSpans(in_passage, null))
        return found

    def predictions(self, outputs: Mapping[int, WindowSpans]) -> AnswersById:
        """The best spans over all windows of each question, in the passage's own characters."""
        by_question: dict[int, list[WindowSpans]] = defaultdict(list)
        for sample, window in enumerate(self._windows):
            by_question[window.question].append(outputs[sample])
        answers = AnswersById()
        for number, (question, tokens) in enumerate(zip(self._questions, self._passages)):
            windows, nbest = by_question[number], []
            spans = sorted((span for window in windows for span in window.spans), key=itemgetter(2), reverse=True)
            for first, last, score in spans[: self._limits.nbest]:
                start, end = int(tokens.starts[first]), int(tokens.ends[last])
                if start < end:
                    nbest.append(Span(question.passage[start:end], start, end, score))
            nulls = [window.null_logit for window in windows if window.null_logit is not None]
            gold = tuple(text for text, _ in question.answers) if question.labelled else None
            answers[question.id] = Answers(tuple(nbest), min(nulls) if nulls else None, gold)
        return answers


def best_spans(
    output: "SpanOutput", startable: "Tensor", nbest: int, longest: int
) -> list[list[tuple[int, int, float]]]:
    """The `nbest` best spans of each window: first and last position in the window, and score, -inf for no span.

    They are computed on the device of the logits. Letters of the shapes: N windows, L positions in the longest window,
    T starts of a beam, A tokens of the longest answer, `longest`. The score of a plain span is the sum of its two
    logits. The score of a conditioned span is log P(start) + log P(end | start). Only the starts of the beam and the
    best ends of each start are tried. `startable`: bool (N, L), the positions at which a span may begin.
    """
    if output.start_beam is None:
        best = _plain(output, startable, nbest, longest)
    else:
        best = _conditioned(output, output.start_beam, startable, nbest, longest)
    return [list(zip(*of_window)) for of_window in zip(*(values.tolist() for values in best))]


def _plain(output: "SpanOutput", startable: "Tensor", nbest: int, longest: int) -> "_Spans":
    """The best of all spans by the sum of their logits: starts, ends and scores, (N, nbest) each."""
    import torch
    from torch.nn import functional

    start = output.start_logits.masked_fill(~startable, -torch.inf)  # (N, L)
    end = functional.pad(output.end_logits, (0, longest - 1), value=-torch.inf)  # (N, L + A - 1)
    scores = start[:, :, None] + end.unfold(1, longest, 1)  # (N, L, A): from each start to each of its A ends
    best, index = scores.flatten(1).topk(min(nbest, scores.shape[1] * longest), dim=-1)
    starts = index // longest
    return starts, starts + index % longest, best


def _conditioned(output: "SpanOutput", beam: "Tensor", startable: "Tensor", nbest: int, longest: int) -> "_Spans":
    """The best spans by log P(start) + log P(end | start), among the starts of the beam and the E best ends of each."""
    import torch

    length = output.start_logits.shape[1]
    log_start = torch.log_softmax(output.start_logits, dim=-1).masked_fill(~startable, -torch.inf)  # (N, L)
    log_end = torch.log_softmax(output.end_logits, dim=-1)  # (N, T, L) of each end, given each start of the beam
    distance = torch.arange(length, device=beam.device) - beam[:, :, None]  # (N, T, L) from the start to the end
    log_end = log_end.masked_fill((distance < 0) | (distance >= longest), -torch.inf)
    log_end, ends = log_end.topk(min(END_BEAM, length), dim=-1)  # (N, T, E) each
    scores = (log_start.gather(1, beam)[:, :, None] + log_end).flatten(1)  # (N, T * E)
    best, index = scores.topk(min(nbest, scores.shape[1]), dim=-1)  # (N, nbest) each
    starts = beam[:, :, None].expand_as(ends).flatten(1)  # (N, T * E)
    return starts.gather(1, index), ends.flatten(1).gather(1, index), best


class Spans(Kind):
    """An answer in a passage (SQuAD 1.1)."""

    name = "spans"
    model_class: ClassVar[str] = "model.spans.AlbertForQuestionAnswering"
    has_output_per_label = False
    predictions = AnswersById
    ending = ".json"
    uses_span_limits = True
    record_names: ClassVar[tuple[str, ...]] = ("prediction", "probability", "start", "end")
    own_tasks: ClassVar[Mapping[str, Columns]] = {"question-answering": Columns("question", "context", "answer")}
    architecture: ClassVar[str | None] = "AlbertForQuestionAnswering"
    pipeline_tag = "question-answering"
    pipeline_input = ""

    def make_features(
        self, task: Task, vocabulary: Vocabulary, examples: Sequence[Question], max_length: int, limits: SpanLimits
    ) -> Features:
        return SpanFeatures(vocabulary, examples, max_length, limits)

    def read_row(self, row: ExampleRow, labels: Sequence[str]) -> Question:
        """The question, the passage and, if they are read, the answers."""
        columns = row.columns
        assert columns.second_text is not None
        passage = row.text(columns.second_text)
        if row.lacks_label:
            raise row.mistake(f"it has no {columns.label!r}, as other rows have; leave it empty if there is no answer")
        answers = tuple(_accepted(row, passage)) if row.has_label else ()
        return Question(row.id, row.text(columns.text), passage, answers, row.has_label)

    def find_labels(self, table: Table, columns: Columns) -> tuple[str, ...]:
        """None: the answers are texts."""
        return ()

    def kind_for(self, examples: Sequence[Question]) -> str:
        """The name of `ConditionedSpans` if a question has no answer."""
        return self.name if all(question.answers for question in examples) else ConditionedSpans.name

    def choose_metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("f1", "exact")

    def records(self, task: Task, predictions: AnswersById) -> dict[str, dict[str, Any]]:
        return {name: given.record() for name, given in predictions.items()}

    def metrics(self, task: Task, predictions: AnswersById) -> dict[str, float]:
        """The metrics of `squad`."""
        return squad(*predictions.scored) if predictions.labelled else {}

    def statistic(self, task: Task, metric: str, predictions: AnswersById) -> Statistic:
        """The mean over the questions of F1 or exact match at the default threshold."""
        if not predictions.labelled:
            raise ValueError("the answers are not known")
        _, scores = squad_scores(*predictions.scored)
        values = np.array([score[metric == "f1"] for score in scores.values()])  # (N,)
        return lambda questions: float(values[questions].mean())

    def majority(self, task: Task, predictions: AnswersById) -> AnswersById:
        """No answer to any question."""
        return AnswersById({question: Answers((), None, given.gold) for question, given in predictions.items()})


def _accepted(row: ExampleRow, passage: str) -> Iterator[tuple[str, int]]:
    """The answers to the question of a row, each with its place in the passage; nothing for an unanswerable question.

    The column has a text, a list of them, or a list of objects with "text" and "answer_start", also as an object of
    lists, as in the data sets of SQuAD. The column `STARTS` may have the places; without them it is the first one.
    Empty texts alone are no answer.
    """
    given, starts = row.value(row.columns.label), row.value(STARTS)
    if isinstance(given, dict):
        given, starts = _text_and_place(row, given)
    texts = list(given) if isinstance(given, list | tuple) else [given]
    places = list(starts) if isinstance(starts, list | tuple) else [starts]
    if texts and all(isinstance(text, dict) for text in texts):
        texts, places = map(list, zip(*(_text_and_place(row, text) for text in texts)))
    if all(name_of(place) is None for place in places):
        places = [None] * len(texts)
    if len(texts) != len(places):
        raise row.mistake(f"{len(texts)} answers, but {len(places)} of {STARTS}; give each answer its own, or none")
    if all(text is None or (isinstance(text, str) and not text.strip()) for text in texts):
        return
    for answer, place in zip(texts, places):
        if not isinstance(answer, str) or not answer.strip():
            raise row.mistake(f"the answer {answer!r:.80} is no text; correct it, or leave all empty if there is none")
        if name_of(place) is None:
            match = re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", passage)  # rather a word than a part of one
            place = match.start() if match else passage.find(answer)
            if place < 0:
                remedy = "copy it from there, or leave it empty if there is none"
                raise row.mistake(f"the answer {answer!r:.80} is not in column {row.columns.second_text!r}; {remedy}")
        start = number_of(place)
        if not start.is_integer():
            raise row.mistake(f"{STARTS} is {place!r:.80}, which is no whole number; correct it, or leave it out")
        start = int(start)
        there = passage[max(0, start) :][: len(answer)]
        if start < 0 or there != answer:
            fault = f"the row says that {answer!r:.80} is at character {start} of its passage, where {there!r:.80} is"
            raise row.mistake(f"{fault}; correct {STARTS}, or leave it out")
        yield answer, start


def _text_and_place(row: ExampleRow, answer: Mapping[str, Any]) -> tuple[Any, Any]:
    """Text and place of an answer that is an object, or of several, as lists."""
    if "text" not in answer:
        raise row.mistake(f'the answer {str(answer)!r:.80} has no "text"; correct it, or leave it empty')
    return answer["text"], answer.get(STARTS)


class ConditionedSpans(Spans):
    """An answer in a passage, or the verdict that there is none (SQuAD 2.0)."""

    name = "conditioned_spans"
    model_class = "model.spans.AlbertForConditionedQuestionAnswering"
    record_names = (*Spans.record_names, "no_answer_score")
    own_tasks: ClassVar[Mapping[str, Columns]] = {}
    best_by = "best_f1"
    architecture = None
