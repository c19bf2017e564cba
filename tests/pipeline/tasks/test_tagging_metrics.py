"""Entities and their metrics, by hand; the hand-computed tables were compared with seqeval 1.2.2."""

import dataclasses

import numpy as np
import pytest

from pipeline.analysis.comparison import estimate_of, gain_of
from pipeline.tasks import tagging_metrics
from pipeline.tasks.own import OwnRecord, make_task
from pipeline.tasks.predictions import TagLogits, load_logits
from pipeline.tasks.task import Columns

LABELS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
METRICS = ("entity_f1", "entity_precision", "entity_recall", "accuracy")
TASK = make_task("names", OwnRecord("tagging", LABELS, METRICS, Columns("tokens")))
TRUE = ["B-PER I-PER O B-LOC", "O O", "B-LOC I-LOC I-LOC O B-PER B-PER"]
FOUND = ["B-PER I-PER O I-LOC", "O B-PER", "B-LOC I-LOC O O B-PER I-PER"]


def logits_of(found, true=TRUE):
    tags = np.array([LABELS.index(tag) for line in found for tag in line.split()])
    labels = np.array([LABELS.index(tag) for line in true for tag in line.split()])
    lengths = np.array([len(line.split()) for line in found])
    ids = np.array([str(number) for number in range(len(found))])
    return TagLogits(ids, lengths, np.eye(len(LABELS), dtype=np.float32)[tags], labels)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-PER I-PER O B-LOC", {("PER", 0, 2), ("LOC", 3, 4)}),
        ("B-PER B-PER", {("PER", 0, 1), ("PER", 1, 2)}),
        ("I-PER I-PER", {("PER", 0, 2)}),  # as CoNLL-2000's script: it begins an entity
        ("B-PER I-LOC I-LOC", {("PER", 0, 1), ("LOC", 1, 3)}),
        ("O I-PER", {("PER", 1, 2)}),
        ("S-PER S-PER", {("PER", 0, 1), ("PER", 1, 2)}),
        ("B-PER I-PER E-PER I-PER", {("PER", 0, 3), ("PER", 3, 4)}),
        ("B-PER E-PER O E-LOC", {("PER", 0, 2), ("LOC", 3, 4)}),
        ("B-A-B I-A-B", {("A-B", 0, 2)}),
        ("O O", set()),
        ("", set()),
    ],
)
def test_entities(tags, expected):
    assert tagging_metrics.entities(tags.split()) == expected


def test_the_metrics_by_hand():
    # True: PER 0-2, LOC 3-4; none; LOC 0-3, PER 4, PER 5. Found: both of the first; a wrong PER; LOC 0-2, PER 4-6.
    found = tagging_metrics.compute(TASK, logits_of(FOUND))
    assert found == pytest.approx(
        {"entity_f1": 2 * 2 / (5 + 5), "entity_precision": 2 / 5, "entity_recall": 2 / 5, "accuracy": 8 / 12}
    )
    assert list(found) == list(TASK.metrics)
    perfect = tagging_metrics.compute(TASK, logits_of(TRUE))
    assert set(perfect.values()) == {1.0}
    nothing = tagging_metrics.compute(TASK, logits_of(["O O"], ["O O"]))
    assert nothing == {"entity_f1": 0.0, "entity_precision": 0.0, "entity_recall": 0.0, "accuracy": 1.0}


def test_which_tags_mark_entities():
    assert tagging_metrics.is_entity_scheme(LABELS)
    assert tagging_metrics.is_entity_scheme(("B-X", "E-X", "I-X", "O", "S-X"))
    assert not tagging_metrics.is_entity_scheme(("NOUN", "VERB"))
    assert not tagging_metrics.is_entity_scheme(("O", "X-PER"))


def test_estimates_and_gains():
    one, best = logits_of(FOUND * 9, TRUE * 9), logits_of(TRUE * 9, TRUE * 9)
    estimate = estimate_of(TASK, one)
    assert estimate.value == pytest.approx(40.0)
    assert estimate.interval[0] < 40.0 < estimate.interval[1]
    assert estimate.majority == 0.0
    assert gain_of(TASK, best, best.aligned(best.ids[::-1])) == (0.0, 0.0)
    low, high = gain_of(TASK, best, one)
    assert 0 < low < 60.0 < high
    by_token = dataclasses.replace(TASK, metrics=("accuracy",))
    assert estimate_of(by_token, one).value == pytest.approx(100 * 8 / 12)
    assert estimate_of(by_token, one).majority == pytest.approx(100 * 4 / 12)
    assert estimate_of(TASK, dataclasses.replace(one, labels=None)) is None
    with pytest.raises(ValueError, match="the numbers of tokens differ"):
        gain_of(TASK, logits_of(["O O", "O"], ["O O", "O"]), logits_of(["O", "O O"], ["O", "O O"]))


def test_the_order_of_texts_and_the_file(tmp_path):
    logits = logits_of(FOUND)
    turned = logits.aligned(logits.ids[::-1])
    assert turned.lengths.tolist() == [6, 2, 4]
    assert turned.labels.tolist()[-4:] == logits.labels.tolist()[:4]
    assert turned.predictions().tolist()[:6] == logits.predictions().tolist()[-6:]
    turned.save(tmp_path / "dev.npz")
    again = load_logits(tmp_path / "dev.npz")
    assert isinstance(again, TagLogits)
    np.testing.assert_array_equal(again.aligned(logits.ids).logits, logits.logits)
    for change, message in (
        ({"lengths": np.array([4, 2])}, "3 ids, but 2 lengths"),
        ({"lengths": np.array([4, 2, 5])}, "11 tokens, but 12 logits"),
        ({"lengths": np.array([4, 0, 8])}, "a length of 0"),
        ({"ids": np.array(["0", "0", "1"])}, "an id occurs twice"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(logits, **change)
