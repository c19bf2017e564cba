"""Loads the model of a run from its checkpoints."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from torch import Tensor, nn

from common.errors import UserError
from model import AlbertForPreTraining, checkpoint
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.retention import find_best, find_latest

M = TypeVar("M", bound=nn.Module)

HEAD_FILE = "head.json"
"""Beside albert.json: the task of the head in albert.safetensors."""


def load_pretrained(run: Path, tag: Path | None = None) -> AlbertForPreTraining:
    """The model of a pre-training run, fp32, in evaluation mode.

    Args:
        tag: the checkpoint; None takes the newest complete one.
    Raises:
        UserError: `run` holds no run, no checkpoint, or a checkpoint of another model than settings.json says.
    """
    model = checkpoint.empty_model(run_directory.read_model(run))
    return load_into(model, load_weights(tag or run / "checkpoints"), run)


def load_into(model: M, tensors: Mapping[str, Tensor], run: Path) -> M:
    """Gives `tensors` to `model`, which may have no memory yet, and returns it in evaluation mode.

    Raises:
        UserError: they are not those of the model in `run`'s settings.json.
    """
    try:
        checkpoint.check_tensors(run, model.state_dict(), tensors)
    except ValueError as error:
        raise UserError(f"{error}; restore settings.json and checkpoints of one run") from None
    model.load_state_dict(tensors, assign=True)
    return model.eval()


def best_checkpoint(run: Path) -> Path:
    """The checkpoint of a run with the best score; the newest one if none has a score. UserError: there is none."""
    found = find_best(run / "checkpoints") or find_latest(run / "checkpoints")
    if found is None:
        raise UserError(f"{run / 'checkpoints'} holds no complete checkpoint; train first, or name another run")
    return found
