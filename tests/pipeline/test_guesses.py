"""Sentences with guesses, by hand."""

import numpy as np

from pipeline import guesses
from pipeline.batches import IGNORED, BatchShape, blank

PIECES = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁the", "▁cat", "▁s", "at", "*", "▁dog"]


def test_right_and_wrong_guesses_are_told_apart() -> None:
    batch = blank(2, BatchShape(16, pairs=2, predictions=3))
    #        [CLS] the  cat   s   at   *  [SEP]   the second sequence has no prediction, the row no more
    batch.input_ids[0, :9] = [2, 5, 4, 7, 10, 9, 3, 2, 3]  # "cat" is masked, "at" replaced by "dog"
    batch.sequence_ids[0, :9] = [0] * 7 + [1] * 2
    batch.masked_positions[0] = [2, 4, 0]
    batch.masked_labels[0] = [6, 8, IGNORED]
    found = guesses.show(batch, np.array([[6, 10, 5], [5, 5, 5]]), PIECES)
    assert found == [r"\[CLS\] the **cat** s~~at~~ **dog**\* \[SEP\]"]


def test_only_so_many_are_shown() -> None:
    batch = blank(5, BatchShape(4, pairs=1, predictions=1))
    batch.input_ids[:, :3] = [2, 4, 3]
    batch.sequence_ids[:, :3] = 0
    batch.masked_positions[:] = 1
    batch.masked_labels[:] = 5
    assert guesses.show(batch, np.full((5, 1), 5), PIECES, count=2) == [r"\[CLS\] **the** \[SEP\]"] * 2
