"""The order of rows: a permutation each epoch, the same wherever it is evaluated."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data import sampler
from tests.pipeline.data import plain_batches


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
