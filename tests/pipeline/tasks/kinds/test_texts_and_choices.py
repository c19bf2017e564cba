"""Texts, pairs and questions with options as rows of the model's inputs, and its logits as predictions."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_prep.text.text_encoder import Encoder
from data_prep.text.vocabulary import CLS_ID, PAD_ID, SEP_ID
from model.classification import multi_label_sums, regression_sums
from pipeline.data.packed_rows import offset_count, sequence_length, sequence_offsets
from pipeline.tasks.files.rows import Columns
from pipeline.tasks.kinds.choices import ChoiceExample, ChoiceFeatures, query
from pipeline.tasks.kinds.row_packing import cls_grid, distribute, pack, truncate_pair
from pipeline.tasks.kinds.texts import TextExample, TextFeatures
from pipeline.tasks.own_tasks import OwnRecord, make_task
from pipeline.tasks.registry import TASKS
from pipeline.tasks.task import SpanLimits
from tests.model.examples import few_examples


def tokens(vocabulary, text):
    """The tokens that pre-training makes of a text."""
    return Encoder(vocabulary).encode([text])[0].tolist()


def sequences(batch):
    """The tokens of each sequence of a batch, in the order of its samples, read back from the rows."""
    slots = batch.cls_positions.shape[1]
    for flat in batch.sequences.flatten().tolist():
        row, number = divmod(flat, slots)
        inside = batch.sequence_ids[row] == number
        assert batch.cls_positions[row, number] == np.flatnonzero(inside)[0]
        yield batch.input_ids[row, inside].tolist()


def predictions_of(features, logits):
    """The predictions from these logits, one row for each sample, decoded in two batches and in another order."""
    found = {}
    for samples in (range(1, len(logits)), [0]):
        output = SimpleNamespace(logits=torch.tensor(logits[list(samples)]))
        found.update(zip(samples, features.decode(samples, None, output)))
    return features.predictions(found)


def test_texts_and_pairs(vocabulary):
    long, short = "Bafi dolon kemist. " * 9, "Sara vi!"
    examples = [
        TextExample("7", "Café, DOLON", short, 1), TextExample("3", short, long, 0), TextExample("5", "", "", None)
    ]  # fmt: skip
    features = TextFeatures(TASKS["rte"], vocabulary, examples, 32)
    batch = features.batch([1, 0, 2], training=True)
    cut = tokens(vocabulary, long)[: 32 - 3 - len(tokens(vocabulary, short))]
    assert list(sequences(batch)) == [
        [2, *tokens(vocabulary, short), 3, *cut, 3],
        [2, *tokens(vocabulary, "cafe, dolon"), 3, *tokens(vocabulary, short), 3],
        [2, 3, 3],
    ]
    assert features.lengths.tolist() == [sequence_length(*features.segments(sample)[0]) for sample in range(3)]
    assert (batch.labels.tolist(), batch.label_count) == ([0, 1, -100], 2)
    logits = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = predictions_of(features, logits)
    assert found.ids.tolist() == ["7", "3", "5"]
    np.testing.assert_array_equal(found.logits, logits)
    assert found.labels is None  # one is not known
    alone = TextFeatures(TASKS["stsb"], vocabulary, [TextExample("0", long, None, 3.8)], 16)
    batch = alone.batch([0], training=True)
    assert list(sequences(batch)) == [[2, *tokens(vocabulary, long)[:14], 3]]
    assert alone.lengths.tolist() == [16]
    assert (batch.labels.dtype, batch.labels.tolist()) == (np.float32, [pytest.approx(3.8)])
    assert predictions_of(alone, np.ones((1, 1), np.float32)).labels.tolist() == [pytest.approx(3.8)]


def test_every_number_is_a_label_of_a_regression(vocabulary):
    examples = [TextExample("0", "a", None, -100.0), TextExample("1", "b", None, 2.0)]
    features = TextFeatures(TASKS["stsb"], vocabulary, examples, 16)
    batch = features.batch([0, 1], training=True)
    assert batch.label_count == 2
    outputs = torch.zeros(2, 1)
    assert [float(value) for value in regression_sums(outputs, torch.from_numpy(batch.labels))] == [10004.0, 0.0, 2.0]
    assert predictions_of(features, np.ones((2, 1), np.float32)).labels.tolist() == [-100.0, 2.0]
    unknown = TextFeatures(TASKS["stsb"], vocabulary, [*examples, TextExample("2", "c")], 16)
    assert unknown.batch([2, 1], training=True).label_count == 1
    assert predictions_of(unknown, np.ones((3, 1), np.float32)).labels is None


def test_the_option_replaces_the_blank():
    assert query("What is _ ?", "a cat") == "What is a cat ?"
    assert query("____ and _, \\1", r"\g<0>") == r"\g<0> and \g<0>, \1"
    assert query("Why?", "Because.") == "Why? Because."


def test_questions_with_options(vocabulary):
    passage, other = "Bafi dolon kemist. " * 40, "Sara vi."
    options = ("bafi", "dolon " * 200, "kemist", "")
    examples = [
        ChoiceExample("high1-0", passage, "Who _ ?", options, 2, "high"),
        ChoiceExample("middle1-0", other, "Why?", options, 0, "middle"),
    ]
    features = ChoiceFeatures(TASKS["race"], vocabulary, examples, 400)
    batch = features.batch([1, 0], training=True)
    wanted = []
    for example in reversed(examples):
        for option in options:
            asked = tokens(vocabulary, query(example.question, option))[-128:]
            read = tokens(vocabulary, example.passage)[: 400 - 3 - len(asked)]
            wanted.append([2, *read, 3, *asked, 3])
    assert list(sequences(batch)) == wanted
    assert max(map(len, wanted)) == 400
    assert (batch.sequences.shape, batch.labels.tolist(), batch.label_count) == ((2, 4), [0, 2], 2)
    assert features.lengths.tolist() == [sum(map(len, wanted[4:])), sum(map(len, wanted[:4]))]
    found = predictions_of(features, np.eye(4, dtype=np.float32)[[2, 1]])
    assert found.ids.tolist() == ["high1-0", "middle1-0"]
    assert found.levels.tolist() == ["high", "middle"]
    assert (found.predictions() == found.labels).tolist() == [True, False]
    metrics = TASKS["race"].kind.metrics(TASKS["race"], found)
    assert metrics == {"accuracy": 0.5, "high": 1.0, "middle": 0.0}
    unknown = dataclasses.replace(found, levels=np.array([""] * 2))
    assert TASKS["race"].kind.metrics(TASKS["race"], unknown) == {"accuracy": 0.5}
    # In a model with few positions, half of them are kept for the passage.
    short = ChoiceFeatures(TASKS["race"], vocabulary, examples, 32)
    assert (short.cut, features.cut) == (2, 2), "the second option is too long for both"
    others = [dataclasses.replace(example, options=options[2:] * 2) for example in examples]
    assert [ChoiceFeatures(TASKS["race"], vocabulary, others, length).cut for length in (32, 10_000)] == [1, 0]
    assert max(len(asked) for _, asked in short.segments(0)) == 16
    assert max(sequence_length(*texts) for texts in short.segments(0)) == 32


def test_any_number_of_labels(vocabulary):
    columns = Columns("text", label="labels")
    task = make_task("topics", OwnRecord("multi_label", ("a", "b", "c"), columns))
    labels = [(0, 2), (), (1,), None]
    examples = [TextExample(str(number), "Bafi dolon.", None, label) for number, label in enumerate(labels)]
    features = task.kind.make_features(task, vocabulary, examples, 32, SpanLimits())
    batch = features.batch(range(4), training=True)
    assert batch.label_count == 9  # three texts with three labels each
    logits = torch.tensor([[2.0, -1.0, -0.5], [-3.0, -1.0, 1.0], [-1.0, 4.0, -1.0], [5.0, 5.0, 5.0]])  # (N, C)
    sums = multi_label_sums(logits, torch.from_numpy(batch.labels))
    wanted = torch.nn.BCEWithLogitsLoss(reduction="sum")(logits[:3], torch.from_numpy(batch.labels[:3]))
    assert [float(value) for value in sums] == pytest.approx([float(wanted), 7.0, 9.0])
    assert features.predictions(dict(enumerate(logits.numpy()))).labels is None

    features.describe(task, examples[:3])
    found = features.predictions(dict(enumerate(logits.numpy()[:3])))
    # Of a: one of one; of b: one of one; of c: none of one, and one too many.
    assert task.kind.metrics(task, found) == pytest.approx({"f1_micro": 4 / 6, "f1_macro": 2 / 3, "exact_match": 1 / 3})
    assert task.kind.metrics(task, task.kind.majority(task, found))["f1_micro"] == 0.0
    records = task.kind.records(task, found)
    assert [records[name]["prediction"] for name in "012"] == [["a"], ["c"], ["b"]]
    assert records["0"]["probabilities"]["a"] == pytest.approx(torch.sigmoid(torch.tensor(2.0)).item())
    low, high = task.kind.interval(task, "f1_micro", found)
    assert 0.0 <= low <= 4 / 6 <= high <= 1.0


TEXTS = st.lists(st.integers(5, 99), max_size=60).map(lambda ids: np.array(ids, dtype=np.uint16))
SEQUENCES = st.lists(st.tuples(TEXTS, st.none() | TEXTS), max_size=12)


@given(SEQUENCES)
def test_every_sequence_can_be_read_back(sequences):
    rows, placement = pack(sequences)
    size = rows.input_ids.shape[1]
    assert size % 8 == 0
    used = 0
    for index, (first, second) in enumerate(sequences):
        row, start = placement.row[index], placement.start[index]
        here = slice(start, start + placement.length[index])
        wanted = [CLS_ID, *first, SEP_ID, *([] if second is None else [*second, SEP_ID])]
        assert rows.input_ids[row, here].tolist() == wanted
        assert rows.token_type_ids[row, here].tolist() == [0] * (len(first) + 2) + [1] * (len(wanted) - len(first) - 2)
        assert rows.position_ids[row, here].tolist() == list(range(len(wanted)))
        assert (rows.sequence_ids[row, here] == placement.number[index]).all()
        used += len(wanted)
    assert (rows.sequence_ids >= 0).sum() == used
    assert (rows.input_ids[rows.sequence_ids < 0] == PAD_ID).all()
    # Sequences are contiguous and numbered from 0 within their row.
    for ids in rows.sequence_ids:
        kept = ids[ids >= 0].tolist()
        assert kept == sorted(kept)
        assert set(kept) == set(range(len(set(kept))))
    grid = cls_grid(placement, len(rows.input_ids))
    assert (grid[placement.row, placement.number] == placement.start).all()


@given(st.lists(st.integers(2, 128), min_size=1, max_size=64))
def test_rows_are_few_and_even(lengths):
    rows = distribute(lengths, 128)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    fills = [sum(lengths[index] for index in row) for row in rows]
    assert max(fills) <= 128
    # The bound of bin packing: two rows that fit into one row would have become one.
    assert len(rows) <= max(1, 2 * -(-sum(lengths) // 128))
    if len(rows) == -(-sum(lengths) // 128):
        assert max(fills) - min(fills) <= max(lengths)


@given(TEXTS, TEXTS, st.integers(1, 130))
def test_a_pair_is_cut_as_in_bert(first, second, room):
    a, b = list(first), list(second)
    while len(a) + len(b) > room:
        (a if len(a) > len(b) else b).pop()
    cut_first, cut_second = truncate_pair(first, second, room)
    assert (cut_first.tolist(), cut_second.tolist()) == (a, b)


@few_examples
@given(rows=st.lists(st.lists(st.integers(1, 6), max_size=5), min_size=1, max_size=9))
def test_offsets_cover_every_token_once(rows):
    length = max(1, *map(sum, rows))
    ids = np.full((len(rows), length), -1)
    expected = [0]
    for row, sizes in enumerate(rows):
        ids[row, : sum(sizes)] = np.repeat(np.arange(len(sizes)), sizes)
        for size in [*sizes, *([length - sum(sizes)] if length > sum(sizes) else [])]:
            expected.append(expected[-1] + size)
    found = sequence_offsets(ids)
    assert found.dtype == np.int32
    assert found.tolist() == expected + [ids.size] * (offset_count(len(expected) - 1) + 1 - len(expected))


def test_there_are_few_numbers_of_offsets():
    """Four from each power of two to the next, none more than a quarter too large."""
    assert [offset_count(number) for number in (1, 2, 3, 4, 5, 8, 9, 10, 11)] == [1, 2, 3, 4, 5, 8, 10, 10, 12]
    assert [offset_count(number) for number in (64, 65, 80, 81, 128, 129)] == [64, 80, 80, 96, 128, 160]
    assert sorted({offset_count(number) for number in range(65, 129)}) == [80, 96, 112, 128]
    for number in range(1, 5000):
        assert number <= offset_count(number) < 1.25 * number + 1
