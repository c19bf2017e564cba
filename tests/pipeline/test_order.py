"""The order of rows: a permutation each epoch, the same wherever it is evaluated."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import draws, order


@settings(deadline=None, max_examples=150)
@given(rows=st.integers(1, 3000), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 10**6))
def test_an_epoch_s_order_is_a_permutation(rows, seed, epoch):
    images = order.permute(np.arange(rows), rows, seed, epoch)
    assert sorted(images.tolist()) == list(range(rows))


def test_an_index_goes_where_it_went_among_others():
    alone = [int(order.permute(np.array([index]), 1000, 3, 2)[0]) for index in range(1000)]
    assert alone == order.permute(np.arange(1000), 1000, 3, 2).tolist()


def test_seeds_and_epochs_give_other_orders():
    orders = {tuple(order.permute(np.arange(50), 50, seed, epoch).tolist()) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_every_place_is_equally_likely():
    # Where does index 0 of 16 go, over 4,000 seeds? chi-squared with 15 degrees of freedom: 99.9 % lie below 37.7.
    seen = np.bincount([int(order.permute(np.array([0]), 16, seed, 0)[0]) for seed in range(4000)], minlength=16)
    assert ((seen - 250) ** 2 / 250).sum() < 37.7


def test_neighbours_do_not_stay_neighbours():
    # The images of i and i + 1 are adjacent for 2 pairs of 10,000 by chance; a poor mix leaves hundreds.
    images = order.permute(np.arange(10_000), 10_000, 1, 0)
    assert (np.abs(np.diff(images)) == 1).sum() < 15


def test_four_billion_rows_need_no_list():
    rows = 4_000_000_007
    images = order.permute(np.arange(rows - 5, rows), rows, 7, 3)
    assert len(set(images.tolist())) == 5
    assert ((images >= 0) & (images < rows)).all()


def test_positions_run_on_through_the_epochs():
    epochs, rows = order.rows_at(np.arange(25), 10, seed=5)
    assert epochs.tolist() == [0] * 10 + [1] * 10 + [2] * 5
    assert sorted(rows[:10].tolist()) == sorted(rows[10:20].tolist()) == list(range(10))
    assert rows[:10].tolist() != rows[10:20].tolist()


@pytest.mark.parametrize(("world", "micro"), [(1, 24), (1, 4), (2, 12), (3, 2), (4, 6), (12, 1), (24, 1)])
def test_a_step_is_covered_once_however_it_is_split(world, micro):
    batch, step = 24, 5
    found = [
        order.positions_of(step, micro_step, rank, world, micro, batch)
        for rank in range(world)
        for micro_step in range(batch // (world * micro))
    ]
    assert sorted(np.concatenate(found).tolist()) == list(range(120, 144))


def test_thousands_of_ranks_read_disjoint_rows():
    world, micro, batch = 4096, 1, 8192
    found = [
        order.positions_of(2, micro_step, rank, world, micro, batch) for rank in range(world) for micro_step in (0, 1)
    ]
    assert sorted(np.concatenate(found).tolist()) == list(range(2 * batch, 3 * batch))


SHARES = [(1,), (1, 1), (7, 3), (1, 99), (5, 3, 1), (1, 1, 1, 1, 1)]


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_every_position_of_each_corpus_is_read_once(shares, seed):
    count = 12 * sum(shares)
    corpora, indices = order.corpora_at(np.arange(count), shares, seed)
    for corpus, share in enumerate(shares):
        assert sorted(indices[corpora == corpus].tolist()) == list(range(12 * share))


@settings(deadline=None, max_examples=60)
@given(
    weights=st.lists(st.fractions(Fraction(1, 50), 50, max_denominator=50), min_size=1, max_size=5),
    start=st.integers(0, 10**12),
    length=st.integers(1, 2000),
    seed=st.integers(0, 2**63 - 1),
)
def test_shares_are_exact_over_any_window_but_for_the_blocks_at_its_ends(weights, start, length, seed):
    shares = order.whole_shares(weights)
    assert len(shares) == len(weights)
    if sum(shares) < order.LONGEST_BLOCK:
        assert [Fraction(share, sum(shares)) for share in shares] == [weight / sum(weights) for weight in weights]
    corpora, _ = order.corpora_at(np.arange(start, start + length), shares, seed)
    for corpus, share in enumerate(shares):
        assert abs((corpora == corpus).sum() - length * share / sum(shares)) <= min(share, sum(shares) - share)


def test_long_blocks_are_rounded():
    weights = [Fraction(3_141_592_653), Fraction(2_718_281_829), Fraction(1)]
    shares = order.whole_shares(weights)
    assert sum(shares) == order.LONGEST_BLOCK
    assert min(shares) == 1
    assert abs(shares[0] / sum(shares) - 3_141_592_653 / sum(weights)) < 1 / order.LONGEST_BLOCK
    assert order.whole_shares([Fraction("0.7"), Fraction("0.3")]) == (7, 3)


@pytest.mark.parametrize("shares", SHARES)
def test_samples_are_counted_without_looking_at_each(shares):
    corpora, _ = order.corpora_at(np.arange(500), shares, 5)
    for count in (0, 1, 2, 99, 100, 101, 500):
        expected = np.bincount(corpora[:count], minlength=len(shares))
        assert order.samples_of(count, shares, 5) == expected.tolist()
    assert sum(order.samples_of(10**15 + 7, shares, 5)) == 10**15 + 7


def test_where_a_corpus_stands_in_its_block_is_drawn():
    # Of 2,000 blocks of ten, how often does corpus 0, with a share of 3, stand at each place? 600 are expected;
    # chi-squared with 9 degrees of freedom: 99.9 % lie below 27.9.
    corpora, _ = order.corpora_at(np.arange(20_000), (3, 7), 0)
    at = (corpora.reshape(-1, 10) == 0).sum(axis=0)
    assert ((at - 600) ** 2 / 600).sum() < 27.9
    other, _ = order.corpora_at(np.arange(20_000), (3, 7), 1)
    assert (corpora != other).any()


@pytest.mark.parametrize("world", [1, 3, 64, 4096])
def test_ranks_share_a_mixture_without_gap_or_overlap(world):
    """As many simulated ranks read three steps of a mixture: together what one rank reads, each row of it once."""
    micro, accumulation, shares, rows = 2, 1, (5, 3, 1), (20_000, 9_000, 4_000)
    batch = world * micro * accumulation
    found = []
    for rank in range(world):
        positions = np.concatenate([order.positions_of(step, 0, rank, world, micro, batch) for step in range(3)])
        found.append(np.stack([*order.corpora_at(positions, shares, 3)]))
    corpora, indices = np.concatenate(found, axis=1)
    whole = np.stack(order.corpora_at(np.arange(3 * batch), shares, 3))
    assert sorted(zip(corpora, indices)) == sorted(zip(*whole))
    for corpus, count in enumerate(rows):
        own = np.unique(indices[corpora == corpus])
        assert len(own) == (corpora == corpus).sum()
        epochs, read = order.rows_at(own, count, order.seed_of(corpus, 3))
        for epoch in np.unique(epochs):
            assert len(np.unique(read[epochs == epoch])) == (epochs == epoch).sum()


def test_corpora_have_seeds_of_their_own_and_the_first_that_of_the_run():
    seeds = [order.seed_of(corpus, seed) for seed in (0, 1) for corpus in range(4)]
    assert seeds[0] == 0
    assert seeds[4] == 1
    assert len(set(seeds)) == 8
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_every_part_of_the_key_gives_a_stream_of_its_own():
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]  # seed, epoch, index
    streams = [
        tuple(draws.words(seed, purpose, epoch, index, 4).tolist())
        for purpose in draws.Purpose
        for seed, epoch, index in keys
    ]
    words = [word for stream in streams for word in stream]
    assert len(set(words)) == len(words), "two streams share numbers"
