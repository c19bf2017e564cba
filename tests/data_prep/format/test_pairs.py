"""Segment pairs: every token once, bounds, the distributions of random lengths and cuts; and how rows are packed."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.format.pairs import Pairs, Parts, divide, make_pairs, max_pairs, pack, sections, span_stops

documents_strategy = st.lists(st.lists(st.integers(0, 200), max_size=40), max_size=8)


def pairs_of(documents: list[list[int]], first_document: int = 0, **options: Any) -> Pairs:
    settings_used = {"max_seq_length": 64, "short_probability": 0.1, "min_tokens": 1, "seed": 0} | options
    return make_pairs(
        np.array([n for document in documents for n in document], np.int64),
        np.array([len(document) for document in documents], np.int64),
        first_document,
        **settings_used,
    )


@given(
    documents=documents_strategy,
    max_seq_length=st.sampled_from([5, 16, 64, 512]),
    short_probability=st.sampled_from([0.0, 0.1, 1.0]),
    min_tokens=st.sampled_from([1, 16]),
    seed=st.integers(0, 2**63 - 1),
)
@settings(max_examples=300)
def test_every_kept_token_is_in_one_pair_in_order(documents, max_seq_length, short_probability, min_tokens, seed):
    pairs = pairs_of(
        documents, max_seq_length=max_seq_length, short_probability=short_probability, min_tokens=min_tokens, seed=seed
    )
    expected, start = [], 0
    for number, document in enumerate(documents):
        if sum(document) >= min_tokens:
            expected += [(number, token) for token in range(start, start + sum(document))]
        start += sum(document)
    found = [
        (number, token)
        for first, length, number in zip(pairs.starts, pairs.parts.total(), pairs.documents)
        for token in range(first, first + length)
    ]
    assert found == expected
    assert (pairs.parts.total() <= max_seq_length - 3).all()
    assert (pairs.parts.a >= 1).all()
    assert all((part >= 0).all() for part in pairs.parts)
    left_out = [document for document in documents if sum(document) < min_tokens]
    assert pairs.documents_left_out == len(left_out)
    assert pairs.tokens_left_out == sum(map(sum, left_out))


@given(documents=documents_strategy, seed=st.integers(0, 1000))
def test_a_and_b_are_the_whole_sentences_of_the_pair(documents: list[list[int]], seed: int) -> None:
    pairs = pairs_of(documents, seed=seed)
    boundaries = {0, *np.cumsum([n for document in documents for n in document]).tolist()}
    for start, lead, a, b, trail in zip(pairs.starts.tolist(), *(part.tolist() for part in pairs.parts)):
        inside = sorted(boundaries & set(range(start, start + lead + a + b + trail + 1)))
        if len(inside) < 3:  # fewer than two whole sentences
            assert (lead, b, trail) == (0, 0, 0)
        else:
            assert (start + lead, start + lead + a + b) == (inside[0], inside[-1])
            assert start + lead + a in inside[1:-1]


@pytest.mark.parametrize(
    ("boundaries", "first", "words", "stops"),
    [
        # Capacity 10, sentences of 4: a span ends at 10, inside the third sentence, and hands the rest to the next one.
        (range(0, 25, 4), 0.9, None, [10, 20, 24]),
        # A divided span leaves two sentences on both sides. Of one token: 0-10 is divided at 2 + int(0.5 * 7) = 5.
        (range(25), 0.05, None, [5, 10, 20, 24]),
        # Sentences of 3: no place in 0-10 has two on both sides. Of 2, one place has.
        (range(0, 31, 3), 0.05, None, [10]),
        ([0, 2, 4, 6, 8, *range(12, 21, 2)], 0.05, None, [4, 10]),
        # The last two share what is left. After 10, 11 tokens are left. 10 and 1 would leave one alone; the cut is one
        # of 19 to 12: 19 - int(0.5 * 8).
        (range(22), 0.9, None, [10, 15, 21]),
        # Three sentences are left: no cut gives both two.
        ([*range(11), 14, 18, 21], 0.9, None, [10, 20, 21]),
        # A span ends earlier if the next one would have no partner: from 10, 16-18 is its only whole sentence. From 8,
        # 9, 6 or 4 it has two: number int(0.5 * 4).
        ([0, 2, 4, 6, 9, 16, 18, 40, 42], 0.9, None, [6, 16]),
        # No place has two on both sides.
        ([0, 4, 9, 18, 30, 40], 0.9, None, [10]),
        # Spans begin at words. Where none begins inside the span, it stays as long as it can be.
        (range(0, 25, 4), 0.9, [0, 4, 8, 12, 16, 17, 20], [8, 16, 24]),
        ([0, 40], 0.9, [0], [10, 20, 30, 40]),
    ],
)
def test_where_spans_end(boundaries: Sequence[int], first: float, words: list[int] | None, stops: list[int]) -> None:
    """Spans of capacity 10 over the sentences between `boundaries`; words begin at `words`, or everywhere."""
    end = boundaries[-1]
    begins = np.isin(np.arange(end + 1), [*(range(end) if words is None else words), end])
    # Four numbers a span: division?, place of the last cut, place, boundary.
    scripted: Any = SimpleNamespace(
        take=lambda count: np.array([first, 0.5, 0.5, 0.25] + [0.9, 0.5, 0.5, 0.75] * (count // 4 - 1))
    )
    found, cuts = span_stops(0, end, list(boundaries), begins.tobytes(), 10, 0.1, scripted)
    assert found[: len(stops)] == stops
    assert cuts == [0.25] + [0.75] * (len(found) - 1)


def test_half_of_the_sections_are_cut_from_their_end() -> None:
    # One span of 10 and one of 5: from the beginning or from the end, where nothing else is drawn.
    firsts = [pairs_of([[15]], number, max_seq_length=13).parts.a.tolist() for number in range(400)]
    assert {tuple(first) for first in firsts} == {(10, 5), (5, 10)}
    assert abs(sum(first == [10, 5] for first in firsts) - 200) < 50
    assert sections(list(range(3001)), 0, 3000) == [(0, 1000), (1000, 2000), (2000, 3000)]
    assert sections(list(range(3001)), 10, 20) == [(10, 20)]


def test_spans_begin_at_words() -> None:
    document = [5, 9, 30, 14] * 50
    begins = np.random.default_rng(0).random(sum(document)) < 0.6
    begins[np.cumsum([0, *document[:-1]])] = True
    pairs = pairs_of([document], short_probability=0.3, begins_word=begins)
    assert begins[pairs.starts].all()
    assert pairs.parts.total().sum() == sum(document)


def test_parts_by_hand() -> None:
    # Sentences 0-4, 4-8, 8-12, 12-16, 16-24, 24-25 and 25-40.
    ends = np.array([4, 8, 12, 16, 16, 24, 25, 40])  # one sentence has no tokens, and is none
    spans = [
        # start, stop, draw, (lead, a, b, trail)
        (0, 10, 0.0, (0, 4, 4, 2)),  # sentences 0-4 and 4-8, and the beginning of 8-12
        (10, 20, 0.99, (0, 10, 0, 0)),  # one whole sentence only, 12-16: no order to learn
        (2, 20, 0.0, (2, 4, 8, 4)),  # 4-8, 8-12, 12-16: cut after the first
        (2, 20, 0.99, (2, 8, 4, 4)),  # and after the second
        (16, 25, 0.5, (0, 8, 1, 0)),  # 16-24 and 24-25, nothing to spare
        (20, 25, 0.5, (0, 5, 0, 0)),
        (26, 39, 0.5, (0, 13, 0, 0)),  # inside one sentence
    ]
    starts, stops, draws, expected = zip(*spans)
    parts = divide(np.array(starts), np.array(stops), ends, np.array(draws))
    assert list(zip(*(part.tolist() for part in parts))) == list(expected)


def test_seed_and_document_give_the_same_pairs_for_ever() -> None:
    """Shards of earlier versions are continued, and rows are compared across versions."""
    documents = [[7, 3, 9, 2, 5, 30, 1, 8] * 10] * 2
    parts = pairs_of(documents, 5, short_probability=0.3, seed=7).parts
    lengths = [61, 61, 61, 61, 61, 61, 61, 42, 19, 43, 18, 36, 25, 40, 40, 61, 61, 43, 18, 61, 61, 61, 25, 36, 61, 61]
    assert parts.total().tolist() == [*lengths, 61]
    of_a = [7, 21, 27, 9, 30, 9, 9, 16, 2, 9, 2, 1, 7, 30, 21, 16, 19, 1, 11, 9, 30, 51, 2, 16, 7, 16, 12]
    assert parts.a.tolist() == of_a
    assert pairs_of(documents, 6, short_probability=0.3, seed=7).parts.a.tolist() != of_a
    assert pairs_of(documents, 5, short_probability=0.3, seed=8).parts.a.tolist() != of_a


def test_a_documents_cuts_do_not_depend_on_its_company_if_words_go_on() -> None:
    documents = [[25], [1, 3, 6, 5, 6] * 4, [194, 80, 82], [1, 3, 2, 3]] * 4
    ends = np.cumsum([sum(document) for document in documents])
    begins_word = np.random.default_rng(0).random(ends[-1]) < 0.5  # documents and sentences begin inside a word, too

    options: dict[str, Any] = {"max_seq_length": 19, "short_probability": 0.3}
    together = pairs_of(documents, begins_word=begins_word, **options)
    for number, (document, begins) in enumerate(zip(documents, np.split(begins_word, ends[:-1]))):
        alone = pairs_of([document], number, begins_word=begins, **options)
        assert alone.parts.total().tolist() == together.parts.total()[together.documents == number].tolist()


@pytest.mark.parametrize("sentences_in_document", [30, 150_000])
@pytest.mark.parametrize("short_probability", [0.1, 1.0])
def test_lengths_do_not_tell_the_order(sentences_in_document: int, short_probability: float) -> None:
    # A swap would show in the lengths if the sentence that ends a span were longer than others, or the one that begins
    # it: the sentence in which a drawn position falls is longer, on average.
    generator = np.random.default_rng(0)
    lengths = np.maximum(1, generator.lognormal(3, 0.8, 150_000)).astype(int)  # 27 tokens on average, very uneven
    documents = lengths.reshape(-1, sentences_in_document).tolist()
    pairs = pairs_of(documents, max_seq_length=128, short_probability=short_probability)
    parts, ordered = pairs.parts, pairs.parts.b > 0
    boundaries = np.cumsum([0, *lengths])
    begin, end = pairs.starts + parts.lead, pairs.starts + parts.total() - parts.trail
    first = boundaries[np.searchsorted(boundaries, begin[ordered]) + 1] - begin[ordered]
    last = end[ordered] - boundaries[np.searchsorted(boundaries, end[ordered]) - 1]
    for full in (True, False):
        chosen = (parts.total()[ordered] > 125 * 0.9) == full
        for difference in ((parts.a - parts.b)[ordered][chosen], (first - last)[chosen]):
            assert len(difference) > 1_000
            assert abs(difference.mean()) < 4 * difference.std() / len(difference) ** 0.5
        longer = np.sign((first - last)[chosen])
        counts = np.array([(longer > 0).sum(), (longer < 0).sum()])
        assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 16  # chi-square, one degree of freedom


def best_fit_decreasing(costs: list[int], capacity: int) -> list[int]:
    """Runs the textbook algorithm, which searches every row for every pair. Returns the sorted sums of the rows."""
    rows: list[list[int]] = []
    for cost in sorted(costs, reverse=True):
        fitting = [row for row in rows if sum(row) + cost <= capacity]
        if fitting:
            max(fitting, key=sum).append(cost)
        else:
            rows.append([cost])
    return sorted(map(sum, rows))


@given(costs=st.lists(st.integers(3, 64), max_size=150), max_pairs_in_row=st.sampled_from([1, 4, 150]))
@settings(max_examples=200)
def test_it_is_best_fit_decreasing_and_rows_are_numbered_by_their_first_pair(costs, max_pairs_in_row):
    rows = pack(np.array(costs, np.int64), 64, max_pairs_in_row)
    assert len(rows) == len(costs)
    sums = np.bincount(rows, weights=costs).astype(int).tolist()
    assert max(sums, default=0) <= 64
    assert np.bincount(rows).max(initial=0) <= max_pairs_in_row
    assert list(dict.fromkeys(rows.tolist())) == list(range(len(sums)))
    if max_pairs_in_row == 150:
        assert sorted(sums) == best_fit_decreasing(costs, 64)


def test_positions_count_the_special_tokens() -> None:
    # [CLS] lead a [SEP] b trail [SEP]: 1 + 4 + 6 + 2 + 3; [CLS] a [SEP]: 4 + 2.
    parts = Parts(np.array([1, 0]), np.array([4, 4]), np.array([6, 0]), np.array([2, 0]))
    assert parts.positions().tolist() == [16, 6]


@pytest.mark.parametrize("length", [64, 128, 512])
def test_rows_are_at_least_99_per_cent_full(length: int) -> None:
    # What long documents give: nine full pairs of ten, one of a uniform shorter length.
    generator = np.random.default_rng(0)
    costs = np.where(generator.random(5000) < 0.9, length, generator.integers(5, length + 1, 5000))
    rows = pack(costs, length, max_pairs(length))
    assert costs.sum() / (length * (rows.max() + 1)) > 0.99
