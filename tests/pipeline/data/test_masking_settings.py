"""The masking settings: ranges, what each value changes, and the paper's values, whose masks must never change."""

import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

from data_prep.text.vocabulary import MASK_ID
from model.layers.heads import IGNORED_LABEL
from pipeline.data import masking
from pipeline.data.collate import BatchShape, Collator
from pipeline.data.masking import MaskingSettings, Words
from tests.pipeline.data.test_collate import MemoryShards, collator, make_row, original, random_shards
from tests.pipeline.data.test_masking import choose

PAPER = MaskingSettings()
CONTINUES = np.arange(200) >= 100


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mask_probability": 0.0}, "mask_probability is 0;"),
        ({"mask_probability": 1.1}, "mask_probability is 1.1;"),
        ({"mask_probability": float("nan")}, "mask_probability is nan;"),
        ({"max_ngram": 0}, "max_ngram is 0;"),
        ({"max_ngram": 10**9}, "max_ngram is 1000000000;"),
        ({"replace_with_mask": -0.1}, "replace_with_mask is -0.1;"),
        ({"replace_with_random": 2.0}, "replace_with_random is 2;"),
        ({"replace_with_mask": 0.8, "replace_with_random": 0.3}, "replace_with_mask + replace_with_random is 1.1;"),
    ],
)
def test_a_value_out_of_range_is_named(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        MaskingSettings(**fields)


def test_the_paper_s_values_are_the_defaults():
    assert (PAPER.mask_probability, PAPER.max_ngram) == (0.15, 3)
    assert (PAPER.replace_with_mask, PAPER.replace_with_random) == (0.8, 0.1)
    np.testing.assert_allclose(PAPER.ngram_cdf, [6 / 11, 9 / 11, 1])


@pytest.mark.parametrize("longest", [1, 2, 3, 7, 50, 512])
def test_every_length_has_its_probability(longest):
    probabilities = np.diff(MaskingSettings(max_ngram=longest).ngram_cdf, prepend=0)
    np.testing.assert_allclose(probabilities, probabilities[0] / np.arange(1, longest + 1))
    assert MaskingSettings(max_ngram=longest).ngram_cdf[-1] == 1  # no number in [0, 1) gives a longer n-gram


@pytest.mark.parametrize("probability", [0.05, 0.3, 0.6, 1.0])
def test_the_probability_decides_how_many_tokens_are_predicted(probability):
    settings = MaskingSettings(mask_probability=probability)
    shards = random_shards()
    batch = collator(shards, masking=settings).read([0] * 40, list(range(40)))
    assert batch.masked_labels.shape[1] == settings.max_predictions(64) == max(1, round(probability * 64))
    for index in range(40):
        length = int((batch.sequence_ids[index] >= 0).sum())
        special = int((original(batch, index)[batch.sequence_ids[index] >= 0] < 5).sum())
        predicted = int((batch.masked_labels[index] != IGNORED_LABEL).sum())
        # Words are whole and special tokens are never predicted, so a row can miss its budget.
        assert predicted <= min(settings.max_predictions(length), length - special)
        assert probability > 0.9 or predicted >= settings.max_predictions(length) - 2


@pytest.mark.parametrize("longest", [1, 2, 5])
def test_the_longest_ngram_decides_which_lengths_are_drawn(longest):
    words = Words(np.arange(2000), np.ones(2000, dtype=np.int64), np.zeros(2000, dtype=np.int64))
    rng = np.random.default_rng(0)
    settings = MaskingSettings(max_ngram=longest)
    drawn = np.concatenate([choose(words, 60, rng, settings).drawn for _ in range(300)])
    counts = np.bincount(drawn, minlength=longest + 1)[1:]
    expected = 1 / np.arange(1, longest + 1)
    expected *= len(drawn) / expected.sum()
    assert len(counts) == longest
    # The last length drawn for a row depends on the budget; chi-squared with 4 degrees: 99.9 % lie below 18.5.
    assert ((counts - expected) ** 2 / expected).sum() < 18.5


@pytest.mark.parametrize(("with_mask", "with_random"), [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.5, 0.2), (0.7, 0.3)])
def test_the_replacement_follows_its_settings(with_mask, with_random):
    settings = MaskingSettings(replace_with_mask=with_mask, replace_with_random=with_random)
    labels = np.full(30_000, 7)
    seen = masking.corrupt(labels, np.random.default_rng(2).random((2, 30_000)), MASK_ID, 5, 100_005, settings)
    # Four standard errors of a part of 30,000 are 0.0116 at most. A random token is 7 once in 100,000.
    assert abs((seen == MASK_ID).mean() - with_mask) < 0.012
    assert abs((seen == 7).mean() - (1 - with_mask - with_random)) < 0.012
    assert with_random > 0 or set(seen.tolist()) <= {MASK_ID, 7}


def test_the_masks_change_and_the_order_of_sentences_does_not():
    shards = random_shards()
    plain = collator(shards).read([0] * 40, list(range(40)))
    for change in ({"max_ngram": 1}, {"mask_probability": 0.3}, {"replace_with_mask": 0.2}):
        other = collator(shards, masking=replace(PAPER, **change)).read([0] * 40, list(range(40)))
        assert (other.input_ids != plain.input_ids).any()
        assert (other.sentence_labels == plain.sentence_labels).all()
        for index in range(40):
            assert original(other, index).tolist() == original(plain, index).tolist()


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
        made = Collator(shards, shape, CONTINUES, objective, seed, PAPER)
        batch = made.read([0] * 60 + [7] * 60 + [1, 1], [*range(60), *range(60), 3, -1])
        for field in batch:
            found.update(field.tobytes())
    assert found.hexdigest() == digest
