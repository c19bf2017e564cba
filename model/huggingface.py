"""Saves and loads models in the format of `transformers`: config.json, model.safetensors and the tokenizer's files.

This project's `AlbertForPreTraining` becomes `transformers.AlbertForPreTraining`, or
`transformers.AlbertForMaskedLM` if it has no sentence head. A model that is BERT becomes `BertForPreTraining` or
`BertForMaskedLM` (`model.bert`). The differences between the two models of ALBERT:

- Query, key and value are the parameters of one module here.
- There is a projection after the embeddings only if E != H. Otherwise `save` writes an identity, and `load` drops it.
- The output matrix of the masked-token head is the word embeddings. It has no second name here.
- Layers of `transformers` share attention and feed-forward network together. If only one of the two is shared, `save`
  writes every layer in full, and `load` shares again what is still equal.
"""

import dataclasses
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model import bert, checkpoint
from model.albert import AlbertModel, ModelWithHead
from model.bert import TensorNames
from model.config import INITIAL_FIELDS, AlbertConfig
from model.initialisation import apply_to_sentence_head, initialise
from model.layers.encoder import block_indices
from model.layers.heads import SentenceHead
from model.pretraining import AlbertForPreTraining

CONFIG_FILE = "config.json"
SHARED_GROUPS = "shared_groups"  # the field with the groups of a model whose layers share one part alone
WEIGHTS_FILE = "model.safetensors"
PICKLED_WEIGHTS_FILE = "pytorch_model.bin"

# Fields that only this project knows. They are written for `load`; `transformers` keeps but does not use them.
_OWN_FIELDS = ("parameter_sharing", "sentence_head", *INITIAL_FIELDS)
# Fields of `transformers.AlbertConfig`, in the order in which config.json lists them. The tensors tell whether there is
# an embedding projection.
_SHARED_FIELDS = tuple(
    field.name for field in dataclasses.fields(AlbertConfig) if field.name not in (*_OWN_FIELDS, "embedding_projection")
)

# Defaults of transformers.AlbertConfig for fields that config.json leaves out, where ours differ.
_TRANSFORMERS_DEFAULTS: dict[str, Any] = {
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}

_PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
_WORD_EMBEDDINGS = "albert.embeddings.word_embeddings.weight"
NAMES = TensorNames(
    {
        "albert.embeddings.layer_norm.": "albert.embeddings.LayerNorm.",
        "albert.embeddings.projection.": f"{_PROJECTION}.",
        "albert.pooler.dense.": "albert.pooler.",
        "mlm_head.layer_norm.": "predictions.LayerNorm.",
        "mlm_head.": "predictions.",
        "sentence_head.": "sop_classifier.",
    },
    "albert.encoder.albert_layer_groups.{}.albert_layers.0.",
    {
        "attention.query_key_value.query_": "attention.query.",
        "attention.query_key_value.key_": "attention.key.",
        "attention.query_key_value.value_": "attention.value.",
        "attention.dense.": "attention.dense.",
        "attention.layer_norm.": "attention.LayerNorm.",
        "feed_forward.intermediate.": "ffn.",
        "feed_forward.output.": "ffn_output.",
        "feed_forward.layer_norm.": "full_layer_layer_norm.",
    },
    (("predictions.decoder.weight", _WORD_EMBEDDINGS), ("predictions.decoder.bias", "predictions.bias")),
)


def save(
    model: ModelWithHead,
    directory: Path,
    tokenizer_files: Mapping[str, bytes] | None = None,
    fields: Mapping[str, Any] | None = None,
) -> None:
    """Writes `model`, in its own dtype, so that `transformers` can open `directory`.

    config.json is written last and completes the directory.

    Args:
        model: any model of this package.
        directory: created if it does not exist.
        tokenizer_files: contents by name, of `data_prep.text.tokenizer_json.tokenizer_files`.
        fields: replace or extend those of config.json. A fine-tuning head is named here: "architectures", "id2label".
            The class of ALBERT is replaced by that of BERT if the model is BERT.

    Raises:
        ValueError: the vocabulary has another size than the model. Nothing is written then.
    """
    directory = Path(directory)
    config, state = model.config, model.state_dict()
    if bert.can_express(config):
        fields = bert.to_config(config) | dict(fields or {})
        fields["architectures"] = [name.replace("Albert", "Bert") for name in fields["architectures"]]
        tensors = {bert.NAMES.of(own): tensor for own, tensor in state.items()}
    else:
        fields = to_config(config) | dict(fields or {})
        tensors = {NAMES.of(own): tensor for own, tensor in _layers_in_full(config, state).items()}
        if not config.has_embedding_projection:
            identity = torch.eye(config.hidden_size).to(state[_WORD_EMBEDDINGS])  # (H, H)
            tensors |= {f"{_PROJECTION}.weight": identity, f"{_PROJECTION}.bias": torch.zeros_like(identity[0])}
    if tokenizer_files:
        pieces = json.loads(tokenizer_files["tokenizer.json"])["model"]["vocab"]  # ids by piece, or a list
        if len(pieces) != config.vocab_size:
            raise ValueError(
                f"the vocabulary has {len(pieces)} pieces, but the model's vocab_size is {config.vocab_size}; give the "
                "one that the model was trained with"
            )
        fields["pad_token_id"] = pieces["[PAD]"] if isinstance(pieces, dict) else 0
    directory.mkdir(parents=True, exist_ok=True)
    checkpoint.write_tensors(directory / WEIGHTS_FILE, tensors)
    for name, content in (tokenizer_files or {}).items():
        (directory / name).write_bytes(content)
    dtype = str(next(iter(state.values())).dtype).removeprefix("torch.")
    checkpoint.write_json(directory / CONFIG_FILE, fields | {"dtype": dtype})


