"""Several corpora as one stream of batches: the same rows on any ranks, each as its own corpus would give it."""

from pathlib import Path

import numpy as np
import pytest

from pipeline import order
from pipeline.batches import BatchShape, Reader
from pipeline.corpora import Corpora, names_of, training_step

from .test_batches import CONTINUES, random_shards


def mixture(shares, seed=7):
    sets = [random_shards(count=count, seed=number) for number, count in enumerate((30, 17, 5))][: len(shares)]
    shape = BatchShape.of(*sets)
    readers = tuple(Reader(one, shape, CONTINUES, "sop", order.seed_of(n, seed)) for n, one in enumerate(sets))
    return Corpora(readers, ("a", "b", "c")[: len(shares)], shares, seed)


def test_one_corpus_is_read_as_it_would_be_without_a_mixture():
    alone = mixture((1,))
    (reader,) = alone.readers
    epochs, rows = order.rows_at(np.arange(20, 70), 30, 7)
    for field, expected in zip(alone.read(np.arange(20, 70)), reader.read(epochs.tolist(), rows.tolist())):
        np.testing.assert_array_equal(field, expected)
    assert alone.progress(100) == {}
    assert alone.describe(100) == []


def test_each_row_of_a_mixture_is_what_its_corpus_gives():
    mixed = mixture((5, 3, 1))
    batch = mixed.read(np.arange(90))
    corpora, indices = order.corpora_at(np.arange(90), (5, 3, 1), 7)
    for position in range(90):
        reader = mixed.readers[corpora[position]]
        epochs, rows = order.rows_at(indices[position : position + 1], len(reader.shards), reader.seed)
        for field, expected in zip(batch, reader.read(epochs.tolist(), rows.tolist())):
            np.testing.assert_array_equal(field[position], expected[0])


@pytest.mark.parametrize(("world", "micro"), [(1, 4), (2, 3), (3, 4), (12, 1)])
def test_a_step_of_a_mixture_is_the_same_however_it_is_split(world, micro):
    mixed = mixture((2, 1))
    for step in range(3):
        (whole,) = training_step(mixed, step, 0, 1, 12, 12)
        parts = [batch for rank in range(world) for batch in training_step(mixed, step, rank, world, micro, 12)]
        rows = np.concatenate([part.input_ids for part in parts]).tolist()
        assert sorted(rows) == sorted(whole.input_ids.tolist())


def test_progress_counts_each_corpus():
    mixed = mixture((5, 3, 1))
    assert mixed.progress(90) == {
        "samples/a": 50, "epochs/a": 50 / 30, "samples/b": 30, "epochs/b": 30 / 17, "samples/c": 10, "epochs/c": 2.0,
    }  # fmt: skip
    assert mixed.describe(90)[2] == "corpus c: 11.11% of the samples, 2.00 epochs of 5 rows"


def test_names_are_as_short_as_they_can_be():
    assert names_of([Path("/x/wikipedia"), Path("/y/books")]) == ("wikipedia", "books")
    assert names_of([Path("/x/wikipedia/train"), Path("/x/books/train")]) == ("wikipedia/train", "books/train")
    assert names_of([Path("/x/books")]) == ("books",)
    assert names_of([]) == ()
