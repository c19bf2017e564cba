"""To and from the format of `transformers`: config.json, model.safetensors and the tokenizer's files.

This project's `AlbertForPreTraining` is `transformers.AlbertForPreTraining`, or
`transformers.AlbertForMaskedLM` where it has no sentence head. The differences: query, key and value have a
module of their own here; the projection after the embeddings is only there where E != H (`save` writes an
identity otherwise, and `load` drops it again); and the output matrix of the masked-token head, which is the
word embeddings, has no second name.
"""

import pickle
import re
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.albert import AlbertForPreTraining, AlbertModel, initialise
from model.checkpoint import ModelWithConfig, check_tensors, empty_model
from model.config import AlbertConfig, Implementation
from model.files import read_json, read_tensors, write_json, write_tensors
from model.heads import SentenceHead
from model.tokenizer import read_vocabulary, tokenizer_config, tokenizer_json

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
PICKLED_WEIGHTS_FILE = "pytorch_model.bin"
VOCABULARY_FILE = "spiece.model"

_SHARED_FIELDS = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "num_hidden_groups",
    "inner_group_num",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
)
# Fields that only this project knows: written for `load`, carried along unused by `transformers`.
_OWN_FIELDS = ("parameter_sharing", "sentence_head")

# What transformers.AlbertConfig takes for a field that config.json leaves out, where ours differs.
_TRANSFORMERS_DEFAULTS: dict[str, Any] = {
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}

_PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
_WORD_EMBEDDINGS = "albert.embeddings.word_embeddings.weight"

# How a tensor's name begins here and in `transformers`; a name that is not listed is the same in both.
_PREFIXES = {
    "albert.embeddings.layer_norm.": "albert.embeddings.LayerNorm.",
    "albert.embeddings.projection.": f"{_PROJECTION}.",
    "albert.pooler.dense.": "albert.pooler.",
    "mlm_head.layer_norm.": "predictions.LayerNorm.",
    "mlm_head.": "predictions.",
    "sentence_head.": "sop_classifier.",
}
_BLOCK_PREFIXES = {
    "attention.query_key_value.query_": "attention.query.",
    "attention.query_key_value.key_": "attention.key.",
    "attention.query_key_value.value_": "attention.value.",
    "attention.dense.": "attention.dense.",
    "attention.layer_norm.": "attention.LayerNorm.",
    "feed_forward.intermediate.": "ffn.",
    "feed_forward.output.": "ffn_output.",
    "feed_forward.layer_norm.": "full_layer_layer_norm.",
}
_BLOCK_NAME = re.compile(r"albert\.encoder\.(attention|feed_forward)\.(\d+)\.(.*)")


def save(
    model: ModelWithConfig,
    directory: Path,
    tokenizer_model: Path | None = None,
    fields: Mapping[str, Any] | None = None,
) -> None:
    """Writes `model`, in the dtype that it has, so that `transformers` opens `directory`.

    Given `tokenizer_model`, the SentencePiece file of the training, also writes that file and a tokenizer
    that gives the same ids. config.json comes last: a directory without it is not complete.

    A model with another head than those of pre-training names it in `fields`, which replace those of config.json:
    "architectures", "id2label" and the like.

    Raises ValueError, before anything is written, where `transformers` cannot express what the layers share,
    and where the vocabulary is of another size than the model.
    """
    directory = Path(directory)
    fields = to_config(model.config) | dict(fields or {})
    tensors = to_tensors(model.config, model.state_dict())
    tokenizer_files = {}
    if tokenizer_model is not None:
        pieces = len(read_vocabulary(tokenizer_model))
        if pieces != model.config.vocab_size:
            raise ValueError(
                f"{tokenizer_model} has {pieces} pieces, but the model's vocab_size is "
                f"{model.config.vocab_size}; give the vocabulary that the model was trained with"
            )
        tokenizer_files = {
            "tokenizer.json": tokenizer_json(tokenizer_model),
            "tokenizer_config.json": tokenizer_config(model.config.max_position_embeddings),
        }
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / WEIGHTS_FILE, tensors)
    if tokenizer_model is not None:
        shutil.copyfile(tokenizer_model, directory / VOCABULARY_FILE)
    for name, of_tokenizer in tokenizer_files.items():
        write_json(directory / name, of_tokenizer)
    dtype = str(tensors[_WORD_EMBEDDINGS].dtype).removeprefix("torch.")
    write_json(directory / CONFIG_FILE, fields | {"dtype": dtype})


