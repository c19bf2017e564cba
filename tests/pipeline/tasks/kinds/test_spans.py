"""SQuAD's windows and answers, against brute force and from characters to tokens and back."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.text.text_encoder import Encoder, OffsetEncoder
from data_prep.text.vocabulary import TokensWithOffsets
from model.spans import SpanOutput
from pipeline.tasks.kinds import questions
from pipeline.tasks.kinds.answers import Question
from pipeline.tasks.kinds.questions import SpanFeatures, WindowSpans, best_spans, tokens_of_answer, windows_of
from pipeline.tasks.task import SpanLimits
from tests.pipeline.conftest import sentences


@given(st.integers(0, 300), st.integers(1, 60), st.integers(1, 80))
def test_windows_cover_the_passage_without_gaps(tokens, capacity, stride):
    windows = windows_of(tokens, capacity, stride)
    covered = [0] * tokens
    for start, end in windows:
        assert end - start <= capacity
        for position in range(start, end):
            covered[position] += 1
    assert all(covered)
    assert (windows[0][0], windows[-1][1]) == (0, tokens)
    for before, after in itertools.pairwise(windows):
        assert after[0] - before[0] == min(stride, capacity)
        assert before[1] < tokens
    best = questions.best_window_of_tokens(windows, tokens)
    for position in range(tokens):
        # As in BERT's _check_is_max_context: the first window with the highest score.
        scores = [
            min(position - start, end - 1 - position) + 0.01 * (end - start) if start <= position < end else -1.0
            for start, end in windows
        ]
        assert best[position] == scores.index(max(scores))


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 5))
def test_the_best_plain_spans_equal_an_exhaustive_search(seed, length, longest):
    rng = np.random.default_rng(seed)
    start, end = rng.standard_normal((2, length))
    allowed = rng.random(length) < 0.7
    startable = rng.random(length) < 0.7
    barred = np.where(allowed, 0.0, -np.inf)
    output = SpanOutput(torch.tensor((start + barred)[None]), torch.tensor((end + barred)[None]))
    found = best_spans(output, torch.tensor(startable[None]), 6, longest)
    spans = [(i, j) for i in range(length) for j in range(i, min(i + longest, length))]
    spans = [(i, j) for i, j in spans if startable[i] and allowed[i] and allowed[j]]
    wanted = sorted(((start[i] + end[j], i, j) for i, j in spans), reverse=True)[:6]
    kept = [span for span in found[0] if span[2] > -np.inf]
    assert [(i, j) for i, j, _ in kept] == [(i, j) for _, i, j in wanted]
    assert [score for *_, score in kept] == pytest.approx([score for score, *_ in wanted])


def test_the_best_conditioned_spans():
    start = torch.log(torch.tensor([[0.1, 0.5, 0.3, 0.1]]))
    beam = torch.tensor([[1, 2]])
    end = torch.log(torch.tensor([[[0.1, 0.2, 0.3, 0.4], [0.1, 0.6, 0.2, 0.1]]]))
    output = SpanOutput(start, end, start_beam=beam, null_logits=torch.zeros(1))
    startable = torch.tensor([[False, True, True, True]])
    found = best_spans(output, startable, 4, 2)
    # Ends before the start, and further than two tokens, are out: 1-2, 1-1, 2-2 and 2-3 remain.
    starts, ends, scores = zip(*found[0][:4])
    assert list(zip(starts, ends)) == [(1, 2), (1, 1), (2, 2), (2, 3)]
    assert np.exp(scores) == pytest.approx([0.5 * 0.3, 0.5 * 0.2, 0.3 * 0.2, 0.3 * 0.1], rel=1e-5)


def test_the_five_best_ends_of_each_start_are_kept():
    start, end = torch.zeros(1, 9), torch.arange(9.0).expand(1, 2, 9)
    output = SpanOutput(start, end, start_beam=torch.tensor([[1, 0]]), null_logits=torch.zeros(1))
    found = best_spans(output, torch.ones(1, 9, dtype=torch.bool), 20, 30)
    assert sorted((start, end) for start, end, _ in found[0]) == [
        (start, end) for start in (0, 1) for end in range(4, 9)
    ]


def test_tokens_of_an_answer():
    tokens = TokensWithOffsets(np.zeros(4, np.uint16), np.array([0, 4, 4, 9]), np.array([3, 4, 8, 12]))
    assert tokens_of_answer(tokens, "abcd", 4) == (2, 2)  # not the mark without characters before it
    assert tokens_of_answer(tokens, "c", 5) == (2, 2)
    assert tokens_of_answer(tokens, "cd e", 6) == (2, 3)
    assert tokens_of_answer(tokens, " ", 8) is None


WORDS = st.sampled_from(
    ["the", "Café", "cafe\u0301", "ﬁre", "½", "—", "1,905,", "İstanbul", "ΣΑΣ", "``so''", "한국", "…", "a"]
)
PASSAGES = st.lists(st.tuples(WORDS, st.sampled_from([" ", "  ", "\n", "\u00a0"])), max_size=60)


@given(PASSAGES, st.data())
@settings(deadline=None, max_examples=150)
def test_an_answer_has_the_characters_of_the_passage(vocabulary, parts, data):
    """Characters become labels in windows; a model that predicts these labels gives the same characters back."""
    text = "".join(word + space for word, space in parts)
    answers = ()
    if parts:
        first = data.draw(st.integers(0, len(parts) - 1))
        last = data.draw(st.integers(first, min(first + 2, len(parts) - 1)))
        start = sum(len(word) + len(space) for word, space in parts[:first])
        answer = "".join(word + space for word, space in parts[first : last + 1])[: -len(parts[last][1])]
        answers = ((answer, start),)
    question = Question("q", "what is it " * data.draw(st.integers(0, 30)), text, answers)
    limits = SpanLimits(doc_stride=data.draw(st.integers(3, 20)), max_answer_length=200)
    features = SpanFeatures(vocabulary, [question], 48, limits)
    samples = list(range(len(features.lengths)))
    batch = features.batch(samples, training=True)
    assert (features.lengths <= 48).all()
    assert (batch.sequence_ids >= 0).sum() == features.lengths.sum()

    found = {}
    for sample in samples:
        assert batch.input_ids.flat[batch.window_positions[sample, 0]] == 2  # [CLS]
        one = features.batch([sample], training=False)
        logits = torch.full((2, *one.allowed.shape), -9.0).masked_fill(torch.from_numpy(one.allowed) == 0, -torch.inf)
        if start := batch.start_positions[sample]:
            logits[0, 0, start] = logits[1, 0, batch.end_positions[sample]] = 9.0
        found[sample] = features.decode([sample], one, SpanOutput(*logits))[0]
    given_answers = features.predictions(found)["q"]
    # The best window of the answer's first token may cut off the answer's end; then no window has the answer.
    if max((score for spans, _ in found.values() for *_, score in spans), default=0) > 0:
        assert given_answers.best() == answers[0][0]
        assert given_answers.nbest[0].start == answers[0][1]
    whole = windows_of(len(OffsetEncoder(vocabulary).encode(text).ids), 1000, 1000)
    if len(samples) == 1 and answers and whole[0][1]:
        assert given_answers.best() == answers[0][0]
    assert given_answers.null_score is None
    assert given_answers.gold == tuple(answer for answer, _ in answers)


def test_a_token_starts_answers_in_one_window_only_and_long_questions_are_cut(vocabulary):
    """With equal logits, each token of the passage starts equally many spans."""
    rng = np.random.default_rng(0)
    text = " ".join(sentences(rng, 12))
    asked = " ".join(sentences(rng, 40))
    features = SpanFeatures(vocabulary, [Question("q", asked, text)], 64, SpanLimits(doc_stride=9, nbest=9999))
    samples = list(range(len(features.lengths)))
    asked_tokens = Encoder(vocabulary).encode([asked])[0].tolist()
    assert all(features.segments(sample)[0].tolist() == asked_tokens[:32] for sample in samples)  # half of 64
    wide = SpanFeatures(vocabulary, [Question("q", asked, text)], 256, SpanLimits())
    assert wide.segments(0)[0].tolist() == asked_tokens[:64]
    starts = []
    for sample in samples:
        batch = features.batch([sample], training=False)
        logits = torch.zeros(batch.allowed.shape).masked_fill(torch.from_numpy(batch.allowed) == 0, -torch.inf)
        (found,) = features.decode([sample], batch, SpanOutput(logits, logits))
        starts += [start for start, end, _ in found.spans if start == end]
    assert sorted(starts) == list(range(len(OffsetEncoder(vocabulary).encode(text).ids)))


def test_an_empty_passage_has_no_answer_but_a_null_score(vocabulary):
    features = SpanFeatures(vocabulary, [Question("q", "what?", "  ")], 64, SpanLimits())
    batch = features.batch([0], training=False)
    assert batch.allowed.sum() == 1  # [CLS] alone
    logits = torch.zeros(1, batch.allowed.shape[1]).masked_fill(torch.from_numpy(batch.allowed) == 0, -torch.inf)
    found = features.decode([0], batch, SpanOutput(logits, logits, null_logits=torch.tensor([1.5])))
    assert found == [WindowSpans([], 1.5)]
    answers = features.predictions({0: found[0]})["q"]
    assert (answers.nbest, answers.null_score, answers.best()) == ((), 1.5, "")


def test_the_null_score_is_the_lowest_of_the_windows(vocabulary):
    text = "some words that go on " * 20
    features = SpanFeatures(vocabulary, [Question("q", "what?", text)], 64, SpanLimits(doc_stride=20))
    count = len(features.lengths)
    assert count > 2
    found = {sample: WindowSpans([(sample, sample + 1, -float(sample))], 3.0 - sample) for sample in range(count)}
    answers = features.predictions(found)["q"]
    assert answers.null_score == 3.0 - (count - 1)
    assert answers.best() == text[answers.nbest[0].start : answers.nbest[0].end]
    assert [span.score for span in answers.nbest] == sorted((span.score for span in answers.nbest), reverse=True)
