"""ONNX graphs give what the models give, at 1e-4, for every batch and length, without a warning."""

import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from model import AlbertConfig, AlbertForPreTraining, AlbertModel
from model.classification import (
    AlbertForMultipleChoice,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from model.onnx_export import INPUTS, missing_packages, output_names, save_onnx
from model.spans import AlbertForConditionedQuestionAnswering, AlbertForQuestionAnswering

pytestmark = pytest.mark.slow

TOLERANCE = 1e-4
SHAPES = ((1, 1), (1, 48), (3, 5), (2, 17))  # the model has 48 positions


def config(**fields):
    given = {"vocab_size": 60, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    given |= {"num_hidden_layers": 1} | fields
    return AlbertConfig.preset(
        "albert-tiny", **given, embedding_size=8, max_position_embeddings=48, initializer_range=0.3
    )


def inputs_of(shape, seed=0):
    """Random ids with padding at the end of the last row, and two segments."""
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 60, shape, generator=rng)  # (..., S)
    length = shape[-1]
    mask = torch.ones_like(ids)  # (..., S)
    mask[-1, ..., max(1, length - 3) :] = 0
    segments = (torch.arange(length) >= length // 2).long().expand(shape).clone()  # (..., S)
    return dict(zip(INPUTS, (ids, mask, segments)))


def exported(model, path, capfd):
    """An inference session of the model's graph; its export is silent."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_onnx(model, path)
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    onnx.checker.check_model(str(path), full_check=True)
    return onnxruntime.InferenceSession(str(path))


def check(session, expected, inputs):
    names = [output.name for output in session.get_outputs()]
    found = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    assert names == list(expected)
    for name, value in zip(names, found):
        np.testing.assert_allclose(value, expected[name].numpy(), atol=TOLERANCE, rtol=0, err_msg=name)


def make(kind, *arguments, **fields):
    torch.manual_seed(0)
    return kind(config(**fields), *arguments).eval()


@torch.no_grad()
def test_the_pre_training_model_and_its_encoder(tmp_path, capfd):
    model = make(AlbertForPreTraining, num_hidden_layers=3)
    session = exported(model, tmp_path / "model.onnx", capfd)
    assert {entry.name: (entry.type, entry.shape) for entry in session.get_inputs()} == dict.fromkeys(
        INPUTS, ("tensor(int64)", ["batch", "length"])
    )
    for shape in SHAPES:
        inputs = inputs_of(shape)
        found, encoded = model(**inputs), model.albert(**inputs)
        assert isinstance(model.albert, AlbertModel)
        expected = {
            "prediction_logits": found.mlm_logits,
            "sop_logits": found.sentence_logits,
            "pooler_output": encoded.pooled_output,
            "last_hidden_state": encoded.last_hidden_state,
        }
        check(session, expected, inputs)


@torch.no_grad()
def test_a_model_without_a_sentence_head(tmp_path, capfd):
    model = make(AlbertForPreTraining, sentence_head=None)
    session = exported(model, tmp_path / "model.onnx", capfd)
    inputs = inputs_of((2, 9))
    expected = {"prediction_logits": model(**inputs).mlm_logits}
    check(session, expected | {"last_hidden_state": model.albert(**inputs).last_hidden_state}, inputs)


@torch.no_grad()
def test_classification(tmp_path, capfd):
    model = make(AlbertForSequenceClassification, 3)
    session = exported(model, tmp_path / "model.onnx", capfd)
    for shape in SHAPES:
        inputs = inputs_of(shape)
        check(session, {"logits": model(**inputs).logits}, inputs)


@torch.no_grad()
def test_token_classification(tmp_path, capfd):
    model = make(AlbertForTokenClassification, 5)
    session = exported(model, tmp_path / "model.onnx", capfd)
    for shape in SHAPES:
        inputs = inputs_of(shape)
        check(session, {"logits": model(**inputs).logits.view(*shape, 5)}, inputs)


@torch.no_grad()
def test_multiple_choice(tmp_path, capfd):
    model = make(AlbertForMultipleChoice)
    session = exported(model, tmp_path / "model.onnx", capfd)
    assert session.get_inputs()[0].shape == ["batch", "choices", "length"]
    for shape in ((1, 2, 7), (3, 4, 11), (2, 1, 48)):
        inputs = inputs_of(shape)
        rows = [model(**{name: tensor[row] for name, tensor in inputs.items()}).logits for row in range(shape[0])]
        check(session, {"logits": torch.cat(rows)}, inputs)


@torch.no_grad()
def test_question_answering(tmp_path, capfd):
    model = make(AlbertForQuestionAnswering)
    session = exported(model, tmp_path / "model.onnx", capfd)
    for shape in SHAPES:
        inputs = inputs_of(shape)
        found = model(**inputs)
        check(session, {"start_logits": found.start_logits, "end_logits": found.end_logits}, inputs)


@torch.no_grad()
def test_question_answering_with_a_verdict(tmp_path, capfd):
    model = make(AlbertForConditionedQuestionAnswering)
    session = exported(model, tmp_path / "model.onnx", capfd)
    for shape in ((1, 48), (3, 20), (2, 17)):  # each passage has at least the five starts of the beam
        inputs = inputs_of(shape)
        allowed = torch.zeros(shape)  # (B, S)
        for row, (length, segments) in enumerate(zip(inputs["attention_mask"].sum(1), inputs["token_type_ids"])):
            allowed[row, segments.argmax() : length - 1] = 1
        allowed[:, 0] = 1
        found = model(**inputs, allowed=allowed)
        expected = {name: getattr(found, name) for name in output_names(model)}
        check(session, expected, inputs)


def test_what_has_no_graph_and_what_is_missing(monkeypatch):
    with pytest.raises(ValueError, match="has no ONNX form; export it without --onnx"):
        output_names(torch.nn.Linear(1, 1))
    assert missing_packages() == []
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert missing_packages() == ["onnxscript"]