def load(directory: Path, implementation: Implementation | None = None) -> AlbertForPreTraining:
    """The model in `directory`, in fp32: one that `save` wrote, or one published for `transformers`
    (albert-base-v2 and the like).

    Reads model.safetensors or, where there is none, the tensors of pytorch_model.bin (nothing in it is
    executed). A checkpoint with a pooler but no sentence head, as some published ones are, gets a newly
    initialised head and a warning.

    Raises ValueError for a missing file, and for tensors that are missing, left over, or not of the shape
    that config.json says.
    """
    directory = Path(directory)
    fields = read_json(directory / CONFIG_FILE)
    tensors = {name: tensor.float() for name, tensor in _read_weights(directory).items()}
    _drop_duplicates(directory, tensors)
    config = from_config(fields, tensors)
    if config.sentence_head is not None and "sop_classifier.classifier.weight" not in tensors:
        warnings.warn(f"{directory} holds no sentence head; it is newly initialised", stacklevel=2)
        head = SentenceHead(config)
        initialise(head, config.initializer_range)
        tensors |= {f"sop_classifier.{name}": tensor for name, tensor in head.state_dict().items()}
    model = empty_model(config, implementation)
    names = {own: transformers_name(own, config.inner_group_num) for own in model.state_dict()}
    if not config.has_embedding_projection:
        del tensors[f"{_PROJECTION}.weight"], tensors[f"{_PROJECTION}.bias"]
    check_tensors(directory, {names[own]: tensor for own, tensor in model.state_dict().items()}, tensors)
    model.load_state_dict({own: tensors[name] for own, name in names.items()}, assign=True)
    return model


def read(directory: Path) -> tuple[AlbertConfig, dict[str, Tensor], dict[str, Any]]:
    """The configuration, the tensors and config.json of `directory`, whatever head the model there has.

    The tensors are in fp32; those of the encoder have the names of `AlbertModel` behind "albert.", the others those
    of `transformers`. Raises ValueError as `load` does, but for tensors that are left over.
    """
    directory = Path(directory)
    fields = read_json(directory / CONFIG_FILE)
    tensors = {name: tensor.float() for name, tensor in _read_weights(directory).items()}
    if "predictions.bias" in tensors:
        _drop_duplicates(directory, tensors)
    config = from_config(fields, tensors)
    with torch.device("meta"):
        encoder = AlbertModel(config, add_pooling_layer="albert.pooler.weight" in tensors)
    found = {}
    for name, expected in encoder.state_dict().items():
        own = f"albert.{name}"
        theirs = transformers_name(own, config.inner_group_num)
        if theirs not in tensors:
            raise ValueError(f"{directory} lacks the tensor {theirs}; it is another kind of model")
        found[own] = tensors.pop(theirs)
        if found[own].shape != expected.shape:
            raise ValueError(
                f"{directory}: {theirs} has the shape {tuple(found[own].shape)}, but its configuration says "
                f"{tuple(expected.shape)}; the two do not belong together"
            )
    return config, found | tensors, fields


def to_config(config: AlbertConfig) -> dict[str, Any]:
    """The contents of config.json, without the dtype. Raises ValueError where `transformers` cannot express
    the sharing."""
    if config.num_attention_blocks != config.num_ffn_blocks:
        raise ValueError(
            f"transformers has no model whose layers share {config.parameter_sharing!r} only; "
            "save it in the project's own format (model.checkpoint.save)"
        )
    fields = {name: getattr(config, name) for name in (*_SHARED_FIELDS, *_OWN_FIELDS)}
    return fields | {
        "model_type": "albert",
        "architectures": ["AlbertForMaskedLM" if config.sentence_head is None else "AlbertForPreTraining"],
        "num_hidden_groups": config.num_attention_blocks // config.inner_group_num,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
    }


