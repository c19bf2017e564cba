"""Segment pairs: nothing lost, nothing twice, bounds kept, and the distributions of what is drawn."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.pairs import DocumentDraws, Pairs, first_segment_lengths, make_pairs, span_stops

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
        for first, a, b, number in zip(pairs.starts, pairs.a_lengths, pairs.b_lengths, pairs.documents)
        for token in range(first, first + a + b)
    ]
    assert found == expected
    lengths = pairs.a_lengths + pairs.b_lengths
    assert (lengths <= max_seq_length - 3).all()
    assert (pairs.a_lengths >= 1).all()
    assert ((pairs.b_lengths == 0) == (lengths == 1)).all()  # no pair lacks a B that could have one
    left_out = [document for document in documents if sum(document) < min_tokens]
    assert pairs.documents_left_out == len(left_out)
    assert pairs.tokens_left_out == sum(map(sum, left_out))


@given(documents=documents_strategy, seed=st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_a_cut_lies_on_a_sentence_boundary_wherever_the_pair_has_one(documents: list[list[int]], seed: int) -> None:
    pairs = pairs_of(documents, seed=seed)
    boundaries = set(np.cumsum([n for document in documents for n in document]).tolist())
    for start, a, b in zip(pairs.starts.tolist(), pairs.a_lengths.tolist(), pairs.b_lengths.tolist()):
        inner = boundaries & set(range(start + 1, start + a + b))
        assert not inner or start + a in inner


def test_a_full_span_hands_what_it_cannot_hold_to_the_next_one() -> None:
    # Capacity 10, sentences of 4: a span ends at 10, inside the third sentence, and so on.
    generator = np.random.default_rng(0)
    stops, cuts = span_stops([4, 8, 12, 16, 20, 24], 0, 10, 0.0, generator)
    assert stops == [10, 20, 24]
    assert len(cuts) == 3


def test_a_short_span_ends_with_a_sentence() -> None:
    class Scripted:
        def random(self, shape: tuple[int, int]) -> np.ndarray:
            # Draws of (short?, size, cut): the first span is short with target 2 + int(0.5 * 9) = 6, the next is full.
            return np.array([[0.05, 0.5, 0.25], [0.5, 0.5, 0.75], [0.5, 0.5, 0.5]])

    stops, cuts = span_stops([4, 8, 12, 16, 20, 24], 0, 10, 0.1, Scripted())  # type: ignore[arg-type]
    assert stops == [8, 18, 24]  # 6 tokens end in the sentence that ends at 8
    assert cuts == [0.25, 0.75, 0.5]


def test_cut_positions_by_hand() -> None:
    # Spans 0-10 with boundaries at 4 and 8; 10-20 with 12 and 16; 20-24 with none; 24-25 of one token.
    ends = np.array([4, 8, 12, 16, 24, 25])
    starts, stops = np.array([0, 0, 10, 20, 20, 24]), np.array([10, 10, 20, 24, 24, 25])
    draws = np.array([0.0, 0.5, 0.99, 0.0, 0.99, 0.5])
    assert first_segment_lengths(starts, stops, ends, draws).tolist() == [4, 8, 6, 1, 3, 1]


def test_draws_are_numpys_philox_keyed_by_seed_and_document() -> None:
    draws = DocumentDraws(seed=7)
    for document in (3, 0, 3, 2**40):
        expected = np.random.Generator(np.random.Philox(key=[7, document])).random(5)
        np.testing.assert_array_equal(draws.of(document).random(5), expected)


def test_a_documents_pairs_do_not_depend_on_its_company() -> None:
    documents = [[5, 9, 30] * 20, [7] * 90, [100, 3] * 15]
    together = pairs_of(documents, first_document=10)
    for number, document in enumerate(documents):
        alone = pairs_of([document], first_document=10 + number)
        mine = together.documents == 10 + number
        np.testing.assert_array_equal(alone.a_lengths, together.a_lengths[mine])
        np.testing.assert_array_equal(alone.b_lengths, together.b_lengths[mine])


def test_short_targets_are_drawn_for_each_pair() -> None:
    # One novel of one-token sentences, so a span's length is its target: one draw a document would make all pairs of
    # this one short or none.
    pairs = pairs_of([[1] * 4_000_000], max_seq_length=103)
    lengths = (pairs.a_lengths + pairs.b_lengths)[:-1]
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
    counts = np.bincount(pairs.a_lengths // 10, minlength=10)[1:10]
    expected = counts.sum() / 9
    assert ((counts - expected) ** 2 / expected).sum() < 8 + 5 * 16**0.5


def test_a_sentence_that_fills_the_pair_is_cut_inside_at_any_token() -> None:
    pairs = pairs_of([[1_000_000]], max_seq_length=13, short_probability=0.0)  # capacity 10, no boundary at all
    counts = np.bincount(pairs.a_lengths, minlength=10)
    assert counts[0] == 0
    expected = counts.sum() / 9
    assert ((counts[1:10] - expected) ** 2 / expected).sum() < 8 + 5 * 16**0.5


def test_another_seed_gives_other_pairs() -> None:
    first, second = (pairs_of([[5] * 500], seed=seed) for seed in (0, 1))
    assert first.a_lengths.tolist() != second.a_lengths.tolist()
