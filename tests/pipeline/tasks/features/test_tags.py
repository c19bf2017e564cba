"""Texts in tokens as inputs of the model: the first piece of a token carries its tag, and no token is lost."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from data_prep.text.encoder import Encoder
from data_prep.text.vocabulary import CLS_ID, SEP_ID
from pipeline.tasks.examples import TagExample
from pipeline.tasks.features.tags import TagFeatures
from pipeline.tasks.own import OwnRecord, make_task
from pipeline.tasks.task import Columns

TASK = make_task("names", OwnRecord("tagging", ("B-X", "O"), ("entity_f1",), Columns("tokens")))


def pieces(vocabulary, token):
    return Encoder(vocabulary).encode([token])[0].tolist()


def test_the_first_piece_of_each_token_is_labelled(vocabulary):
    tokens = ("Bafilon", "dolon", "\u0301", "kemist", "Sara vi")
    examples = [TagExample("0", tokens, (0, 1, 1, 0, 1)), TagExample("1", ("mo",), (1,))]
    features = TagFeatures(TASK, vocabulary, examples, 64)
    batch = features.batch([0, 1], training=True)
    assert pieces(vocabulary, tokens[2]) == []  # normalisation leaves nothing of an accent alone
    flat = batch.input_ids.flatten()
    firsts = [pieces(vocabulary, token)[0] for token in (*tokens[:2], *tokens[3:], "mo")]
    assert flat[batch.token_positions].tolist() == firsts
    assert batch.labels.tolist() == [0, 1, 0, 1, 1]
    assert batch.label_count == 5
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
    samples = list(range(len(features.lengths)))
    found = {}
    for sample in samples:
        batch = features.batch([sample], training=False)
        # A model whose first logit is the position of the token in all of its row.
        logits = torch.tensor(np.stack([np.full(len(batch.labels), 5.0), np.zeros(len(batch.labels))], axis=1))
        found.update(zip([sample], features.decode([sample], batch, SimpleNamespace(logits=logits))))
    predictions = features.predictions(found)
    assert predictions.lengths.tolist() == [len(words), 1]
    assert predictions.labels.tolist() == [1] * len(words) + [0]
    # Each token is B-X, as the logits say, but the one without a piece.
    assert predictions.predictions().tolist() == [0] * (len(words) - 1) + [1, 0]


def test_unknown_tags_and_an_empty_batch(vocabulary):
    features = TagFeatures(TASK, vocabulary, [TagExample("0", ("mo", "ba"))], 16)
    batch = features.batch([0], training=False)
    assert (batch.labels.tolist(), batch.label_count) == ([-100, -100], 0)
    logits = torch.zeros(2, 2)
    assert features.predictions({0: features.decode([0], batch, SimpleNamespace(logits=logits))[0]}).labels is None
    empty = features.batch([], training=False)
    assert (len(empty.token_positions), len(empty.labels)) == (0, 0)
