"""The batches of an evaluation."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.finetuning.prediction import batches_of


@given(st.lists(st.integers(3, 300), max_size=60), st.integers(1, 5), st.integers(1, 900))
def test_every_sample_is_evaluated_once_and_all_ranks_have_equally_many_batches(lengths, world_size, tokens):
    features = SimpleNamespace(lengths=np.array(lengths, dtype=np.int64))
    parts = [list(batches_of(features, rank, world_size, tokens)) for rank in range(world_size)]
    assert len({len(part) for part in parts}) == 1
    samples = [sample for part in parts for batch in part for sample in batch]
    assert sorted(samples) == list(range(len(lengths)))
    for batch in (batch for part in parts for batch in part):
        assert len(batch) <= 1 or sum(lengths[sample] for sample in batch) <= tokens
