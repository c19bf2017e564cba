"""Loads the model of a fine-tuning run, and exports it with its head."""

from pathlib import Path

import torch

from common.errors import UserError
from model.albert import ModelWithHead
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.initial_weights import InitialWeights, best_checkpoint, load_into
from pipeline.checkpoint.run_records import SETTINGS
from pipeline.sharing import selection
from pipeline.sharing.export import Source
from pipeline.tasks.own_tasks import task_of
from pipeline.tasks.task import Task


def read_task(run: Path) -> Task:
    """The task of a fine-tuning run, from its own record.

    Raises UserError if `run` holds no fine-tuning run, or its record is damaged.
    """
    settings = run_directory.read_settings(run)
    if "task" not in settings:
        raise UserError(f"{run} is a pre-training run; name the --output of pipeline.finetune")
    return task_of(settings, run / SETTINGS)


def load_finetuned(run: Path, tag: Path | None = None) -> ModelWithHead:
    """The model of a fine-tuning run, fp32, in evaluation mode.

    Args:
        tag: the checkpoint; None takes that of the best step.
    Raises:
        UserError: `run` holds no run, or no checkpoint.
    """
    task = read_task(run)
    with torch.device("meta"):
        model = task.kind.make_model(task, run_directory.read_model(run))
    return load_into(model, load_weights(tag or best_checkpoint(run)), run)


def finetuned(run: Path) -> Source:
    """A fine-tuning run as the source of exports. Raises UserError if it cannot be read."""
    task = read_task(run)
    return Source(
        run,
        lambda tag: load_finetuned(run, tag),
        usual=lambda: best_checkpoint(run),
        best=lambda: selection.highest_score(run),
        task=task,
    )


def has_head_of(initial: InitialWeights, task: Task) -> bool:
    """Whether the head of `initial` is that of `task`: its outputs mean the same."""
    return initial.task == task.name and (not task.labels or initial.labels in (None, task.labels))
