"""Loads the model of a fine-tuning run, and exports it with its head."""

from pathlib import Path
from typing import Any

import torch

from common.errors import UserError
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.model_export import best_checkpoint, load_into
from pipeline.checkpoint.run_records import SETTINGS
from pipeline.finetuning.heads import FinetunedModel, make_model
from pipeline.sharing import selection
from pipeline.sharing.export import Source
from pipeline.tasks.own import task_of
from pipeline.tasks.task import Task


def read_task(run: Path) -> Task:
    """The task of a fine-tuning run, from its own record.

    Raises UserError if `run` holds no fine-tuning run, or its record is damaged.
    """
    settings = run_directory.read_settings(run)
    if "task" not in settings:
        raise UserError(f"{run} is a pre-training run; name the --output of pipeline.finetune")
    return task_of(settings, run / SETTINGS)


def load_finetuned(run: Path, tag: Path | None = None) -> FinetunedModel:
    """The model of a fine-tuning run, fp32, in evaluation mode.

    Args:
        tag: the checkpoint; None takes that of the best step.
    Raises:
        UserError: `run` holds no run, or no checkpoint.
    """
    with torch.device("meta"):
        model = make_model(read_task(run), run_directory.read_model(run))
    return load_into(model, load_weights(tag or best_checkpoint(run)), run)


def finetuned(run: Path) -> Source:
    """A fine-tuning run as the source of exports. Raises UserError if it cannot be read."""
    task = read_task(run)
    return Source(
        run,
        lambda tag: load_finetuned(run, tag),
        usual=lambda: best_checkpoint(run),
        best=lambda: selection.highest_score(run),
        head=head_fields(task),
        task=task,
    )


def head_fields(task: Task) -> dict[str, Any]:
    """The fields of config.json for a task's head, in the terms of `transformers`.

    There is no "architectures" if `transformers` has no such head.
    """
    fields: dict[str, Any] = {"finetuning_task": task.name}
    if task.kind == "conditioned_spans":
        return fields
    if task.kind == "spans":
        return fields | {"architectures": ["AlbertForQuestionAnswering"]}
    fields |= {
        "id2label": dict(enumerate(task.labels)),
        "label2id": {label: number for number, label in enumerate(task.labels)},
    }
    if task.kind == "choice":
        return fields | {"architectures": ["AlbertForMultipleChoice"]}
    if task.kind == "tagging":
        return fields | {"architectures": ["AlbertForTokenClassification"]}
    kind = "regression" if task.kind == "regression" else "single_label_classification"
    return fields | {"architectures": ["AlbertForSequenceClassification"], "problem_type": kind}
