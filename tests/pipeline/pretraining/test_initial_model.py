"""--init: the first loss is that of `transformers`, new heads are named, and what does not fit is refused."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from sentencepiece import sentencepiece_model_pb2

from common.errors import UserError
from data_prep.format.shard_manifest import read_manifest
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.tokenizer_json import tokenizer_files
from model import AlbertConfig, AlbertForPreTraining, huggingface
from pipeline.checkpoint.initial_weights import fill_weights, find_model, read_initial_weights
from pipeline.engine.hardware import Hardware
from pipeline.pretraining.pretrain_settings import make_task
from pipeline.run import start as starts
from pipeline.settings import pretrain_flags
from tests.pipeline.pretraining import trained_models
from tests.pipeline.pretraining.test_independent_implementation import sums_of_batch
from tests.pipeline.records import write

CPU = Hardware("CPU", fp16=False, bf16=True)
CONFIG = {"train_batch_size": 4, "optimizer": {"type": "Lamb", "params": {"lr": 0.01}}}


@pytest.fixture
def start(corpus, tmp_path):
    """Checks a command line that starts from a directory, with further flags; the task."""

    def check(init, *flags, data=corpus.train, output="run"):
        config = tmp_path / "config.json"
        config.write_text(json.dumps(CONFIG))
        words = ["--init", init, "--data", data, "--deepspeed_config", config, "--output", tmp_path / output]
        parsed = pretrain_flags.parse([str(word) for word in (*words, "--steps", 4, "--verify", "never", *flags)])
        found = make_task(parsed, 1, CPU)
        starts.check(parsed, [found])
        return found

    return check


def fill(found):
    """The model with the initial weights, and what stays random."""
    model = AlbertForPreTraining(found.settings.model)
    return model, fill_weights(model, found.weights, found.has_head)


@pytest.mark.parametrize(("kind", "pickled"), [("albert", False), ("albert", True), ("bert", True)])
def test_the_first_loss_is_that_of_transformers(kind, pickled, corpus, start, tmp_path):
    reference = getattr(trained_models, kind)(corpus.vocabulary)
    found = start(trained_models.publish(reference, tmp_path / "published", corpus.vocabulary, pickled))
    assert found.settings.objective == {"albert": "sop", "bert": "nsp"}[kind]
    found.open(SimpleNamespace(all_or_raise=lambda check: None))
    batch = found.training.read(np.arange(4))
    batch = type(batch)(*map(torch.from_numpy, batch))
    model, kept = fill(found)
    assert kept == []
    with torch.no_grad():
        output = model(**batch._asdict())
        ours = output.mlm_loss_sum / output.mlm_count + output.sentence_loss_sum / output.sentence_count
        mlm, predictions, sentence, pairs = sums_of_batch(reference, batch._asdict())
        assert min(predictions, pairs) > 0
        assert float(ours) == pytest.approx(float(mlm / predictions + sentence / pairs), abs=1e-5)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--model", "albert-base"), "embedding_size is 16 there and 128 here, hidden_size is 32 there and 768 here"),
        (("--model-args", "parameter_sharing=none"), "parameter_sharing is all there and none here"),
        (("--model-args", "max_position_embeddings=64"), "max_position_embeddings is 96 there and 64 here"),
    ],
)
def test_another_architecture_is_refused_with_what_differs(flags, message, corpus, start, tmp_path):
    model = trained_models.albert(corpus.vocabulary, positions=96)
    directory = trained_models.publish(model, tmp_path / "albert", corpus.vocabulary)
    with pytest.raises(UserError, match=message):
        start(directory, *flags)
    assert not (tmp_path / "run").exists()


def test_heads_that_are_missing_or_of_another_task_start_fresh_and_are_named(corpus, start, tmp_path):
    whole = trained_models.albert(corpus.vocabulary)
    encoder = trained_models.publish(whole.albert, tmp_path / "encoder", corpus.vocabulary)
    bare = trained_models.publish(transformers.AlbertForMaskedLM(whole.config), tmp_path / "masked", corpus.vocabulary)
    full = trained_models.publish(whole, tmp_path / "full", corpus.vocabulary)
    sentence = ["sentence_head.classifier.weight", "sentence_head.classifier.bias"]
    pooler = ["albert.pooler.dense.weight", "albert.pooler.dense.bias"]

    def new(directory, *flags):
        found = start(directory, *flags)
        kept = fill(found)[1]
        named = f"; new: {', '.join(kept)}" if kept else ""
        assert f"weights from {directory}{named}" in found.subject(kept)
        return found.settings.objective, kept

    objective, kept = new(encoder)
    assert objective == "sop"
    assert kept == [name for name in kept if name.startswith(("mlm_head.", "sentence_head."))]
    assert set(sentence) < set(kept)
    assert {"mlm_head.bias", "mlm_head.dense.weight", "mlm_head.layer_norm.weight"} < set(kept)
    assert new(bare) == ("mlm", [])
    assert new(bare, "--objective", "sop") == ("sop", [*pooler, *sentence])
    assert new(full, "--objective", "nsp") == ("nsp", sentence)
    assert new(full, "--objective", "mlm") == ("mlm", [])


def test_more_positions_keep_the_first_rows_and_begin_like_a_new_model(corpus, start, tmp_path):
    reference = trained_models.albert(corpus.vocabulary, positions=32)
    found = start(trained_models.publish(reference, tmp_path / "short", corpus.vocabulary))
    assert found.settings.model.max_position_embeddings == read_manifest(corpus.train).max_seq_length == 64
    torch.manual_seed(0)
    fresh = AlbertForPreTraining(found.settings.model)
    torch.manual_seed(0)
    model, kept = fill(found)
    name = "albert.embeddings.position_embeddings.weight"
    assert kept == [f"the positions 32 to 63 of {name}"]
    table = model.state_dict()[name]
    assert torch.equal(table[:32], reference.albert.embeddings.position_embeddings.weight)
    assert torch.equal(table[32:], fresh.state_dict()[name][32:])
    assert 0 < table[32:].abs().max() <= 2 * found.settings.model.initializer_range


def test_other_programs_keep_only_tokenizer_json(corpus, start, tmp_path):
    vocabulary = load_vocabulary(corpus.vocabulary)
    config = AlbertConfig.preset("albert-tiny", vocab_size=len(vocabulary), max_position_embeddings=64)
    huggingface.save(AlbertForPreTraining(config), tmp_path / "export", tokenizer_files(vocabulary, 64))
    again = tmp_path / "again"
    transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "export").save_pretrained(again)
    with pytest.raises(UserError, match=r"has no vocabulary \(spiece.model, tokenizer.json or vocab"):
        start(again)
    transformers.AutoTokenizer.from_pretrained(tmp_path / "export").save_pretrained(again)
    assert not (again / "spiece.model").exists()
    assert fill(start(again))[1] == []
    assert read_initial_weights(again).vocabulary.pieces == load_vocabulary(corpus.vocabulary).pieces


def test_the_same_pieces_for_other_text_are_refused(corpus, start, tmp_path):
    proto = sentencepiece_model_pb2.ModelProto.FromString(corpus.vocabulary.read_bytes())
    proto.normalizer_spec.name = "identity+case"
    cased = tmp_path / "cased.model"
    cased.write_bytes(proto.SerializeToString())
    directory = trained_models.publish(trained_models.albert(cased), tmp_path / "albert", cased)
    with pytest.raises(UserError, match=f"--data {corpus.train} .* --vocab {directory / 'spiece.model'}"):
        start(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "is not a directory; name an exported model"),
        ({"model_type": "roberta"}, "model_type 'roberta'; only 'albert' and 'bert' can be read"),
        ({"vocab_size": 300}, "has 200 pieces and the model beside it a vocab_size of 300"),
    ],
)
def test_a_directory_that_cannot_be_read_is_one_line(change, message, corpus, start, tmp_path):
    directory = tmp_path / "published"
    if change:
        sizes = {name: value for name, value in change.items() if name == "vocab_size"}
        trained_models.publish(trained_models.albert(corpus.vocabulary, **sizes), directory, corpus.vocabulary)
        fields = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps(fields | change))
    with pytest.raises(UserError, match=message):
        start(directory)
    assert not (tmp_path / "run").exists()


def test_a_directory_beside_a_mistyped_one_is_named(tmp_path, monkeypatch):
    (tmp_path / "runs" / "wikipedia").mkdir(parents=True)
    with pytest.raises(UserError, match=r"as OWNER/NAME; did you mean wikipedia\?$"):
        find_model(tmp_path / "runs" / "wikipdia")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=r"for a model of the hub; did you mean wikipedia\?$"):
        find_model(Path("runs/wikipdia"))
    with pytest.raises(UserError, match=r"as OWNER/NAME$"):
        find_model(tmp_path / "nowhere" / "wikipedia")


def test_a_run_without_a_checkpoint_reads_the_weights_again_and_only_the_same(corpus, start, tmp_path):
    directory = trained_models.publish(trained_models.albert(corpus.vocabulary), tmp_path / "albert", corpus.vocabulary)
    found = start(directory)
    write(found.settings.flags.output, found.settings)
    assert start(directory).initial.weights is not None
    moved = shutil.move(directory, tmp_path / "moved")
    assert start(moved).initial.digest == found.initial.digest  # the same weights at another place
    trained_models.publish(trained_models.bert(corpus.vocabulary), tmp_path / "bert", corpus.vocabulary)
    with pytest.raises(UserError, match=r"holds a run with other settings .*init_weights: "):
        start(tmp_path / "bert")
    trained_models.publish(trained_models.bert(corpus.vocabulary), directory, corpus.vocabulary)
    with pytest.raises(UserError, match=r"holds a run with other settings .*init_weights: "):
        start(directory)
