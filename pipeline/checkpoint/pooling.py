"""How a model makes embeddings, in the files of the library sentence-transformers.

    modules.json                 the steps: the encoder, pooling, scaling
    1_Pooling/config.json        how the states of the tokens become one vector
    sentence_bert_config.json    the longest text; whether texts become lower case

A model without modules.json has this project's own embeddings: means of length 1, of texts cut to its positions.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import atomic
from common.files.json_files import Positive, check_as, read_as, read_object
from common.files.places import plain_name

MODULES, SETTINGS, LIBRARY = "modules.json", "sentence_*_config.json", "config_sentence_transformers.json"
FILES = (MODULES, SETTINGS, LIBRARY, "*/config.json")  # patterns of the files that are read
MODES = ("mean", "cls", "max")
_FLAG, _REMEDY = "pooling_mode_", "name a model with mean, cls or max pooling"


@dataclass(frozen=True)
class Pooling:
    """How the states of the tokens, [CLS] and [SEP] included, become an embedding."""

    mode: str  # one of `MODES`
    max_length: int | None  # tokens of the longest text, [CLS] and [SEP] included; None for the model's positions
    lowercase: bool  # whether texts become lower case before they are encoded
    normalizes: bool  # whether embeddings are scaled to the Euclidean length 1


@dataclass(frozen=True)
class _Module:
    type: str
    path: str


@dataclass(frozen=True)
class _Settings:
    max_seq_length: Positive | None = None
    do_lower_case: bool = False


def read_pooling(directory: Path) -> Pooling:
    """How the model in `directory` makes embeddings. Raises UserError for steps that are not known here."""
    modules = [_Module("Transformer", ""), _Module("Pooling", "1_Pooling"), _Module("Normalize", "")]
    if is_listed := (directory / MODULES).exists():
        modules = read_as(directory / MODULES, list[_Module], _REMEDY, extra="ignore")
    kinds = [module.type.rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UserError(f"{directory / MODULES} lists {', '.join(kinds):.200}; only encoders with pooling are read")
    for path in filter(None, (module.path for module in modules)):  # the encoder is mostly in the directory itself
        plain_name(path, directory / MODULES)
    settings = _Settings()
    for file in sorted((directory / modules[0].path).glob(SETTINGS))[:1]:
        settings = check_as(read_object(file, _REMEDY), _Settings, file, _REMEDY, extra="ignore")
    if (directory / LIBRARY).exists():
        name = read_object(directory / LIBRARY, _REMEDY).get("default_prompt_name")
        if name is not None:
            raise UserError(f"{directory / LIBRARY} puts the prompt {name!r:.80} before each text; name another model")
    config = directory / modules[1].path / "config.json"
    found = ["mean"]
    if is_listed or config.exists():
        content = read_object(config, _REMEDY)
        given: Any = content.get("pooling_mode") or [
            key.removeprefix(_FLAG).removesuffix("_tokens").removesuffix("_token")
            for key, value in content.items()
            if key.startswith(_FLAG) and value is True
        ]
        found = [given] if isinstance(given, str) else list(given) or ["mean"]
    if len(found) != 1 or found[0] not in MODES:
        raise UserError(f"{config} asks for {' and '.join(map(str, found)):.80} pooling; {_REMEDY}")
    return Pooling(found[0], settings.max_seq_length, settings.do_lower_case, "Normalize" in kinds)


def write_pooling(directory: Path, hidden_size: int, positions: int) -> None:
    """Writes the files with which sentence-transformers makes this project's own embeddings of the model there."""
    names = ("", "1_Pooling", "2_Normalize")
    types = ("Transformer", "Pooling", "Normalize")
    modules = [
        {"idx": number, "name": str(number), "path": name, "type": f"sentence_transformers.models.{kind}"}
        for number, (name, kind) in enumerate(zip(names, types))
    ]
    modes = {f"{_FLAG}{mode}": mode == "mean_tokens" for mode in ("cls_token", "mean_tokens", "max_tokens")}
    (directory / names[1]).mkdir()
    for path, content in (
        (directory / MODULES, modules),
        (directory / names[1] / "config.json", {"word_embedding_dimension": hidden_size} | modes),
        (directory / "sentence_bert_config.json", dataclasses.asdict(_Settings(positions))),
    ):
        atomic.write_text(path, json.dumps(content, indent=2) + "\n")
