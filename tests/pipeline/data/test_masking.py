"""Masks: hand-made words, properties of every draw, and the distributions of many."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data import masking
from pipeline.data.masking import MaskingSettings, Words

PAPER = MaskingSettings()

# Ids 5..9 begin a word, 10..14 continue one.
CONTINUES = np.array([False] * 10 + [True] * 5)


def choose(words, budget, rng, settings=PAPER):
    """The spans of one row."""
    numbers = rng.integers(0, 2**64, (1, 2 * len(words.starts) + 2), dtype=np.uint64)
    return masking.choose_spans(words, np.array([len(words.starts)]), np.array([budget]), numbers, settings)


def test_words_of_a_row_by_hand():
    #      [CLS]  A: he+llo  world  [SEP]  B: wor+ld (its front half is in A: a cut word counts as two)  [SEP] [PAD]
    ids = np.array([2, 5, 10, 11, 6, 3, 12, 13, 7, 3, 0])
    segments = np.array([-1, 0, 0, 0, 0, -1, 1, 1, 1, -1, -1])
    words = masking.find_words(ids, segments, CONTINUES)
    assert words.starts.tolist() == [1, 4, 6, 8]
    assert words.lengths.tolist() == [3, 1, 2, 1]
    assert words.segments.tolist() == [0, 0, 1, 1]


def test_a_row_without_words_has_no_predictions():
    words = masking.find_words(np.array([2, 3, 0]), np.array([-1, -1, -1]), CONTINUES)
    assert len(words.starts) == 0
    assert choose(words, 5, np.random.default_rng(0)).positions().tolist() == []


def test_seventy_seven_of_five_hundred_and_twelve():
    assert PAPER.max_predictions(512) == 77


@st.composite
def rows(draw):
    lengths = draw(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=30), min_size=1, max_size=6))
    starts, sizes, segments, position = [], [], [], 1
    for number, words in enumerate(lengths):
        for size in words:
            starts.append(position)
            sizes.append(size)
            segments.append(number)
            position += size
        position += 1
    return Words(np.array(starts), np.array(sizes), np.array(segments))


@settings(deadline=None, max_examples=200)
@given(words=rows(), budget=st.integers(1, 60), seed=st.integers(0, 2**32 - 1))
def test_chosen_positions_are_whole_words_within_the_budget(words, budget, seed):
    chosen = choose(words, budget, np.random.default_rng(seed)).positions()
    assert len(chosen) <= budget
    assert (np.diff(chosen) > 0).all()
    chosen = set(chosen.tolist())
    for start, length in zip(words.starts.tolist(), words.lengths.tolist()):
        assert len(chosen & set(range(start, start + length))) in (0, length)
    # Nothing is left out that would still have fitted: the budget is used up, or every word left is longer than it.
    left = budget - len(chosen)
    free = [n for s, n in zip(words.starts.tolist(), words.lengths.tolist()) if s not in chosen]
    assert not free or min(free) > left


def spans_of(chosen):
    """Lengths of the runs of consecutive positions."""
    breaks = np.flatnonzero(np.diff(chosen) > 1)
    return np.diff(np.concatenate(([-1], breaks, [len(chosen) - 1])))


def test_ngram_lengths_follow_one_over_n():
    # Words of one token, 2,000 of them, budget 60: runs are n-grams (two that touch are rare and counted as one).
    count, rows_drawn = 2000, 600
    words = Words(np.arange(count), np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64))
    rng = np.random.default_rng(0)
    lengths = np.concatenate([spans_of(choose(words, 60, rng).positions()) for _ in range(rows_drawn)])
    shares = np.bincount(lengths, minlength=4)[1:4] / np.isin(lengths, (1, 2, 3)).sum()
    # About 22,000 spans: three standard errors are 0.01; touching runs and the shortened last span shift by as much.
    np.testing.assert_allclose(shares, [6 / 11, 3 / 11, 2 / 11], atol=0.02)


def test_ngram_lengths_follow_one_over_n_in_short_segments_too():
    # 300 segments of 5 words: an n-gram of 3 has three places in each, one of 1 has five, and still p(n) holds.
    starts = (np.arange(300)[:, None] * 6 + np.arange(5)).ravel()
    words = Words(starts, np.ones(1500, dtype=np.int64), np.repeat(np.arange(300), 5))
    rng = np.random.default_rng(3)
    drawn = [choose(words, 45, rng) for _ in range(800)]
    lengths = np.concatenate([spans_of(spans.positions()) for spans in drawn])
    shares = np.bincount(lengths, minlength=4)[1:4] / np.isin(lengths, (1, 2, 3)).sum()
    # About 22,000 spans: three standard errors are 0.01; touching runs and the shortened last span shift by as much.
    np.testing.assert_allclose(shares, [6 / 11, 3 / 11, 2 / 11], atol=0.025)


def test_every_word_is_equally_likely():
    words = Words(np.arange(40), np.ones(40, dtype=np.int64), np.repeat([0, 1], 20))
    rng = np.random.default_rng(1)
    seen = np.zeros(40)
    for _ in range(4000):
        seen[choose(words, 6, rng).positions()] += 1
    # 600 expected a word. The two words at a segment's ends are in fewer n-grams.
    assert (np.abs(seen[2:18] - seen.mean()) < 100).all()
    assert (seen > 350).all()


def test_eighty_ten_ten_token_by_token():
    labels = np.full(30_000, 7)
    seen = masking.corrupt(labels, np.random.default_rng(2).random((2, 30_000)), 4, 5, 1000, PAPER)
    # Standard error of a share: 0.0023. A random token is 7 once in 995.
    assert abs((seen == 4).mean() - 0.8) < 0.01
    assert abs((seen == 7).mean() - 0.1) < 0.01
    random = seen[(seen != 4) & (seen != 7)]
    assert abs(len(random) / 30_000 - 0.1) < 0.01
    assert random.min() >= 5
    assert random.max() == 999
    assert abs(random.mean() - 502) < 30
