"""Saves and loads models in the project's own format, which can hold every model that `AlbertConfig` describes.

A checkpoint is a directory with albert.json (the configuration) and albert.safetensors (the tensors, under the names
of the state dict). The format of `transformers` (`model.huggingface`) cannot express some models, such as layers that
share their attention only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from model.config import AlbertConfig, ExecutionOptions
from model.files import read_json, read_tensors, write_json, write_tensors
from model.pretraining import AlbertForPreTraining

CONFIG_FILE = "albert.json"
WEIGHTS_FILE = "albert.safetensors"


class ModelWithConfig(Protocol):
    """A model of this package, with any head."""

    config: AlbertConfig

    def state_dict(self) -> dict[str, Any]: ...


def save(model: ModelWithConfig, directory: Path) -> None:
    """Writes `model` to `directory` in its own dtype. albert.json is written last and completes the checkpoint.

    Raises:
        OSError: `directory` cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / WEIGHTS_FILE, model.state_dict())
    write_json(directory / CONFIG_FILE, model.config.to_dict())


def read(directory: Path) -> tuple[AlbertConfig, dict[str, Tensor]]:
    """Returns the configuration and the tensors (heads included, on the CPU) in `directory`.

    Raises:
        ValueError: a file is missing or damaged.
    """
    return AlbertConfig.from_dict(read_json(directory / CONFIG_FILE)), read_tensors(directory / WEIGHTS_FILE)


def load(directory: Path, execution: ExecutionOptions | None = None) -> AlbertForPreTraining:
    """Returns the pre-training model that `save` wrote to `directory`, on the CPU, in the dtype of the file.

    Raises:
        ValueError: a file is missing or damaged, or the tensors do not fit the configuration.
    """
    config, tensors = read(directory)
    model = empty_model(config, execution)
    check_tensors(directory, model.state_dict(), tensors)
    model.load_state_dict(tensors, assign=True)
    return model


def empty_model(config: AlbertConfig, execution: ExecutionOptions | None = None) -> AlbertForPreTraining:
    """Returns a model on the meta device: its parameters have shapes but no memory.

    `load_state_dict(..., assign=True)` fills it.
    """
    with torch.device("meta"):
        return AlbertForPreTraining(config, execution)


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
