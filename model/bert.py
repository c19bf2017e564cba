"""BERT in the format of `transformers`: its configuration as an `AlbertConfig`, and the names of its tensors.

BERT is the model of `AlbertConfig` with parameter_sharing "none", E = H and the next-sentence head ("nsp"), as in the
presets bert-base and bert-large. Only the names differ. `model.huggingface` reads and writes the files.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from model.config import INITIAL_FIELDS, AlbertConfig

_BLOCK_NAME = re.compile(r"albert\.encoder\.(attention|feed_forward)\.(\d+)\.(.*)")


class TensorNames(NamedTuple):
    """The names of the tensors of one kind of model in `transformers`."""

    prefixes: Mapping[str, str]  # prefix of a tensor's name here: its prefix there. Other names are equal in both.
    block: str  # what precedes the name of a tensor of a block; the number of the block stands for {}
    block_prefixes: Mapping[str, str]  # as `prefixes`, for the names inside a block
    duplicates: Sequence[tuple[str, str]]  # second names of tied tensors, each with the first name

    def of(self, own: str) -> str:
        """Returns the name in `transformers` of the tensor that a state dict of this package calls `own`."""
        start, name, prefixes = "", own, self.prefixes
        if (block := _BLOCK_NAME.fullmatch(own)) is not None:
            start, name, prefixes = self.block.format(block[2]), f"{block[1]}.{block[3]}", self.block_prefixes
        for prefix, replacement in prefixes.items():
            if name.startswith(prefix):
                return start + replacement + name.removeprefix(prefix)
        return start + name


# The fields of `transformers.BertConfig` that decide the result, with their defaults there.
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}

NAMES = TensorNames(
    {
        "albert.embeddings.layer_norm.": "bert.embeddings.LayerNorm.",
        "albert.embeddings.": "bert.embeddings.",
        "albert.pooler.": "bert.pooler.",
        "mlm_head.dense.": "cls.predictions.transform.dense.",
        "mlm_head.layer_norm.": "cls.predictions.transform.LayerNorm.",
        "mlm_head.": "cls.predictions.",
        "sentence_head.classifier.": "cls.seq_relationship.",
    },
    "bert.encoder.layer.{}.",
    {
        "attention.query_key_value.query_": "attention.self.query.",
        "attention.query_key_value.key_": "attention.self.key.",
        "attention.query_key_value.value_": "attention.self.value.",
        "attention.dense.": "attention.output.dense.",
        "attention.layer_norm.": "attention.output.LayerNorm.",
        "feed_forward.intermediate.": "intermediate.dense.",
        "feed_forward.output.": "output.dense.",
        "feed_forward.layer_norm.": "output.LayerNorm.",
    },
    (
        ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ),
)


def from_config(fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> AlbertConfig:
    """Returns the configuration that the fields of BERT's config.json and the tensors (`transformers`' names) describe.

    Raises ValueError: values that this project cannot express.
    """
    if fields.get("is_decoder") or fields.get("position_embedding_type", "absolute") != "absolute":
        raise ValueError("config.json describes a decoder or relative positions; only BERT's encoder can be read")
    known = _DEFAULTS | {name: fields[name] for name in _DEFAULTS if name in fields}
    dropout = fields.get("classifier_dropout")
    return AlbertConfig.from_dict(
        known
        | {
            "embedding_size": known["hidden_size"],
            "parameter_sharing": "none",
            "sentence_head": "nsp" if "bert.pooler.dense.weight" in tensors else None,
            "classifier_dropout_prob": known["hidden_dropout_prob"] if dropout is None else dropout,
        }
        | {name: fields[name] for name in INITIAL_FIELDS if name in fields}
    )


def can_express(config: AlbertConfig) -> bool:
    """Whether the model is BERT's: nothing is shared or factorised, and the sentence head, if any, is "nsp"."""
    return (
        config.parameter_sharing == "none"
        and config.embedding_size == config.hidden_size
        and not config.has_embedding_projection
        and config.sentence_head in ("nsp", None)
    )


def to_config(config: AlbertConfig) -> dict[str, Any]:
    """Returns the contents of config.json, without the dtype, of a model that `can_express` accepts."""
    return {name: getattr(config, name) for name in (*_DEFAULTS, *INITIAL_FIELDS)} | {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM" if config.sentence_head is None else "BertForPreTraining"],
        "classifier_dropout": config.classifier_dropout_prob,
        "pad_token_id": 0,
    }


def canonical(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors under today's names: the oldest files call those of a LayerNorm gamma and beta."""
    return {re.sub(r"gamma$", "weight", re.sub(r"beta$", "bias", name)): tensor for name, tensor in tensors.items()}
