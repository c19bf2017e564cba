"""Segment pairs: every token once, bounds, and the distributions of random lengths and cuts."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.format.pairs import DocumentRng, Pairs, divide, make_pairs, span_stops

documents_strategy = st.lists(st.lists(st.integers(0, 200), max_size=40), max_size=8)


def pairs_of(documents: list[list[int]], first_document: int = 0, **options: float) -> Pairs:
    settings_used = {"max_seq_length": 64, "short_probability": 0.1, "min_tokens": 1, "seed": 0} | options
    return make_pairs(
        np.array([n for document in documents for n in document], np.int64),
        np.array([len(document) for document in documents], np.int64),
        first_document,
        **settings_used,  # type: ignore[arg-type]
    )


@given(
    documents=documents_strategy,
    max_seq_length=st.sampled_from([5, 16, 64, 512]),
    short_probability=st.sampled_from([0.0, 0.1, 1.0]),
    min_tokens=st.sampled_from([1, 16]),
    seed=st.integers(0, 2**63 - 1),
)
@settings(max_examples=300, deadline=None)
def test_every_token_of_every_kept_document_is_in_exactly_one_pair_in_order(
    documents: list[list[int]], max_seq_length: int, short_probability: float, min_tokens: int, seed: int
) -> None:
    pairs = pairs_of(
        documents,
        max_seq_length=max_seq_length,
        short_probability=short_probability,
        min_tokens=min_tokens,
        seed=seed,
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
@settings(max_examples=100, deadline=None)
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


def test_a_full_span_hands_what_it_cannot_hold_to_the_next_one() -> None:
    # Capacity 10, sentences of 4: a span ends at 10, inside the third sentence, and so on.
    generator = np.random.default_rng(0)
    stops, cuts = span_stops(0, 24, 10, 0.0, generator)
    assert stops == [10, 20, 24]
    assert len(cuts) == 3


def test_a_short_span_ends_at_its_target() -> None:
    class Scripted:
        def random(self, shape: tuple[int, int]) -> np.ndarray:
            # Draws of (short?, size, cut): the first span is short with target 2 + int(0.5 * 9) = 6, the next is full.
            return np.array([[0.05, 0.5, 0.25], [0.5, 0.5, 0.75], [0.5, 0.5, 0.5]])

    stops, cuts = span_stops(0, 24, 10, 0.1, Scripted())  # type: ignore[arg-type]
    assert stops == [6, 16, 24]
    assert cuts == [0.25, 0.75, 0.5]


def test_parts_by_hand() -> None:
    # Sentences 0-4, 4-8, 8-12, 12-16, 16-24, 24-25 and 25-40.
    ends = np.array([4, 8, 12, 16, 24, 25, 40])
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


def test_a_sentence_without_tokens_is_no_sentence() -> None:
    parts = divide(np.array([0]), np.array([8]), np.array([4, 4, 8, 8]), np.array([0.9]))
    assert [part.tolist() for part in parts] == [[0], [4], [4], [0]]


def test_draws_are_numpys_philox_keyed_by_seed_and_document() -> None:
    draws = DocumentRng(seed=7)
    for document in (3, 0, 3, 2**40):
        expected = np.random.Generator(np.random.Philox(key=[7, document])).random(5)
        np.testing.assert_array_equal(draws.of(document).random(5), expected)


def test_a_documents_pairs_do_not_depend_on_its_company() -> None:
    documents = [[5, 9, 30] * 20, [7] * 90, [100, 3] * 15]
    together = pairs_of(documents, first_document=10)
    for number, document in enumerate(documents):
        alone = pairs_of([document], first_document=10 + number)
        mine = together.documents == 10 + number
        for part, among_others in zip(alone.parts, together.parts):
            np.testing.assert_array_equal(part, among_others[mine])


def test_short_targets_are_drawn_for_each_pair() -> None:
    # One novel of one-token sentences, so a span's length is its target: one draw a document would make all pairs of
    # this one short or none.
    pairs = pairs_of([[1] * 4_000_000], max_seq_length=103)
    lengths = pairs.parts.total()[:-1]
    count = len(lengths)
    short = lengths[lengths < 100]
    # A short target of exactly 100 is not seen as short: 0.1 * 98 / 99 of the pairs, within five deviations.
    share = 0.1 * 98 / 99
    assert abs(len(short) / count - share) < 5 * (share * (1 - share) / count) ** 0.5
    histogram = np.bincount(short, minlength=100)[2:100]
    expected = len(short) / 98
    chi_square = ((histogram - expected) ** 2 / expected).sum()
    assert chi_square < 97 + 5 * (2 * 97) ** 0.5
    # Independent of the pair before: short follows short as often as anything.
    is_short = lengths < 100
    after_short = is_short[1:][is_short[:-1]]
    assert abs(after_short.mean() - share) < 5 * (share * (1 - share) / len(after_short)) ** 0.5


def test_cuts_are_uniform_over_the_inner_boundaries() -> None:
    pairs = pairs_of([[10] * 600_000], max_seq_length=103, short_probability=0.0)  # 10 sentences a pair, 9 boundaries
    counts = np.bincount(pairs.parts.a // 10, minlength=10)[1:10]
    expected = counts.sum() / 9
    assert ((counts - expected) ** 2 / expected).sum() < 8 + 5 * 16**0.5


def test_a_sentence_that_fills_the_pair_has_no_partner() -> None:
    pairs = pairs_of([[1_000]], max_seq_length=13, short_probability=0.0)  # capacity 10, no boundary at all
    assert pairs.parts.a.tolist() == [10] * 100
    assert not any(part.any() for part in (pairs.parts.lead, pairs.parts.b, pairs.parts.trail))


def test_a_and_b_are_equally_long_whatever_the_length_of_the_span() -> None:
    # A swap would show in the lengths if the sentence that ends a span were longer than others: the one in which a
    # drawn position falls is longer, on average.
    generator = np.random.default_rng(0)
    lengths = np.maximum(1, generator.lognormal(3, 0.8, 300_000)).astype(int)  # 27 tokens on average, very uneven
    pairs = pairs_of([lengths.tolist()], max_seq_length=128, short_probability=0.5)
    parts, ordered = pairs.parts, pairs.parts.b > 0
    for full in (True, False):
        chosen = ordered & ((parts.total() == 125) == full)
        difference = (parts.a - parts.b)[chosen]
        assert len(difference) > 5_000
        assert abs(difference.mean()) < 4 * difference.std() / len(difference) ** 0.5


def test_another_seed_gives_other_pairs() -> None:
    first, second = (pairs_of([[5] * 500], seed=seed) for seed in (0, 1))
    assert first.parts.a.tolist() != second.parts.a.tolist()
