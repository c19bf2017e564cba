"""Initial weights: which tensors are copied, and the message for a directory without a model."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from common.errors import UserError
from model import AlbertConfig
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.initial_weights import InitialWeights, exported_checkpoint, fill_weights, read_initial_weights
from pipeline.checkpoint.retention import tag_name
from pipeline.settings.run_settings import as_json
from pipeline.settings.settings_file import FORMAT
from pipeline.tasks.own_tasks import Head
from pipeline.tasks.registry import TASKS
from tests.pipeline.checkpoint.test_files import flip, make
from tests.pipeline.pretraining.trained_models import export
from tests.pipeline.records import finetune_settings, pretrain_settings, write

CONFIG = AlbertConfig.preset(
    "albert-tiny", num_hidden_layers=1, hidden_size=16, num_attention_heads=2, intermediate_size=16, embedding_size=8,
    vocab_size=50, max_position_embeddings=16,
)  # fmt: skip
HEAD = ["classifier.weight", "classifier.bias"]


def make_model(task):
    return TASKS[task].kind.make_model(TASKS[task], CONFIG)


def same(trained_on, task):
    return lambda name: trained_on == task


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
    initial = InitialWeights(CONFIG, source.state_dict(), corpus.vocabulary, vocabulary, Head(called))
    assert fill_weights(model, initial, same(called, task)) == new
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name] if name in new else source.state_dict()[name]), name


def test_an_encoder_of_another_kind_is_refused_and_a_pooler_may_be_missing(corpus, vocabulary):
    tensors = make_model("rte").state_dict()
    lost = "albert.embeddings.layer_norm.weight"
    poolers = [name for name in tensors if ".pooler." in name]

    def fill(changed):
        initial = InitialWeights(CONFIG, changed, corpus.vocabulary, vocabulary, Head("rte"))
        return fill_weights(make_model("rte"), initial, same("rte", "rte"))

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
    export(tmp_path / "export", corpus.vocabulary, num_hidden_layers=1, hidden_size=16, num_attention_heads=2)
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
