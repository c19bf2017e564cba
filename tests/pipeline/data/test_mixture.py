"""The order of rows; several corpora as one stream of batches: the same rows on any ranks."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.layers.heads import IGNORED_LABEL
from pipeline.data import sampler
from pipeline.data.collate import BatchShape, Collator
from pipeline.data.mixture import (
    MAX_BLOCK,
    Mixture,
    corpora_at,
    corpus_seed,
    names_of,
    samples_per_corpus,
    whole_weights,
)
from tests.pipeline.data import plain_batches
from tests.pipeline.data.test_collate import CONTINUES, PAPER, random_shards


def mixture(weights, seed=7):
    sets = [random_shards(count=count, seed=number) for number, count in enumerate((30, 17, 5))][: len(weights)]
    shape = BatchShape.of(*sets, masking=PAPER)
    collators = tuple(Collator(one, shape, CONTINUES, "sop", corpus_seed(n, seed), PAPER) for n, one in enumerate(sets))
    return Mixture(collators, ("a", "b", "c")[: len(weights)], weights, seed)


@pytest.mark.parametrize("weights", [(1,), (5, 3, 1)])
def test_each_row_of_a_mixture_is_what_its_corpus_gives(weights):
    mixed = mixture(weights)
    batch = mixed.read(np.arange(90))
    corpora, indices = corpora_at(np.arange(90), weights, 7)
    for position in range(90):
        collator = mixed.collators[corpora[position]]
        epochs, rows = sampler.rows_at(indices[position : position + 1], len(collator.shards), collator.seed)
        for field, expected in zip(batch, collator.read(epochs.tolist(), rows.tolist())):
            np.testing.assert_array_equal(field[position], expected[0])


@pytest.mark.parametrize(("world", "micro"), [(1, 4), (2, 3), (3, 4), (12, 1), (5, 2), (1, 5), (7, 3), (16, 1)])
def test_a_step_of_a_mixture_is_the_same_however_it_is_split(world, micro):
    mixed = mixture((2, 1))
    for step in range(3):
        whole = mixed.read(*sampler.step_positions(step, 0, 1, 12, 12), 12)
        ranks = [sampler.step_positions(step, rank, world, micro, 12) for rank in range(world)]
        parts = [mixed.read(positions, micro) for of_rank in ranks for positions in of_rank]
        assert {tuple(field.shape[0] for field in part) for part in parts} == {(micro,) * len(whole)}, "one shape"
        for read, wanted in zip(zip(*parts), whole):
            rows = np.concatenate(read)
            filled = np.concatenate([part.sequence_ids[:, 0] >= 0 for part in parts])
            assert sorted(rows[filled].tolist()) == sorted(wanted.tolist())
        assert sum(int((part.sequence_ids >= 0).sum()) for part in parts) == (whole.sequence_ids >= 0).sum()
        for labels in ("masked_labels", "sentence_labels"):
            counts = [int((getattr(part, labels) != IGNORED_LABEL).sum()) for part in parts]
            assert sum(counts) == (getattr(whole, labels) != IGNORED_LABEL).sum()


def test_progress_counts_each_corpus():
    mixed = mixture((5, 3, 1))
    assert mixed.progress(90) == {
        "samples/a": 50, "epochs/a": 50 / 30, "samples/b": 30, "epochs/b": 30 / 17, "samples/c": 10, "epochs/c": 2.0,
    }  # fmt: skip
    assert (mixture((1,)).progress(90), mixture((1,)).describe(90)) == ({}, [])
    assert mixed.describe(90)[2] == "corpus c: 11.11% of the samples, 2.00 epochs of 5 rows"


def test_names_are_as_short_as_they_can_be():
    assert names_of([Path("/x/wikipedia"), Path("/y/books")]) == ("wikipedia", "books")
    assert names_of([Path("/x/wikipedia/train"), Path("/x/books/train")]) == ("wikipedia/train", "books/train")
    assert names_of([Path("/x/books")]) == ("books",)
    assert names_of([]) == ()


WEIGHTS = [(1,), (1, 1), (7, 3), (1, 99), (5, 3, 1), (1, 1, 1, 1, 1)]


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_every_position_of_each_corpus_is_read_once(weights, seed):
    count = 12 * sum(weights)
    corpora, indices = corpora_at(np.arange(count), weights, seed)
    for corpus, weight in enumerate(weights):
        assert sorted(indices[corpora == corpus].tolist()) == list(range(12 * weight))


@settings(deadline=None, max_examples=60)
@given(
    weights=st.lists(st.fractions(Fraction(1, 50), 50, max_denominator=50), min_size=1, max_size=5),
    start=st.integers(0, 10**12),
    length=st.integers(1, 2000),
    seed=st.integers(0, 2**63 - 1),
)
def test_weights_hold_exactly_in_any_window_up_to_the_blocks_at_its_ends(weights, start, length, seed):
    whole = whole_weights(weights)
    assert len(whole) == len(weights)
    if sum(whole) < MAX_BLOCK:
        assert [Fraction(weight, sum(whole)) for weight in whole] == [weight / sum(weights) for weight in weights]
    corpora, _ = corpora_at(np.arange(start, start + length), whole, seed)
    for corpus, weight in enumerate(whole):
        assert abs((corpora == corpus).sum() - length * weight / sum(whole)) <= min(weight, sum(whole) - weight)


def test_long_blocks_are_rounded():
    weights = [Fraction(3_141_592_653), Fraction(2_718_281_829), Fraction(1)]
    whole = whole_weights(weights)
    assert sum(whole) == MAX_BLOCK
    assert min(whole) == 1
    assert abs(whole[0] / sum(whole) - 3_141_592_653 / sum(weights)) < 1 / MAX_BLOCK
    assert whole_weights([Fraction("0.7"), Fraction("0.3")]) == (7, 3)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_samples_are_counted_without_looking_at_each(weights):
    corpora, _ = corpora_at(np.arange(500), weights, 5)
    for count in (0, 1, 2, 99, 100, 101, 500):
        expected = np.bincount(corpora[:count], minlength=len(weights))
        assert samples_per_corpus(count, weights, 5) == expected.tolist()
    assert sum(samples_per_corpus(10**15 + 7, weights, 5)) == 10**15 + 7


def test_the_places_of_a_corpus_in_its_block_are_drawn():
    # Of 2,000 blocks of ten, how often does corpus 0, with a weight of 3, stand at each place? 600 are expected;
    # chi-squared with 9 degrees of freedom: 99.9 % lie below 27.9.
    corpora, _ = corpora_at(np.arange(20_000), (3, 7), 0)
    at = (corpora.reshape(-1, 10) == 0).sum(axis=0)
    assert ((at - 600) ** 2 / 600).sum() < 27.9
    other, _ = corpora_at(np.arange(20_000), (3, 7), 1)
    assert (corpora != other).any()


def test_corpora_have_seeds_of_their_own_and_the_first_that_of_the_run():
    seeds = [corpus_seed(corpus, seed) for seed in (0, 1) for corpus in range(4)]
    assert seeds[0] == 0
    assert seeds[4] == 1
    assert len(set(seeds)) == 8
    assert all(0 <= seed < 2**63 for seed in seeds)


@settings(deadline=None, max_examples=150)
@given(rows=st.integers(1, 3000), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 10**6))
def test_an_epoch_s_order_is_a_permutation(rows, seed, epoch):
    images = sampler.permute(np.arange(rows), rows, seed, epoch)
    assert sorted(images.tolist()) == list(range(rows))


@given(rows=st.integers(1, 3000), seed=st.integers(0, 2**63 - 1), first=st.integers(0, 10**7))
def test_the_order_is_that_of_the_plain_computation(rows, seed, first):
    found = zip(*(column.tolist() for column in sampler.rows_at(np.arange(first, first + 20), rows, seed)))
    assert list(found) == [plain_batches.row_at(position, rows, seed) for position in range(first, first + 20)]


@settings(deadline=None, max_examples=200)
@given(batch=st.integers(1, 200), micro=st.integers(1, 40), world=st.integers(1, 30), step=st.integers(0, 10**9))
def test_any_ranks_and_micro_batches_cover_a_batch_once(batch, micro, world, step):
    of_ranks = [sampler.step_positions(step, rank, world, micro, batch) for rank in range(world)]
    parts = [part for of_micro_step in zip(*of_ranks, strict=True) for part in of_micro_step]
    assert np.concatenate(parts).tolist() == list(range(step * batch, (step + 1) * batch))
    lengths = [len(part) for part in parts]
    assert lengths == sorted(lengths, reverse=True), "the last ones are short or empty"
    assert max(lengths) <= micro
