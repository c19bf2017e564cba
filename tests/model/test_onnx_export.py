"""ONNX graphs give what the models give, at 1e-4, for every batch and length, without a warning."""

import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from model import AlbertConfig, AlbertForPreTraining
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


def make(kind, *arguments, **fields):
    torch.manual_seed(0)
    return kind(config(**fields), *arguments).eval()


def of_pretraining(model, inputs):
    found, encoded = model(**inputs), model.albert(**inputs)
    expected = {"prediction_logits": found.mlm_logits, "last_hidden_state": encoded.last_hidden_state}
    if found.sentence_logits is not None:
        expected |= {"sop_logits": found.sentence_logits, "pooler_output": encoded.pooled_output}
    return expected


def of_choices(model, inputs):
    rows = [{name: tensor[row] for name, tensor in inputs.items()} for row in range(len(inputs["input_ids"]))]
    return {"logits": torch.cat([model(**row).logits for row in rows])}


def of_spans(model, inputs):
    found = model(**inputs)
    return {"start_logits": found.start_logits, "end_logits": found.end_logits}


# tests/pipeline/sharing/test_onnx.py exports the head of a classification.
CASES = {
    "pre-training": (lambda: make(AlbertForPreTraining, num_hidden_layers=3), of_pretraining, SHAPES),
    "tokens": (
        lambda: make(AlbertForTokenClassification, 5),
        lambda model, inputs: {"logits": model(**inputs).logits.view(*inputs["input_ids"].shape, 5)},
        SHAPES,
    ),
    "choices": (lambda: make(AlbertForMultipleChoice), of_choices, ((1, 2, 7), (3, 4, 11), (2, 1, 48))),
    "spans": (lambda: make(AlbertForQuestionAnswering), of_spans, SHAPES),
}


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_the_graph_gives_what_the_model_gives(case, tmp_path, capfd):
    build, outputs_of, shapes = CASES[case]
    model = build()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_onnx(model, tmp_path / "model.onnx")
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    axes = ["batch", "choices", "length"] if case == "choices" else ["batch", "length"]
    assert {entry.name: (entry.type, entry.shape) for entry in session.get_inputs()} == dict.fromkeys(
        INPUTS, ("tensor(int64)", axes)
    )
    names = [output.name for output in session.get_outputs()]
    assert tuple(names) == output_names(model)
    for shape in shapes:
        inputs = inputs_of(shape)
        expected = outputs_of(model, inputs)
        found = dict(zip(names, session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})))
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value.numpy(), atol=TOLERANCE, rtol=0, err_msg=name)


def test_what_has_no_graph_and_what_is_missing(monkeypatch):
    assert output_names(make(AlbertForPreTraining, sentence_head=None)) == ("prediction_logits", "last_hidden_state")
    assert output_names(make(AlbertForSequenceClassification, 3)) == ("logits",)
    with pytest.raises(ValueError, match="has no ONNX form; export it without --onnx"):
        output_names(make(AlbertForConditionedQuestionAnswering))
    assert missing_packages() == []
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert missing_packages() == ["onnxscript"]
