"""Settings that the data decide, corpora and their weights, and the message of every mistake in them."""

import json
import shutil

import pytest

from common.errors import UserError
from data_prep.format.shards import open_shards
from tests.pipeline.conftest import data_prep
from tests.pipeline.pretraining.command_lines import CONFIG, resolve

pytestmark = pytest.mark.slow


def test_too_few_rows_are_refused(words, corpus, tmp_path):
    path = tmp_path / "large.json"
    path.write_text(json.dumps(CONFIG | {"train_batch_size": 2**20}))
    with pytest.raises(UserError, match="fewer than one batch"):
        resolve(words | {"--deepspeed_config": str(path)})


def test_there_may_be_fewer_rows_than_ranks(words):
    engine = resolve(words, world_size=4096).engine
    assert (engine.train_batch_size, engine.micro_batch_size, engine.accumulation_steps) == (8, 1, 1)
    assert engine.empty_rows == 4088


def test_a_weight_too_large_for_a_corpus_is_refused(words, corpus, second, tmp_path):
    path = tmp_path / "batch.json"
    path.write_text(json.dumps(CONFIG | {"train_batch_size": 4 * len(open_shards(second))}))
    with pytest.raises(UserError, match="fewer than its share of one batch"):
        resolve(words | {"--deepspeed_config": str(path), "--data": [f"{corpus.train}:1", f"{second}:99"]})


def test_held_out_rows_of_another_vocabulary_are_refused(words, corpus, tmp_path):
    vocabulary = tmp_path / "other.model"
    data_prep("vocab", "--documents", corpus.documents, "--out", vocabulary, "--size", "150")
    shards = tmp_path / "other"
    data_prep(
        "shards", "--documents", corpus.documents, "--vocab", vocabulary, "--out", shards, "--max-seq-length", "64"
    )
    with pytest.raises(UserError, match="another vocabulary"):
        resolve(words | {"--eval-data": [str(corpus.held_out), str(shards)]})
    with pytest.raises(UserError, match="another vocabulary"):
        resolve(words | {"--data": [str(corpus.train), str(shards)]})


def test_longer_held_out_rows_are_refused(words, corpus, tmp_path):
    shards = tmp_path / "long"
    data_prep(
        "shards", "--documents", corpus.documents, "--vocab", corpus.vocabulary, "--out", shards,
        "--max-seq-length", "128",
    )  # fmt: skip
    with pytest.raises(UserError, match="rows of 128 tokens"):
        resolve(words | {"--eval-data": str(shards)})


def test_several_corpora_have_weights_or_the_share_of_their_rows(words, corpus, second):
    alone = resolve(words)
    assert (alone.data, alone.corpus_weights) == ((corpus.train,), (1,))
    assert isinstance(alone.identity()["data"], str)
    mixed = resolve(words | {"--data": [f"{corpus.train}:0.75", f"{second}:1/4"]})
    assert (mixed.data, mixed.corpus_weights) == ((corpus.train, second), (3, 1))
    assert mixed.identity()["data"][0] == (alone.identity()["data"], 3)
    rows = [len(open_shards(directory)) for directory in mixed.data]
    by_rows = resolve(words | {"--data": [str(corpus.train), str(second)]}).corpus_weights
    assert by_rows[0] * rows[1] == by_rows[1] * rows[0]


def test_a_colon_in_a_directory_s_name_is_no_weight(words, corpus, tmp_path):
    (tmp_path / "corpus:2").symlink_to(corpus.train)
    assert resolve(words | {"--data": str(tmp_path / "corpus:2")}).data == (tmp_path / "corpus:2",)


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ((":1", ""), "some directories have a weight"),
        ((":1", ":0"), "a weight is above 0"),
        ((":1", ":much"), "'much' is not a weight"),
    ],
)
def test_wrong_weights_are_refused(words, corpus, second, weights, text):
    with pytest.raises(UserError, match=text) as caught:
        resolve(words | {"--data": [f"{corpus.train}{weights[0]}", f"{second}{weights[1]}"]})
    assert "\n" not in str(caught.value)


def test_held_out_documents_are_not_trained_on(words, corpus):
    with pytest.raises(UserError, match="holds held-out documents; train on shards"):
        resolve({**words, "--data": [str(corpus.train), str(corpus.held_out)]})
    with pytest.raises(UserError, match="holds held-out documents; train on shards"):
        resolve(
            {flag: value for flag, value in words.items() if flag != "--eval-data"} | {"--data": str(corpus.held_out)}
        )


def test_training_documents_are_not_evaluated_on(words, corpus, second, tmp_path):
    """Neither the directory itself, nor a copy, nor other rows of the same documents."""
    other = tmp_path / "rows of 32"
    data_prep(
        "shards", "--documents", corpus.documents, "--vocab", corpus.vocabulary, "--out", other,
        "--max-seq-length", "32",
    )  # fmt: skip
    for held_out in (corpus.train, second, other):
        with pytest.raises(UserError, match="holds the documents of --data") as caught:
            resolve(words | {"--eval-data": [str(corpus.held_out), str(held_out)]})
        assert str(held_out) in str(caught.value)


def test_corpora_that_do_not_go_together_are_refused(words, corpus, tmp_path):
    with pytest.raises(UserError, match="names a directory twice"):
        resolve(words | {"--data": [str(corpus.train), str(corpus.train / ".." / "train")]})
    short = tmp_path / "short"
    job = ["shards", "--documents", corpus.documents, "--vocab", corpus.vocabulary, "--out", short]
    data_prep(*job, "--max-seq-length", "32")
    with pytest.raises(UserError, match="rows of 32 tokens"):
        resolve(words | {"--data": [str(corpus.train), str(short)]})


def test_a_corrupt_shard_is_refused_by_name(words, corpus, tmp_path):
    shards = tmp_path / "damaged"
    shutil.copytree(corpus.train, shards)
    victim = shards / "shard-00000.arrow"
    victim.write_bytes(victim.read_bytes()[:-64])
    with pytest.raises(UserError, match=r"shard-00000\.arrow"):
        resolve(words | {"--data": str(shards)})
