"""Texts in tokens as inputs of the model, entities, and their metrics by hand.

The hand-computed tables were compared with seqeval 1.2.2.
"""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from data_prep.text.text_encoder import Encoder
from data_prep.text.vocabulary import CLS_ID, SEP_ID
from pipeline.tasks.files.rows import Columns
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.kinds.tagging import TagExample, TagFeatures, entities
from pipeline.tasks.own_tasks import OwnRecord, make_task

TASK = make_task("names", OwnRecord("tagging", ("B-X", "O"), Columns("tokens")))
LONG = make_task("names", OwnRecord("tagging", ("B-X", "O", "I-X"), Columns("tokens")))


def pieces(vocabulary, token):
    return Encoder(vocabulary).encode([token])[0].tolist()


def test_the_first_piece_of_each_token_is_labelled(vocabulary):
    tokens = ("Bafilon", "dolon", "\u0301", "kemist", "Sara vi")
    examples = [TagExample("0", tokens, (0, 1, 1, 0, 1)), TagExample("1", ("mo",), (1,))]
    features = TagFeatures(TASK, vocabulary, examples, 64)
    batch = features.batch([0, 1], training=False)
    assert pieces(vocabulary, tokens[2]) == []  # normalisation leaves nothing of an accent alone
    flat = batch.input_ids.flatten()
    firsts = [pieces(vocabulary, token)[0] for token in (*tokens[:2], *tokens[3:], "mo")]
    assert flat[batch.token_positions].tolist() == firsts
    assert batch.labels.tolist() == [0, 1, 0, 1, 1]
    assert batch.label_count == 5
    # All pieces are trained: those of the tag B-X go on with I-X.
    batch = TagFeatures(LONG, vocabulary, examples, 64).batch([0, 1], training=True)
    trained = [
        (piece, label if number == 0 else {0: 2, 1: 1}[label])
        for token, label in zip((*tokens[:2], *tokens[3:], "mo"), (0, 1, 0, 1, 1))
        for number, piece in enumerate(pieces(vocabulary, token))
    ]
    flat = batch.input_ids.flatten()
    assert list(zip(flat[batch.token_positions].tolist(), batch.labels.tolist())) == trained
    whole = [CLS_ID, *(piece for token in tokens for piece in pieces(vocabulary, token)), SEP_ID]
    row, start = np.argwhere(batch.input_ids == whole[1])[0]
    assert batch.input_ids[row, start - 1 : start - 1 + len(whole)].tolist() == whole
    assert features.lengths.tolist() == [len(whole), 2 + len(pieces(vocabulary, "mo"))]


@pytest.mark.parametrize("max_length", [16, 20, 64])
def test_a_long_text_is_divided_and_every_token_gets_a_tag(vocabulary, max_length):
    words = [f"{first}{second}lon" for first in ("ba", "do", "fi") for second in ("gu", "ke", "la", "mo")] * 3
    words += ["bamist" * 12, "\u0301"]  # longer than a window; no piece
    examples = [TagExample("a", tuple(words), tuple([1] * len(words))), TagExample("b", ("mo",), (0,))]
    features = TagFeatures(TASK, vocabulary, examples, max_length)
    assert features.lengths.max() <= max_length
    found = {}
    for sample in range(len(features.lengths)):
        batch = features.batch([sample], training=False)
        # A model whose first logit is the position of the token in all of its row.
        logits = torch.tensor(np.stack([np.full(len(batch.labels), 5.0), np.zeros(len(batch.labels))], axis=1))
        found.update(zip([sample], features.decode([sample], batch, SimpleNamespace(logits=logits))))
    predictions = features.predictions(found)
    assert predictions.lengths.tolist() == [len(words), 1]
    assert predictions.labels.tolist() == [1] * len(words) + [0]
    # Each token is B-X, as the logits say, but the one without a piece.
    assert predictions.predictions().tolist() == [0] * (len(words) - 1) + [1, 0]


def test_a_window_is_filled_to_its_last_position(vocabulary):
    """[CLS], the pieces and [SEP] may be as long as the longest sequence."""
    longest = 2 + 7 * len(pieces(vocabulary, "mo"))
    for tokens, windows in ((7, 1), (8, 2)):
        features = TagFeatures(TASK, vocabulary, [TagExample("0", ("mo",) * tokens, (0,) * tokens)], longest)
        assert len(features.lengths) == windows


def test_unknown_tags_and_an_empty_batch(vocabulary):
    features = TagFeatures(TASK, vocabulary, [TagExample("0", ("mo", "ba"))], 16)
    batch = features.batch([0], training=False)
    assert (batch.labels.tolist(), batch.label_count) == ([-100, -100], 0)
    logits = torch.zeros(2, 2)
    assert features.predictions({0: features.decode([0], batch, SimpleNamespace(logits=logits))[0]}).labels is None
    empty = features.batch([], training=False)
    assert (len(empty.token_positions), len(empty.labels)) == (0, 0)


LABELS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
NAMES = make_task("names", OwnRecord("tagging", LABELS, Columns("tokens")))
TRUE = ["B-PER I-PER O B-LOC", "O O", "B-LOC I-LOC I-LOC O B-PER B-PER"]
FOUND = ["B-PER I-PER O I-LOC", "O B-PER", "B-LOC I-LOC O O B-PER I-PER"]


