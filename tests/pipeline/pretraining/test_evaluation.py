"""Sentences with predictions, by hand."""

import re

import numpy as np
from tensorboard import plugin_util

from model.layers.heads import IGNORED_LABEL
from pipeline.data.collate import BatchShape, blank
from pipeline.pretraining import evaluation

PIECES = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁the", "▁cat", "▁s", "at", "*", "▁dog"]


def test_right_and_wrong_predictions_are_told_apart() -> None:
    batch = blank(2, BatchShape(16, pairs=2, predictions=3))
    #        [CLS] the  cat   s   at   *  [SEP]   the second sequence has no prediction, the row no more
    batch.input_ids[0, :9] = [2, 5, 4, 7, 10, 9, 3, 2, 3]  # "cat" is masked, "at" replaced by "dog"
    batch.sequence_ids[0, :9] = [0] * 7 + [1] * 2
    batch.masked_positions[0] = [2, 4, 0]
    batch.masked_labels[0] = [6, 8, IGNORED_LABEL]
    header, rule, row = evaluation.show_predictions(batch, np.array([[6, 10, 5], [5, 5, 5]]), PIECES)
    assert header.count("|") == rule.count("|") == 4
    assert row == (
        r"| \[CLS\] the <strong>cat</strong> s<strong>at</strong>\* \[SEP\] "
        r"| \[CLS\] the <strong>cat</strong> s <em>✗dog</em>\* \[SEP\] | 1/2 |"
    )


def test_tensorboard_renders_the_table() -> None:
    batch = blank(1, BatchShape(16, pairs=1, predictions=4))
    batch.input_ids[0, :6] = [2, 4, 4, 11, 4, 3]
    batch.sequence_ids[0, :6] = 0
    batch.masked_positions[0, :3] = [1, 2, 4]
    batch.masked_labels[0, :3] = [8, 9, 12]
    lines = evaluation.show_predictions(batch, np.array([[8, 12, 11, 0]]), [*PIECES, "<b>|x", "▁"])
    shown = plugin_util.markdown_to_safe_html("\n".join(lines))
    cells = re.findall(r"<td>(.*?)</td>", shown)
    assert cells == [
        "[CLS]<strong>at*</strong>&lt;b&gt;|x <strong>␣</strong> [SEP]",  # pieces side by side are one
        "[CLS]<strong>at</strong> <em>✗␣</em>&lt;b&gt;|x<em>✗&lt;b&gt;|x</em> [SEP]",  # an empty piece is seen
        "1/3",
    ]


def test_a_long_sequence_is_cut() -> None:
    batch = blank(1, BatchShape(200, pairs=1, predictions=1))
    batch.input_ids[0] = 6
    batch.sequence_ids[0] = 0
    batch.masked_labels[0] = 6
    row = evaluation.show_predictions(batch, np.array([[6]]), PIECES)[-1]
    assert row.count("cat") == 2 * evaluation.MAX_PIECES
    assert "… |" in row


def test_only_so_many_are_shown() -> None:
    batch = blank(5, BatchShape(4, pairs=1, predictions=1))
    batch.input_ids[:, :3] = [2, 4, 3]
    batch.sequence_ids[:, :3] = 0
    batch.masked_positions[:] = 1
    batch.masked_labels[:] = 5
    text = r"\[CLS\] <strong>the</strong> \[SEP\]"
    assert (
        evaluation.show_predictions(batch, np.full((5, 1), 5), PIECES, count=2)[2:]
        == [f"| {text} | {text} | 1/1 |"] * 2
    )