def load(directory: Path) -> AlbertForPreTraining:
    """Returns the pre-training model in `directory`, in fp32 on the CPU.

    `save` wrote the directory, or it was published for `transformers` (such as albert-base-v2). The tensors come from
    model.safetensors, or else from pytorch_model.bin; no code in that file is executed. Some published checkpoints have
    a pooler but no sentence head. They get a newly initialised head, with a warning. Raises ValueError: a file or
    tensor is missing, a tensor is unexpected, or a shape differs from that in config.json.
    """
    config, tensors, _ = read(directory)
    if config.sentence_head is not None and "sentence_head.classifier.weight" not in tensors:
        warnings.warn(f"{directory} holds no sentence head; it is newly initialised", stacklevel=2)
        head = SentenceHead(config)
        initialise(head, config.initializer_range)
        apply_to_sentence_head(head.classifier, config)
        tensors |= {f"sentence_head.{name}": tensor for name, tensor in head.state_dict().items()}
    return checkpoint.filled_model(directory, config, tensors)


def read(directory: Path) -> tuple[AlbertConfig, dict[str, Tensor], dict[str, Any]]:
    """Returns the configuration, the tensors (fp32, on the CPU) and config.json of a model with any head.

    The tensors of `AlbertForPreTraining` have the names that its state dict gives them. Those of other heads have the
    names of `transformers`. The heads may be missing, the tensors of the encoder may not. Raises ValueError: as `load`,
    except that missing heads and unexpected tensors are no error.
    """
    directory = Path(directory)
    fields = checkpoint.read_json(directory / CONFIG_FILE)
    kind = fields.get("model_type")
    if kind not in ("albert", "bert"):
        raise ValueError(f"config.json has the model_type {kind!r:.40}; only 'albert' and 'bert' can be read")
    tensors = {name: tensor.float() for name, tensor in _read_weights(directory).items()}
    if "embeddings.word_embeddings.weight" in tensors:  # saved from the encoder alone, which has no prefix
        tensors = {f"{kind}.{name}": tensor for name, tensor in tensors.items()}
    tensors.pop(f"{kind}.embeddings.position_ids", None)  # a constant, which older versions stored
    if kind == "bert":
        tensors, names = bert.canonical(tensors), bert.NAMES
    else:
        names = NAMES
    _drop_duplicates(directory, tensors, names.duplicates)
    config = (bert.from_config if kind == "bert" else from_config)(fields, tensors)
    if kind == "albert" and not config.has_embedding_projection:
        del tensors[f"{_PROJECTION}.weight"], tensors[f"{_PROJECTION}.bias"]
    with torch.device("meta"):
        encoder = AlbertModel(config, add_pooling_layer=names.of("albert.pooler.dense.weight") in tensors)
    expected = {f"albert.{own}": tensor for own, tensor in encoder.state_dict().items()}
    heads = (own for own in checkpoint.empty_model(config).state_dict() if own not in expected)
    own_tensors = {own: tensors.pop(names.of(own)) for own in (*expected, *heads) if names.of(own) in tensors}
    checkpoint.check_tensors(directory, expected, {own: own_tensors[own] for own in expected if own in own_tensors})
    if config.parameter_sharing in ("attention", "ffn") and SHARED_GROUPS in fields:
        config, own_tensors = _share_again(config, fields[SHARED_GROUPS], own_tensors)
    return config, own_tensors | tensors, fields


