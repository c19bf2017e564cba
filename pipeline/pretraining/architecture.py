"""The architecture of the model that a run trains: from a preset or a trained model, the command line and the data."""

import dataclasses
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import Any

from common.command_line import truth
from common.errors import UserError
from data_prep.format.shard_manifest import ShardManifest
from model.config import AlbertConfig

_DECIDE_SHAPES = (
    *("embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("parameter_sharing", "num_hidden_groups", "type_vocab_size"),
    *("hidden_act", "layer_norm_eps", "has_embedding_projection"),
)
"""What a model must have in common with the one whose weights it starts from. Positions and heads may be new."""


_PARSERS: dict[Any, Callable[[str], Any]] = {int: int, float: float, float | None: float, bool | None: truth}


def parse_fields(pairs: Sequence[str]) -> dict[str, Any]:
    """Parses `["embedding_size=64", ...]` into typed fields of AlbertConfig."""
    types = {field.name: field.type for field in dataclasses.fields(AlbertConfig)}
    fields: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"--model-args {pair!r} is not of the form FIELD=VALUE; give e.g. embedding_size=64")
        if name not in types:
            raise UserError(f"--model-args: AlbertConfig has no field {name!r}; it has {', '.join(types)}")
        if name in fields:
            raise UserError(f"--model-args gives {name} twice; keep one")
        if name == "sentence_head":
            raise UserError("--model-args sentence_head: the objective decides it; use --objective {sop,nsp,mlm}")
        try:
            fields[name] = _PARSERS.get(types[name], str)(text)
        except (ValueError, ArgumentTypeError):
            wanted = "true or false" if types[name] == bool | None else "a number"
            raise UserError(f"--model-args {pair!r}: the value must be {wanted}") from None
    return fields


def architecture(
    name: str | None,
    fields: dict[str, Any],
    objective: str | None,
    manifest: ShardManifest,
    trained: AlbertConfig | None = None,
    source: str | None = None,
) -> AlbertConfig:
    """The architecture of the model to train.

    The data's manifest decides the size of the vocabulary. Its rows decide the positions, unless `fields` or the
    trained model has more.

    Args:
        name: of a preset; None for the architecture of `trained`.
        fields: values that replace some of it, see `parse_fields`.
        objective: "sop", "nsp" or "mlm"; None for the preset's or the trained model's.
        manifest: of the training data.
        trained: the model whose architecture it is without `name`; None if there is none.
        source: flag and directory of `trained`, such as "--init DIR", if its weights are the initial ones; else None.
    Raises:
        UserError: values do not fit together, or not to the data, or the weights of `trained` do not fit.
    """
    positions = max(manifest.max_seq_length, trained.max_position_embeddings if trained is not None else 0)
    fields = {"vocab_size": manifest.vocabulary_size, "max_position_embeddings": positions} | fields
    if fields["vocab_size"] != manifest.vocabulary_size:
        raise UserError(
            f"the model's vocab_size {fields['vocab_size']} is not the {manifest.vocabulary_size} of the data's "
            "vocabulary; leave the field out"
        )
    if fields["max_position_embeddings"] < manifest.max_seq_length:
        raise UserError(
            f"max_position_embeddings {fields['max_position_embeddings']} is less than the data's "
            f"{manifest.max_seq_length}; leave the field out, or make new shards"
        )
    if objective is not None:
        fields["sentence_head"] = None if objective == "mlm" else objective
    try:
        if name is not None:
            config = AlbertConfig.preset(name, **fields)
        else:
            assert trained is not None, "the command line has --model, --init or --teacher"
            config = AlbertConfig.from_dict(trained.to_dict() | fields)
    except ValueError as error:
        raise UserError(str(error)) from None
    if config.type_vocab_size < 2:
        remedy = "leave the field out" if "type_vocab_size" in fields else f"name another model than {source}"
        raise UserError(f"type_vocab_size is less than 2, but a pair has two segments; {remedy}")
    if trained is not None and source is not None:
        _check_weights_fit(config, trained, source)
    return config


def _check_weights_fit(config: AlbertConfig, trained: AlbertConfig, source: str) -> None:
    """Raises UserError, naming what differs, if the weights of `trained` do not fit into `config`."""
    differ = [name for name in _DECIDE_SHAPES if getattr(config, name) != getattr(trained, name)]
    if config.max_position_embeddings < trained.max_position_embeddings:
        differ.append("max_position_embeddings")
    if differ:
        differences = ", ".join(
            f"{name} is {getattr(trained, name)} there and {getattr(config, name)} here" for name in differ
        )
        raise UserError(
            f"{source} holds another model: {differences}; leave --model and these fields out to take its architecture"
        )
