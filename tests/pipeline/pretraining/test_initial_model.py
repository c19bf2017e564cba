"""Initial weights: first losses as of `transformers`, tensors that are copied, new heads, and what does not fit."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentencepiece import sentencepiece_model_pb2

from common.errors import UserError
from data_prep.format.shard_manifest import read_manifest
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.tokenizer_json import tokenizer_files
from model import AlbertConfig, AlbertForPreTraining, huggingface
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.initial_weights import (
    InitialWeights,
    exported_checkpoint,
    fill_weights,
    find_model,
    read_initial_weights,
)
from pipeline.checkpoint.retention import tag_name
from pipeline.engine.hardware import Hardware
from pipeline.pretraining.pretrain_settings import make_task
from pipeline.run import start as starts
from pipeline.settings import pretrain_flags
from pipeline.settings.run_settings import as_json
from pipeline.settings.settings_file import FORMAT
from pipeline.tasks.own_tasks import Head
from pipeline.tasks.registry import TASKS
from tests.pipeline.checkpoint.test_files import flip, make
from tests.pipeline.pretraining import trained_models
from tests.pipeline.pretraining.test_independent_implementation import sums_of_batch
from tests.pipeline.records import finetune_settings, pretrain_settings, write
from tests.pipeline.sharing import runs

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
    with pytest.raises(UserError, match=r"has no vocabulary \(spiece.model, tokenizer.json, vocab"):
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


def test_a_source_that_is_no_directory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for source, line in (
        (tmp_path / "nowhere" / "x", r"OWNER/NAME of the hub$"),
        (Path("runs/wikipdia"), "of the hub$"),
    ):
        with pytest.raises(UserError, match=line):
            find_model(source)


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


TINY = runs.config_of()
HEAD = ["classifier.weight", "classifier.bias"]


def make_model(task):
    return TASKS[task].kind.make_model(TASKS[task], TINY)


FINETUNED = as_json({"format": FORMAT, **vars(finetune_settings())})


@pytest.mark.parametrize(
    ("trained", "called", "task", "new"),
    [
        ("mnli", "mnli", "mnli", []),
        ("mnli", "mnli", "rte", HEAD),
        ("qnli", "qnli", "rte", HEAD),  # as many classes, of another task
        ("rte", "mnli", "mnli", HEAD),  # an export that says mnli and has two classes
    ],
)
def test_the_head_is_kept_where_it_is_of_the_same_task_and_size(corpus, vocabulary, trained, called, task, new):
    source, model = make_model(trained), make_model(task)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    initial = InitialWeights(TINY, source.state_dict(), corpus.vocabulary, vocabulary, Head(called))
    assert fill_weights(model, initial, lambda name: called == task) == new
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name] if name in new else source.state_dict()[name]), name


def test_an_encoder_of_another_kind_is_refused_and_a_pooler_may_be_missing(corpus, vocabulary):
    tensors = make_model("rte").state_dict()
    lost = "albert.embeddings.layer_norm.weight"
    poolers = [name for name in tensors if ".pooler." in name]

    def fill(changed):
        initial = InitialWeights(TINY, changed, corpus.vocabulary, vocabulary, Head("rte"))
        return fill_weights(make_model("rte"), initial, lambda name: True)

    with pytest.raises(UserError, match=f"has the tensor {lost} not at all"):
        fill({name: tensor for name, tensor in tensors.items() if name != lost})
    with pytest.raises(UserError, match=rf"{lost} in the shape \(9,\), but the model needs it in the shape \(8,\)"):
        fill(tensors | {lost: torch.ones(9)})
    assert fill({name: tensor for name, tensor in tensors.items() if name not in poolers}) == poolers


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no model"),
        ({"settings.json": "{}"}, "has format None"),
        ({"settings.json": FINETUNED, "results.json": "{}"}, "is a fine-tuning run without its export; finish it"),
        ({"results.json": "{}"}, "holds a run of several seeds; name one of them"),
    ],
)
def test_places_without_a_model(files, message, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        read_initial_weights(tmp_path)


def test_weights_that_are_no_numbers_are_those_of_the_file(corpus, vocabulary, tmp_path):
    trained_models.export(tmp_path / "export", corpus.vocabulary)
    path = tmp_path / "export" / "model.safetensors"
    tensors = load_file(path)
    tensors["albert.pooler.weight"][0, 0] = float("nan")
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(UserError, match=r"--init .*export: albert\.pooler\.dense\.weight holds NaN or infinity"):
        read_initial_weights(tmp_path / "export")


def test_the_checkpoint_of_a_run_is_its_best_or_its_newest(tmp_path):
    (tmp_path / "settings.json").write_text(FINETUNED)
    with pytest.raises(UserError, match="holds no complete checkpoint"):
        exported_checkpoint(tmp_path)
    for step, score, chosen in ((1, None, 1), (2, None, 2), (3, 0.9, 3), (4, 0.5, 3)):
        make(tmp_path / "checkpoints", step, score)
        assert exported_checkpoint(tmp_path).name == tag_name(chosen)


@pytest.mark.parametrize("read", [exported_checkpoint, lambda run: load_weights(run / "checkpoints")])
def test_a_damaged_checkpoint_is_passed_over_with_a_note(read, tmp_path, capsys):
    write(tmp_path, pretrain_settings())
    _, newest = (make(tmp_path / "checkpoints", step) for step in (1, 2))
    read(tmp_path)
    assert capsys.readouterr().err == ""
    flip(newest / "rank-00000.safetensors", -1)
    read(tmp_path)
    fault = "the content of rank-00000.safetensors has changed"
    assert capsys.readouterr().err == f"note: {newest} is damaged ({fault}), so an older checkpoint is read\n"
    assert exported_checkpoint(tmp_path).name == tag_name(1)
