"""The project's own format: every model that `AlbertConfig` can describe, under the model's own names.

A directory with albert.json (the configuration) and albert.safetensors (the tensors). `model.huggingface` is
for everybody else's tools; this keeps what their format cannot express, such as layers that share their
attention only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from model.albert import AlbertForPreTraining
from model.config import AlbertConfig, Implementation
from model.files import read_json, read_tensors, write_json, write_tensors

CONFIG_FILE = "albert.json"
WEIGHTS_FILE = "albert.safetensors"


class ModelWithConfig(Protocol):
    """Any model of this package, with whatever head."""

    config: AlbertConfig

    def state_dict(self) -> dict[str, Any]: ...


def save(model: ModelWithConfig, directory: Path) -> None:
    """Writes `model` to `directory` in the dtype that it has. albert.json comes last: without it nothing is
    complete."""
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / WEIGHTS_FILE, model.state_dict())
    write_json(directory / CONFIG_FILE, model.config.to_dict())


def read(directory: Path) -> tuple[AlbertConfig, dict[str, Tensor]]:
    """The configuration and the tensors, heads included, in `directory`. Raises ValueError where a file is
    missing or damaged."""
    return AlbertConfig.from_dict(read_json(directory / CONFIG_FILE)), read_tensors(directory / WEIGHTS_FILE)


def load(directory: Path, implementation: Implementation | None = None) -> AlbertForPreTraining:
    """The model that `save` wrote to `directory`, in the dtype that it had.

    Raises ValueError where a file is missing or damaged or the tensors are not those of the configuration.
    """
    config, tensors = read(directory)
    model = empty_model(config, implementation)
    check_tensors(directory, model.state_dict(), tensors)
    model.load_state_dict(tensors, assign=True)
    return model


def empty_model(config: AlbertConfig, implementation: Implementation | None = None) -> AlbertForPreTraining:
    """A model whose parameters have shapes but no memory yet: `load_state_dict(..., assign=True)` gives it
    some."""
    with torch.device("meta"):
        return AlbertForPreTraining(config, implementation)


def check_tensors(source: Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Raises ValueError, one line, unless `found` has the names and shapes of `expected` and nothing else."""
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