def to_config(config: AlbertConfig) -> dict[str, Any]:
    """Returns the contents of config.json, without the dtype."""
    fields = {name: getattr(config, name) for name in (*_SHARED_FIELDS, *_OWN_FIELDS)}
    fields |= {
        "model_type": "albert",
        "architectures": ["AlbertForMaskedLM" if config.sentence_head is None else "AlbertForPreTraining"],
        "num_hidden_groups": max(config.num_attention_blocks, config.num_ffn_blocks),
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
    }
    return fields | ({SHARED_GROUPS: config.num_hidden_groups} if _shares_one_part(config) else {})


def from_config(fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> AlbertConfig:
    """Returns the configuration that the fields of config.json and the tensors (`transformers`' names) describe.

    Raises ValueError: values that this project cannot express.
    """
    names = (*_SHARED_FIELDS, *_OWN_FIELDS, "inner_group_num")
    known = _TRANSFORMERS_DEFAULTS | {name: fields[name] for name in names if name in fields}
    if known.get("parameter_sharing") == "none":
        known["num_hidden_groups"] = 1
    if "albert.pooler.weight" not in tensors:
        known["sentence_head"] = None
    config = AlbertConfig.from_dict(known)
    if config.embedding_size == config.hidden_size and not _is_identity(tensors):
        config = AlbertConfig.from_dict(known | {"embedding_projection": True})
    return config


def _shares_one_part(config: AlbertConfig) -> bool:
    """Whether layers share the attention alone, or the feed-forward network alone."""
    return config.num_attention_blocks != config.num_ffn_blocks


def _block_of_layer(config: AlbertConfig) -> dict[str, str]:
    """The prefixes of the tensors of each layer, if layers share nothing, and those of the blocks that they use."""
    return {
        f"albert.encoder.{part}.{layer}.": f"albert.encoder.{part}.{block}."
        for layer, blocks in enumerate(block_indices(config))
        for part, block in zip(("attention", "feed_forward"), blocks)
    }


def _layers_in_full(config: AlbertConfig, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with a copy of its own for each layer, if the layers share one part alone."""
    if not _shares_one_part(config):
        return state
    full = {own: tensor for own, tensor in state.items() if not own.startswith("albert.encoder.")}
    for layer, block in _block_of_layer(config).items():
        used = [own for own in state if own.startswith(block)]
        # safetensors refuses tensors that share memory.
        full |= {layer + own.removeprefix(block): state[own].clone() for own in used}
    return full


def _share_again(
    config: AlbertConfig, groups: Any, tensors: dict[str, Tensor]
) -> tuple[AlbertConfig, dict[str, Tensor]]:
    """Inverts `_layers_in_full`. If layers differ, because another program has trained them, they stay as they are."""
    config_of_groups = dataclasses.replace(config, num_hidden_groups=groups)
    blocks, shared = _block_of_layer(config_of_groups), dict[str, Tensor]()
    for own, tensor in tensors.items():
        layer = ".".join(own.split(".")[:4]) + "."
        name = blocks[layer] + own.removeprefix(layer) if layer in blocks else own
        if name in shared and not torch.equal(shared[name], tensor):
            return config, tensors
        shared[name] = tensor
    return config_of_groups, shared


def _read_weights(directory: Path) -> dict[str, Tensor]:
    safe, pickled = directory / WEIGHTS_FILE, directory / PICKLED_WEIGHTS_FILE
    if safe.exists() or not pickled.exists():
        return checkpoint.read_tensors(safe)
    message = f"{pickled} cannot be read as tensors alone; convert it to {WEIGHTS_FILE}"
    if not pickled.is_file():
        raise ValueError(message)
    try:
        tensors = torch.load(pickled, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes raise any of Python's errors
        raise ValueError(message) from error
    if not isinstance(tensors, dict) or not all(
        isinstance(tensor, Tensor) and not tensor.is_meta for tensor in tensors.values()
    ):
        raise ValueError(message)
    return tensors


def _drop_duplicates(directory: Path, tensors: dict[str, Tensor], duplicates: Sequence[tuple[str, str]]) -> None:
    """Removes the second names of tied tensors, which older versions of `transformers` also stored.

    Raises ValueError if a second name holds another tensor.
    """
    for duplicate, name in duplicates:
        second = tensors.pop(duplicate, None)
        if second is not None and not torch.equal(tensors.setdefault(name, second), second):
            raise ValueError(f"{directory}: {duplicate} differs from {name}; only tied weights can be expressed here")


def _is_identity(tensors: Mapping[str, Tensor]) -> bool:
    weight, bias = tensors.get(f"{_PROJECTION}.weight"), tensors.get(f"{_PROJECTION}.bias")
    if weight is None or bias is None:
        return False
    return torch.equal(weight, torch.eye(len(weight))) and not bias.any()
