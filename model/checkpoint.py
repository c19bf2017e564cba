"""Saves and loads models in the project's own format, which can hold every model that `AlbertConfig` describes.

A checkpoint is a directory with albert.json (the configuration) and albert.safetensors (the tensors, under the names
of the state dict). The format of `transformers` (`model.huggingface`) lacks some heads, such as that of SQuAD 2.0.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from common.files.atomic import replacing, set_default_mode, write_text
from common.files.json_files import read_object
from model.albert import ModelWithHead
from model.config import AlbertConfig
from model.pretraining import AlbertForPreTraining

CONFIG_FILE = "albert.json"
WEIGHTS_FILE = "albert.safetensors"


def save(model: ModelWithHead, directory: Path) -> None:
    """Writes `model` to `directory` in its own dtype. albert.json is written last and completes the checkpoint.

    Raises OSError: `directory` cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / WEIGHTS_FILE, model.state_dict())
    write_json(directory / CONFIG_FILE, model.config.to_dict())


def read(directory: Path) -> tuple[AlbertConfig, dict[str, Tensor]]:
    """Returns the configuration and the tensors (heads included, on the CPU) in `directory`.

    Raises ValueError: a file is missing or damaged.
    """
    return AlbertConfig.from_dict(read_json(directory / CONFIG_FILE)), read_tensors(directory / WEIGHTS_FILE)


def load(directory: Path) -> AlbertForPreTraining:
    """Returns the pre-training model that `save` wrote to `directory`, on the CPU, in the dtype of the file.

    Raises ValueError: a file is missing or damaged, or the tensors do not fit the configuration.
    """
    return filled_model(directory, *read(directory))


def empty_model(config: AlbertConfig) -> AlbertForPreTraining:
    """Returns a model on the meta device: its parameters have shapes but no memory.

    `load_state_dict(..., assign=True)` fills it.
    """
    with torch.device("meta"):
        return AlbertForPreTraining(config)


def filled_model(source: Path, config: AlbertConfig, tensors: Mapping[str, Tensor]) -> AlbertForPreTraining:
    """Returns the model that `config` and `tensors` describe. Raises ValueError as `check_tensors` does."""
    model = empty_model(config)
    check_tensors(source, model.state_dict(), tensors)
    model.load_state_dict(tensors, assign=True)
    return model


def check_tensors(source: Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Raises ValueError unless `found` has exactly the names and shapes of `expected`. `source` is for the message."""
    for problem, names in (
        ("lacks", expected.keys() - found.keys()),
        ("has, beyond what its configuration asks for,", found.keys() - expected.keys()),
    ):
        if names:
            first = ", ".join(sorted(names)[:3])
            raise ValueError(f"{source} {problem} {len(names)} tensors ({first}, ...); it is another kind of model")
    for name, tensor in expected.items():
        if found[name].shape != tensor.shape:
            raise ValueError(
                f"{source}: {name} has the shape {tuple(found[name].shape)}, but its configuration says "
                f"{tuple(tensor.shape)}; the two do not belong together"
            )


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in the JSON file `path`.

    Raises UserError (a ValueError): the file is missing, unreadable, or holds no JSON object.
    """
    return read_object(path, "give a directory that holds a saved model, or write the model again")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Returns the tensors of a safetensors file by name, on the CPU, in the dtypes that they were saved in.

    Raises ValueError: the file is missing, damaged, or no regular file.
    """
    if not path.is_file():
        raise ValueError(f"{path} is no file; give a directory that holds a saved model")
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path} cannot be read ({error}); write the model again") from error


def write_json(path: Path, contents: Mapping[str, Any]) -> None:
    """Writes `contents` to `path` as indented UTF-8 JSON. Raises OSError if the file cannot be written."""
    write_text(path, json.dumps(contents, indent=2, ensure_ascii=False) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes `tensors`, from any device, to the safetensors file `path`. Raises OSError or safetensors' SafetensorError
    if the file cannot be written.
    """
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        safetensors.torch.save_file(contiguous, temporary, metadata={"format": "pt"})
        set_default_mode(temporary)
