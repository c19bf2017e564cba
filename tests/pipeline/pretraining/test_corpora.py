"""Corpora and their weights, and the message of every mistake in them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.errors import UserError
from data_prep.format.shard_manifest import ShardCounts
from data_prep.format.shards import open_shards
from pipeline.pretraining import corpora as resolving
from pipeline.pretraining.corpora import Corpora
from tests.pipeline.pretraining.command_lines import resolve


def test_several_corpora_have_weights_or_the_share_of_their_rows(words, corpus, second):
    alone = resolve(words)
    assert (alone.data, alone.corpus_weights) == ((corpus.train,), (1,))
    mixed = resolve(words | {"--data": [f"{corpus.train}:0.75", f"{second}:1/4"]})
    assert (mixed.data, mixed.corpus_weights) == ((corpus.train, second), (3, 1))
    assert (mixed.data_digests[0], mixed.corpus_weights[0]) == (*alone.data_digests, 3)
    rows = [len(open_shards(directory)) for directory in mixed.data]
    by_rows = resolve(words | {"--data": [str(corpus.train), str(second)]}).corpus_weights
    assert by_rows[0] * rows[1] == by_rows[1] * rows[0]


def test_a_colon_in_a_directory_s_name_is_no_weight(words, corpus, tmp_path):
    (tmp_path / "corpus:2").symlink_to(corpus.train)
    assert resolve(words | {"--data": str(tmp_path / "corpus:2")}).data == (tmp_path / "corpus:2",)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (("a:1", "b"), "some directories have a weight"),
        (("a:1", "b:0"), "a weight is above 0"),
        (("a:1", "b:much"), "'much' is not a weight"),
        (("a", "b/../a"), "names a directory twice"),
    ],
)
def test_wrong_weights_are_refused(data, text):
    with pytest.raises(UserError, match=text):
        resolving.open_corpora(data)


class Shards:
    """Shards of 100 rows, with the fields of their manifest."""

    def __init__(self, **fields: Any) -> None:
        usual = {"vocabulary_sha256": "v", "max_seq_length": 64, "split": "train", "documents_digest": "d"}
        usual |= {"sources": [{"directory": f"wiki{len(fields)}", "documents": 9}]}
        self.manifest = SimpleNamespace(**usual | fields)

    def __len__(self) -> int:
        return 100


@pytest.mark.parametrize(
    ("counts", "objective", "message"),
    [
        (ShardCounts(documents=200, pairs=200, pairs_without_b=200), "sop", "no pair has a second segment"),
        (ShardCounts(documents=200, pairs=200, pairs_without_b=200), "mlm", ""),
        (ShardCounts(documents=200, pairs=200, pairs_without_b=199), "sop", ""),
        (ShardCounts(documents=1, pairs=9), "nsp", "the text is one document"),
        (ShardCounts(documents=3, documents_left_out=1, duplicates_left_out=1, pairs=9), "nsp", "the text is one doc"),
        (ShardCounts(documents=2, pairs=9), "nsp", ""),
    ],
)
def test_a_sentence_loss_without_both_labels_is_said_at_the_start(counts, objective, message):
    """Its head would learn nothing, and its accuracy would be 100 % or missing."""
    assert resolving.describe_missing_labels([counts], objective).startswith(message)
    assert resolving.describe_missing_labels([counts, ShardCounts(documents=2, pairs=9)], objective) == ""


@pytest.mark.parametrize(
    ("second", "held_out", "message"),
    [
        ({}, {"documents_digest": "e", "sources": [{"directory": "wiki", "documents": 8}]}, None),
        ({}, {"documents_digest": "e", "split": "held_out"}, None),
        ({}, {"documents_digest": "e"}, "--eval-data third holds documents of --data second"),
        ({"vocabulary_sha256": "w"}, {}, "second was made with another vocabulary than first: second/vocab differs"),
        ({}, {"vocabulary_sha256": "w"}, "third was made with another vocabulary than first"),
        ({"max_seq_length": 32}, {}, "second has rows of 32 tokens, first of 64"),
        ({}, {"split": "held_out", "max_seq_length": 128}, "third has rows of 128 tokens, first of 64"),
        ({"split": "held_out"}, {}, "--data second holds held-out documents"),
        (
            {"documents_digest": "f"},
            {"documents_digest": "f", "sources": []},
            "--eval-data third holds documents of --data second",
        ),
    ],
)
def test_shards_that_do_not_go_together_are_refused(monkeypatch, second, held_out, message):
    monkeypatch.setattr(resolving, "find_vocabulary", lambda directory: directory / "vocab")
    monkeypatch.setattr(resolving, "open_shards", lambda directory: Shards(**held_out))
    corpora = Corpora((Path("first"), Path("second")), (Shards(), Shards(**second)), (1, 1))
    if message is None:
        corpora.check_together([Path("third")])
    else:
        with pytest.raises(UserError, match=message):
            corpora.check_together([Path("third")])


def test_too_few_rows_for_a_share_of_a_batch_are_refused():
    corpora = Corpora((Path("first"), Path("second")), (Shards(), Shards()), (1, 3))
    corpora.check_size(133)
    with pytest.raises(UserError, match="second holds 100 rows, fewer than its share of one batch, of 101"):
        corpora.check_size(134)
    with pytest.raises(UserError, match="first holds 100 rows, fewer than one batch of 101"):
        Corpora((Path("first"),), (Shards(),), (1,)).check_size(101)
