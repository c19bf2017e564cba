"""JSON and tensor files that are either absent or complete."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor


def read_json(path: Path) -> dict[str, Any]:
    """The object in the JSON file `path`. Raises ValueError where it is missing or not a JSON object."""
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"{path} does not exist; give a directory that holds a saved model") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as JSON ({error}); write the model again") from error
    if not isinstance(contents, dict):
        raise ValueError(f"{path} holds no JSON object; write the model again")
    return contents


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU. Raises ValueError where it is missing or damaged."""
    try:
        return safetensors.torch.load_file(path)
    except FileNotFoundError as error:
        raise ValueError(f"{path} does not exist; give a directory that holds a saved model") from error
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path} cannot be read ({error}); write the model again") from error


def write_json(path: Path, contents: Mapping[str, Any]) -> None:
    """Writes `contents` to `path` as indented UTF-8."""
    with _replacing(path) as temporary:
        temporary.write_text(json.dumps(contents, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes `tensors`, from whatever device, to the safetensors file `path`."""
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with _replacing(path) as temporary:
        safetensors.torch.save_file(contiguous, temporary, metadata={"format": "pt"})


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