def logits_of(found, true=TRUE, ids=None):
    found_tags, labels = (np.array([LABELS.index(tag) for tag in " ".join(tags).split()]) for tags in (found, true))
    lengths = np.array([len(line.split()) for line in found])
    ids = np.array(ids if ids is not None else [str(number) for number in range(len(found))])
    return Logits(ids, np.eye(len(LABELS), dtype=np.float32)[found_tags], labels, lengths=lengths)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-PER I-PER O B-LOC", {("PER", 0, 2), ("LOC", 3, 4)}),
        ("B-PER B-PER", {("PER", 0, 1), ("PER", 1, 2)}),
        ("I-PER I-PER", {("PER", 0, 2)}),  # as CoNLL-2000's script: it begins an entity
        ("B-PER I-LOC I-LOC", {("PER", 0, 1), ("LOC", 1, 3)}),
        ("O I-PER", {("PER", 1, 2)}),
        ("B-PER I-PER E-PER I-PER", {("PER", 0, 3), ("PER", 3, 4)}),
        ("B-PER E-PER O E-LOC", {("PER", 0, 2), ("LOC", 3, 4)}),
        ("B-A-B I-A-B", {("A-B", 0, 2)}),
        ("", set()),
    ],
)
def test_entities(tags, expected):
    assert entities(tags.split()) == expected


def test_the_metrics_by_hand():
    # True: PER 0-2, LOC 3-4; none; LOC 0-3, PER 4, PER 5. Found: both of the first; a wrong PER; LOC 0-2, PER 4-6.
    found = NAMES.kind.metrics(NAMES, logits_of(FOUND))
    assert found == pytest.approx(
        {"entity_f1": 2 * 2 / (5 + 5), "entity_precision": 2 / 5, "entity_recall": 2 / 5, "accuracy": 8 / 12}
    )
    assert list(found) == list(NAMES.metrics)
    assert set(NAMES.kind.metrics(NAMES, logits_of(TRUE)).values()) == {1.0}
    nothing = NAMES.kind.metrics(NAMES, logits_of(["O O"], ["O O"]))
    assert nothing == {"entity_f1": 0.0, "entity_precision": 0.0, "entity_recall": 0.0, "accuracy": 1.0}


def test_the_order_of_texts_and_the_file(tmp_path):
    logits = logits_of(FOUND)
    turned = logits.aligned(logits_of(FOUND[::-1], TRUE[::-1], ids=["2", "1", "0"]))
    assert turned.lengths.tolist() == [6, 2, 4]
    assert turned.labels.tolist()[-4:] == logits.labels.tolist()[:4]
    assert turned.predictions().tolist()[:6] == logits.predictions().tolist()[-6:]
    turned.save(tmp_path / "dev.npz")
    again = Logits.load(tmp_path / "dev.npz")
    np.testing.assert_array_equal(again.aligned(logits).logits, logits.logits)
    with pytest.raises(ValueError, match="11 rows, but 12 logits"):
        dataclasses.replace(logits, lengths=np.array([4, 2, 5]))
    with pytest.raises(ValueError, match="the numbers of tokens differ"):
        logits_of(["O O", "O"], ["O O", "O"]).aligned(logits_of(["O", "O O"], ["O", "O O"]))


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [
        ("IOB", "B-PER I-PER I-PER O B-LOC O"),
        ("IOBES", "B-PER I-PER E-PER O S-LOC O"),
        ("BILOU", "B-PER I-PER L-PER O U-LOC O"),
        ("BMES", "B-PER M-PER E-PER O S-LOC O"),
        ("BMEWO", "B-PER M-PER E-PER O W-LOC O"),
        ("behind the type", "PER-B PER-I PER-I O LOC-B O"),
        ("BILOU behind the type", "PER_B PER_I PER_L O LOC_U O"),
        ("low line", "B_PER I_PER I_PER O B_LOC O"),
        ("small letters", "b-per i-per i-per o b-loc o"),
        ("slash", "B/PER I/PER I/PER O B/LOC O"),
        ("types with signs", "B-PER-X I-PER-X I-PER-X O B-LOC_2 O"),
        ("no types", "B I I O B O"),
        ("no types, BMES", "B M E O S O"),
    ],
)
def test_every_scheme_counts_the_same_entities(scheme, tags):
    labels = tuple(sorted(set(tags.split())))
    task = make_task("names", OwnRecord("tagging", labels, Columns("tokens")))
    assert task.metrics[0] == "entity_f1"
    assert task.kind.note(labels) == ""
    true = np.array([labels.index(tag) for tag in tags.split()])
    # The second entity is missed; the first one ends too early.
    for wrong, shares in ((4, (1.0, 0.5)), (2, (0.5, 0.5))):
        found = np.where(np.arange(6) == wrong, true[3], true)
        logits = Logits(np.array(["0"]), np.eye(len(labels), dtype=np.float32)[found], true, lengths=np.array([6]))
        metrics = task.kind.metrics(task, logits)
        assert (metrics["entity_precision"], metrics["entity_recall"]) == shares


@pytest.mark.parametrize(
    "labels", [("NOUN", "VERB"), ("LOC", "O", "PER"), ("B-PER", "MISC", "O"), ("B-PER", "I", "O"), ("M-X", "L-X", "O")]
)
def test_other_tags_are_scored_by_themselves_and_a_note_says_so(labels):
    task = make_task("tags", OwnRecord("tagging", labels, Columns("tokens")))
    assert task.metrics == ("accuracy", "f1_macro")
    assert task.kind.note(labels).startswith("each tag is scored by itself; entities need tags such as B-PER")


def test_further_pieces_continue_what_the_first_begins(vocabulary):
    word = max(vocabulary.spellings, key=len).strip() * 2
    for labels, expected in ((("B_X", "I_X", "O"), 1), (("X-B", "X-I", "o"), 1), (("B", "I", "O"), 1)):
        task = make_task("names", OwnRecord("tagging", labels, Columns("tokens")))
        features = TagFeatures(task, vocabulary, [TagExample("0", (word,), (0,))], 32)
        tags = features.batch([0], training=True).labels.tolist()
        assert len(tags) > 1
        assert tags == [0] + [expected] * (len(tags) - 1)
