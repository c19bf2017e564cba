"""Rows to batches: rows by hand, labels by objective, negatives; and batches made ahead."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.format.pairs import Parts
from data_prep.format.shards import ShardRows
from model.layers.heads import IGNORED_LABEL
from pipeline.data import collate
from pipeline.data.collate import BatchShape, Collator
from pipeline.data.masking import MaskingSettings
from pipeline.data.prefetch import prefetch
from tests.data_prep import corpora
from tests.pipeline.data import plain_batches

VOCABULARY = 200
PAPER = MaskingSettings()
CONTINUES = np.arange(VOCABULARY) >= 100  # ids 5..99 begin a word


class MemoryShards:
    """A shard set in memory, with what `Collator` asks of one."""

    def __init__(self, rows, length):
        self.made = rows
        pairs = max(len(row.documents) for row in rows)
        self.manifest = SimpleNamespace(max_seq_length=length, counts=SimpleNamespace(max_pairs_in_row=pairs))

    def __len__(self):
        return len(self.made)

    def row(self, index):
        return self.made[index]

    def rows(self, indices):
        none = ShardRows(np.empty(0, np.uint16), Parts(*np.empty((4, 0), np.int64)), *np.empty((2, 0), np.int64))
        found = [none, *(self.made[index] for index in indices.tolist())]
        return ShardRows(
            np.concatenate([row.tokens for row in found]),
            Parts(*(np.concatenate(column) for column in zip(*(row.parts for row in found)))),
            np.concatenate([row.documents for row in found]),
            np.concatenate([row.pairs for row in found]),
        )


def make_row(pairs, document):
    """A row of pairs (lead, a, b, trail), each a sequence of tokens."""
    tokens = np.array([token for pair in pairs for part in pair for token in part], dtype=np.uint16)
    parts = Parts(*(np.array([len(part) for part in column]) for column in zip(*pairs)))
    return ShardRows(tokens, parts, np.full(len(pairs), document), np.array([len(pairs)]))


def random_shards(count=40, length=64, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        pairs = [tuple(rng.integers(5, VOCABULARY, rng.integers(least, 8)) for least in (0, 3, 3, 0)) for _ in range(2)]
        rows.append(make_row(pairs, number))
    return MemoryShards(rows, length)


def collator(shards, objective="sop", seed=0, masking=PAPER):
    return Collator(shards, BatchShape.of(shards, masking=masking), CONTINUES, objective, seed, masking)


def test_a_row_of_two_pairs_by_hand():
    shards = MemoryShards([make_row([([10], [11], [12], []), ([], [20], [], [])], document=0)], length=16)
    batch = collator(shards, objective="mlm").read([0], [0])
    used = batch.masked_labels[0] != IGNORED_LABEL
    batch.input_ids[0, batch.masked_positions[0][used]] = batch.masked_labels[0][used]  # the masked tokens, put back
    #                                    [CLS]  a   a [SEP]  b [SEP] [CLS]  a [SEP] then padding
    assert batch.input_ids[0].tolist() == [2, 10, 11, 3, 12, 3, 2, 20, 3] + [0] * 7
    assert batch.token_type_ids[0].tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0] + [0] * 7
    assert batch.position_ids[0].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2] + [0] * 7
    assert batch.sequence_ids[0].tolist() == [0] * 6 + [1] * 3 + [-1] * 7
    assert batch.cls_positions[0].tolist() == [0, 6]
    assert batch.sentence_labels[0].tolist() == [IGNORED_LABEL, IGNORED_LABEL]
    assert batch.masked_labels.shape == (1, PAPER.max_predictions(16))


@st.composite
def shards_and_rows(draw):
    """Rows of pairs with and without a B, of few documents, and the rows of a batch: any, repeated and empty ones."""
    length = st.integers(0, 6)
    with_b = st.tuples(length, st.integers(1, 9), st.integers(1, 9), length)
    without_b = st.tuples(st.just(0), st.integers(1, 9), st.just(0), st.just(0))
    lengths = draw(st.lists(st.lists(st.one_of(with_b, with_b, without_b), min_size=1, max_size=4), min_size=1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = [
        make_row([[rng.integers(5, VOCABULARY, n) for n in pair] for pair in row], number // 2)
        for number, row in enumerate(lengths)
    ]
    return MemoryShards(rows, 132), draw(st.lists(st.integers(-1, len(rows) - 1), min_size=1, max_size=9))


@settings(deadline=None, max_examples=60)
@given(
    made=shards_and_rows(),
    objective=st.sampled_from(["sop", "nsp", "mlm"]),
    masking=st.builds(
        MaskingSettings,
        st.sampled_from([0.01, 0.15, 0.5, 1.0]),
        st.sampled_from([1, 2, 3, 12, 300]),
        st.sampled_from([0.0, 0.5, 0.7]),
        st.sampled_from([0.0, 0.3]),
    ),
    epochs=st.integers(0, 3),
)
def test_batches_are_those_of_a_plain_reading(made, objective, masking, epochs):
    shards, rows = made
    used = collator(shards, objective, seed=7, masking=masking)
    of_rows = [epochs + number % 2 for number in range(len(rows))]
    for field, plain in zip(used.read(of_rows, rows), plain_batches.read(used, of_rows, rows)):
        assert field.dtype == plain.dtype
        np.testing.assert_array_equal(field, plain)


def test_rows_of_more_words_than_an_index_has_bits_are_read_plainly_too():
    row = make_row([([], np.arange(5, 95).repeat(20), np.arange(5, 95).repeat(20), [])], document=0)
    used = collator(MemoryShards([row], 4096))
    for field, plain in zip(used.read([0, 3], [0, 0]), plain_batches.read(used, [0, 3], [0, 0])):
        np.testing.assert_array_equal(field, plain)


@pytest.mark.parametrize(
    ("limit", "chosen"), [(None, range(30)), (1, [0]), (7, [0, 4, 8, 12, 17, 21, 25]), (30, range(30)), (99, range(30))]
)
def test_an_evaluation_of_some_rows_has_the_same_rows_on_any_number_of_ranks(limit, chosen):
    used = collator(random_shards(count=30))
    wanted = {tuple(used.read([0], [row]).input_ids[0].tolist()) for row in chosen}
    for world, micro in ((1, 8), (2, 8), (3, 7), (4, 40), (5, 2)):
        per_rank = [list(collate.evaluation(used, rank, world, micro, limit)[1]) for rank in range(world)]
        assert len({len(found) for found in per_rank}) == 1
        rows = np.concatenate([batch.input_ids for found in per_rank for batch in found])
        filled = [tuple(row) for row in rows[rows[:, 0] != 0].tolist()]
        assert len(filled) == len(chosen)
        assert set(filled) == wanted


def test_items_come_in_order_and_an_error_is_raised_where_the_item_was_wanted():
    def items():
        yield from range(100)
        raise KeyError("broken shard")

    ahead = prefetch(items(), depth=3)
    assert [next(ahead) for _ in range(100)] == list(range(100))
    with pytest.raises(KeyError, match="broken shard"):
        next(ahead)


def test_the_thread_stays_only_so_far_ahead_and_ends_with_the_iterator():
    made = []

    def items():
        for number in range(10**6):
            made.append(number)
            yield number

    ahead = prefetch(items(), depth=2)
    assert next(ahead) == 0
    corpora.wait_until(lambda: len(made) == 3)  # one taken, two ahead
    time.sleep(0.1)
    assert len(made) == 3
    ahead.close()
    corpora.wait_until(lambda: not any(thread.name.startswith("batches") for thread in threading.enumerate()))
