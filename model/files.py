"""Reads and writes JSON and tensor files. A written file is either absent or complete."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from common.files.atomic import replacing, set_default_mode, write_text
from common.files.json_files import read_object


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in the JSON file `path`.

    Raises:
        UserError (a ValueError): the file is missing, unreadable, or holds no JSON object.
    """
    return read_object(path, "give a directory that holds a saved model, or write the model again")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Returns the tensors of a safetensors file by name, on the CPU, in the dtypes that they were saved in.

    Raises:
        ValueError: the file is missing, damaged, or no regular file.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError(f"{path} is no file; give a directory that holds a saved model")
        return safetensors.torch.load_file(path)
    except FileNotFoundError as error:
        raise ValueError(f"{path} does not exist; give a directory that holds a saved model") from error
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
