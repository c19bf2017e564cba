"""Writes a model as an ONNX graph, which runs without PyTorch and without this project.

The inputs are those of `transformers`: int64 input_ids, attention_mask and token_type_ids, all (batch, length); for
multiple choice (batch, choices, length). Every axis is dynamic. The weights are fp32.

Legend of the shapes: B rows, K choices, S positions in a row, H hidden_size, V vocab_size, C classes.
"""

import importlib.util
import logging
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from common.files.atomic import replacing
from model.albert import ModelWithHead
from model.classification import AlbertForMultipleChoice, AlbertForTokenClassification
from model.pretraining import AlbertForPreTraining

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OPSET = 18
PACKAGES = ("onnx", "onnxscript")
_BATCH, _CHOICES, _LENGTH = 2, 3, 7  # of the example that is traced; no axis is fixed to it


def missing_packages() -> list[str]:
    """The packages that `save_onnx` needs and this environment lacks."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def output_names(model: ModelWithHead) -> tuple[str, ...]:
    """The names of the outputs, those of `transformers`, in order.

    Raises:
        ValueError: this kind of model has no ONNX form.
    """
    if isinstance(model, AlbertForPreTraining):
        sentence = ("sop_logits", "pooler_output") if model.sentence_head is not None else ()
        return ("prediction_logits", *sentence, "last_hidden_state")
    if not model.onnx_outputs:
        raise ValueError(f"a model of class {type(model).__name__} has no ONNX form; export it without --onnx")
    return model.onnx_outputs


class _Graph(nn.Module):
    """A model as a function from the tensors `INPUTS` to those of `output_names`."""

    def __init__(self, model: ModelWithHead) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        """Computes the outputs of int64 inputs (B, S), or (B, K, S) for multiple choice."""
        model, inputs = self.model, (input_ids, attention_mask, token_type_ids)
        if isinstance(model, AlbertForPreTraining):
            encoded = model.albert(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
            hidden, pooled = encoded.last_hidden_state, encoded.pooled_output  # (B, S, H), (B, H)
            logits = model.mlm_head(hidden, model.albert.embeddings.word_embeddings.weight)  # (B, S, V)
            sentence = () if model.sentence_head is None else (model.sentence_head(pooled), pooled)
            return logits, *sentence, hidden
        if isinstance(model, AlbertForMultipleChoice):
            rows, choices, _ = input_ids.shape
            ids, mask, segments = (tensor.flatten(0, 1) for tensor in inputs)  # (B * K, S) each
            sequences = torch.arange(rows * choices, device=ids.device).view(rows, choices)  # (B, K)
            return (model(ids, attention_mask=mask, token_type_ids=segments, sequences=sequences).logits,)  # (B, K)
        output = model(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        if isinstance(model, AlbertForTokenClassification):  # (B * S, C)
            return (output.logits.unflatten(0, input_ids.shape),)  # (B, S, C)
        return tuple(getattr(output, name) for name in model.onnx_outputs)  # logits (B, C), or two of (B, S)


def save_onnx(model: ModelWithHead, path: Path) -> None:
    """Writes `model`, which is in fp32, on the CPU and in evaluation mode, to the ONNX file `path`.

    Raises:
        ValueError: this kind of model has no ONNX form.
        ImportError: a package of `PACKAGES` is missing.
        OSError: `path` cannot be written.
    """
    names = output_names(model)
    several = isinstance(model, AlbertForMultipleChoice)
    shape = (_BATCH, _CHOICES, _LENGTH) if several else (_BATCH, _LENGTH)
    ids = torch.zeros(shape, dtype=torch.int64)  # (B, S) or (B, K, S)
    batch, choices = torch.export.Dim("batch"), torch.export.Dim("choices")
    length = torch.export.Dim("length", max=model.config.max_position_embeddings)
    axes = {0: batch, 1: choices, 2: length} if several else {0: batch, 1: length}
    # The exporter speaks of packages and names that this graph does not need.
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        program = torch.onnx.export(
            _Graph(model).eval(),
            # Three tensors: the exporter takes one tensor in two places for one input.
            (ids, torch.ones_like(ids), torch.zeros_like(ids)),
            dynamo=True,
            dynamic_shapes=dict.fromkeys(INPUTS, axes),
            input_names=INPUTS,
            output_names=names,
            opset_version=OPSET,
            external_data=False,
            verbose=False,
        )
        assert program is not None
        with replacing(path) as temporary:
            program.save(temporary)