def from_config(fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> AlbertConfig:
    """The configuration that config.json and the tensors beside it (under their names in `transformers`)
    describe.

    Raises ValueError for another architecture and for values that this project cannot express.
    """
    if fields.get("model_type") != "albert":
        raise ValueError(f"config.json has the model_type {fields.get('model_type')!r}; only 'albert' can be read")
    known = _TRANSFORMERS_DEFAULTS | {name: fields[name] for name in (*_SHARED_FIELDS, *_OWN_FIELDS) if name in fields}
    if known.get("parameter_sharing") == "none":
        known["num_hidden_groups"] = 1
    if "albert.pooler.weight" not in tensors:
        known["sentence_head"] = None
    config = AlbertConfig.from_dict(known)
    if config.embedding_size == config.hidden_size and not _is_identity(tensors):
        config = AlbertConfig.from_dict(known | {"embedding_projection": True})
    return config


def to_tensors(config: AlbertConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of `AlbertForPreTraining.state_dict()` under their names in `transformers`.

    Raises ValueError where `transformers` cannot express the sharing.
    """
    to_config(config)
    tensors = {transformers_name(own, config.inner_group_num): tensor for own, tensor in state.items()}
    if not config.has_embedding_projection:
        like = state[_WORD_EMBEDDINGS]
        tensors[f"{_PROJECTION}.weight"] = torch.eye(config.hidden_size, dtype=like.dtype, device=like.device)
        tensors[f"{_PROJECTION}.bias"] = torch.zeros(config.hidden_size, dtype=like.dtype, device=like.device)
    return tensors


def transformers_name(own: str, inner_group_num: int) -> str:
    """The name in `transformers` of the tensor that `AlbertForPreTraining.state_dict()` calls `own`."""
    block = _BLOCK_NAME.fullmatch(own)
    if block is None:
        return _with_prefix_replaced(own, _PREFIXES)
    group, inner = divmod(int(block[2]), inner_group_num)
    name = _with_prefix_replaced(f"{block[1]}.{block[3]}", _BLOCK_PREFIXES)
    return f"albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}.{name}"


def _with_prefix_replaced(name: str, prefixes: Mapping[str, str]) -> str:
    for prefix, replacement in prefixes.items():
        if name.startswith(prefix):
            return replacement + name.removeprefix(prefix)
    return name


def _read_weights(directory: Path) -> dict[str, Tensor]:
    safe, pickled = directory / WEIGHTS_FILE, directory / PICKLED_WEIGHTS_FILE
    if safe.exists() or not pickled.exists():
        return read_tensors(safe)
    message = f"{pickled} cannot be read as tensors alone; convert it to {WEIGHTS_FILE}"
    try:
        tensors = torch.load(pickled, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        raise ValueError(message) from error
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise ValueError(message)
    return tensors


def _drop_duplicates(directory: Path, tensors: dict[str, Tensor]) -> None:
    """Removes what older versions of `transformers` also stored: the second names of tied tensors, and
    constants."""
    tensors.pop("albert.embeddings.position_ids", None)
    for duplicate, name in (
        ("predictions.decoder.weight", _WORD_EMBEDDINGS),
        ("predictions.decoder.bias", "predictions.bias"),
    ):
        second = tensors.pop(duplicate, None)
        if second is not None and not torch.equal(tensors.setdefault(name, second), second):
            raise ValueError(f"{directory}: {duplicate} differs from {name}; only tied weights can be expressed here")


def _is_identity(tensors: Mapping[str, Tensor]) -> bool:
    weight, bias = tensors.get(f"{_PROJECTION}.weight"), tensors.get(f"{_PROJECTION}.bias")
    if weight is None or bias is None:
        return False
    return torch.equal(weight, torch.eye(len(weight))) and not bias.any()
