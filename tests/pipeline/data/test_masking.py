"""Masks: hand-made words, properties and distributions, the settings, and masks that must never change."""

import hashlib
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data import masking
from pipeline.data.collate import BatchShape, Collator
from pipeline.data.masking import MaskingSettings, Words
from tests.pipeline.data.test_collate import CONTINUES as COLLATED
from tests.pipeline.data.test_collate import MemoryShards, make_row

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


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mask_probability": 0.0}, "mask_probability is 0;"),
        ({"mask_probability": 1.1}, "mask_probability is 1.1;"),
        ({"mask_probability": float("nan")}, "mask_probability is nan;"),
        ({"max_ngram": 0}, "max_ngram is 0;"),
        ({"max_ngram": 10**9}, "max_ngram is 1000000000;"),
    ],
)
def test_a_value_out_of_range_is_named(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        MaskingSettings(**fields)


def test_the_paper_s_values_are_the_defaults():
    assert (PAPER.mask_probability, PAPER.max_ngram, PAPER.max_predictions(512)) == (0.15, 3, 77)
    assert (PAPER.replace_with_mask, PAPER.replace_with_random) == (0.8, 0.1)
    np.testing.assert_allclose(PAPER.ngram_cdf, [6 / 11, 9 / 11, 1])  # p(n) is proportional to 1 / n
    np.testing.assert_allclose(MaskingSettings(max_ngram=5).ngram_cdf, np.array([60, 90, 110, 125, 137]) / 137)


def arithmetic_shards():
    """Sixty rows of three pairs, made without a random number: the same on every version of every library."""
    rows = []
    for number in range(60):
        pairs = []
        for pair in range(3):
            limits = ((4, 0), (30, 3), (25, 0 if number % 9 == 4 else 3), (5, 0))
            lengths = [(number * 7 + pair * 3 + part * 5) % size + least for part, (size, least) in enumerate(limits)]
            lengths[3] = lengths[3] if lengths[2] else 0
            pairs.append(
                [
                    [5 + (number * 31 + pair * 17 + part * 13 + i * i * 7 + i * 3) % 195 for i in range(length)]
                    for part, length in enumerate(lengths)
                ]
            )
        rows.append(make_row(pairs, number))
    return MemoryShards(rows, 256)


@pytest.mark.parametrize(
    ("objective", "digest"),
    [
        ("sop", "81a69b3e866885dae5cd422225111f7abbc97accab3166ac3c74c9b3984f224d"),
        ("nsp", "6d31a843ae8726604b74eddc286086ac64a70e8d72b4b7883e6fd5c019735f16"),
        ("mlm", "27196ff6c0311e914dcd6400d21cd7689aacadf219fcfc9d6f6f24ab8d7a3296"),
    ],
)
def test_batches_at_the_paper_s_values_are_those_of_earlier_runs(objective, digest):
    """If these digests change, resumed runs change silently."""
    shards = arithmetic_shards()
    shape = BatchShape.of(shards, masking=PAPER)
    found = hashlib.sha256()
    for seed in (0, 12345):
        made = Collator(shards, shape, COLLATED, objective, seed, PAPER)
        batch = made.read([0] * 60 + [7] * 60 + [1, 1], [*range(60), *range(60), 3, -1])
        for field in batch:
            found.update(field.tobytes())
    assert found.hexdigest() == digest
