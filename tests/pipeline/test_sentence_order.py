"""The order of two segments must not show in anything but their meaning.

A pair's outer ends are often cut inside a sentence and its middle is not. If a swap moved those cuts, punctuation
alone would give the label away: that is what the fragments of data_prep/pairs.py prevent.
"""

import numpy as np
import pytest

from data_prep.shards import open_shards
from data_prep.vocabulary import Vocabulary
from pipeline import batches
from pipeline.batches import BatchShape, Reader


def ends_of_segments(batch, stops, continues_word):
    """For each labelled pair: whether its first and second segment begin a word, whether each ends a sentence, and
    which is longer; and the pair's label."""
    features, labels = [], []
    for index in range(len(batch.input_ids)):
        ids = batch.input_ids[index].copy()
        used = batch.masked_labels[index] != batches.IGNORED
        ids[batch.masked_positions[index][used]] = batch.masked_labels[index][used]
        for pair, label in enumerate(batch.sentence_labels[index].tolist()):
            if label == batches.IGNORED:
                continue
            here = batch.sequence_ids[index] == pair
            first = ids[here & (batch.token_type_ids[index] == 0)][1:-1]
            second = ids[here & (batch.token_type_ids[index] == 1)][:-1]
            starts = [not continues_word[segment[0]] for segment in (first, second)]
            features.append([*starts, *(segment[-1] in stops for segment in (first, second)), len(first) > len(second)])
            labels.append(label)
    return np.array(features), np.array(labels)


def best_guess(features, labels):
    """Accuracy, on one half of the pairs, of a table that tells the likelier label for each combination of features in
    the other half."""
    cells = features @ (1 << np.arange(features.shape[1]))
    half = len(labels) // 2
    table = [labels[:half][cells[:half] == cell].mean() > 0.5 if cell in cells[:half] else 0 for cell in range(32)]
    return float((np.array(table)[cells[half:]] == labels[half:]).mean()), len(labels) - half


class Moving(Reader):
    """Swaps whole segments, fragments and all: what must not be done."""

    def _arrange(self, row, epoch, row_number):
        pairs, labels = super()._arrange(row, epoch, row_number)
        moved = []
        for (lead, a, b, trail), pair, label in zip(batches.parts_of(row), pairs, labels):
            whole = np.concatenate((b, trail)), np.concatenate((lead, a))
            moved.append(whole if label == 1 else pair)
        return moved, labels


def features_of_a_set(corpus, reader, objective):
    shards = open_shards(corpus.train)
    vocabulary = Vocabulary.load(corpus.vocabulary)
    stops = {index for index, piece in enumerate(vocabulary.pieces) if piece.endswith(".")}
    features, labels = [], []
    source = reader(shards, BatchShape.of(shards), vocabulary.continues_word, objective, seed=0)
    for epoch in range(8):
        found = ends_of_segments(
            source.read([epoch] * len(shards), list(range(len(shards)))), stops, vocabulary.continues_word
        )
        features.append(found[0])
        labels.append(found[1])
    return best_guess(np.concatenate(features), np.concatenate(labels))


@pytest.mark.parametrize("reader", [Reader, Moving])
def test_where_segments_begin_and_end_tells_nothing_of_their_order(corpus, reader):
    accuracy, count = features_of_a_set(corpus, reader, "sop")
    assert count > 1000
    if reader is Reader:
        assert accuracy < 0.5 + 3 * 0.5 / count**0.5
    else:
        assert accuracy > 0.75, "the test has lost its power: it no longer sees a swap that moves the fragments"


def test_where_segments_begin_and_end_tells_next_to_nothing_of_a_stranger(corpus):
    """A stranger's segment is cut where the pair's own ended, which is inside a sentence in all but the last pair of a
    document and the short ones: what remains is bounded by their share."""
    accuracy, count = features_of_a_set(corpus, Reader, "nsp")
    assert count > 1000
    assert accuracy < 0.65
