"""The model of a run: its task, its weights, and which of its checkpoints are exported."""

from dataclasses import dataclass
from pathlib import Path

import torch

from common.errors import UserError
from model import AlbertForPreTraining
from model.albert import ModelWithHead
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.initial_weights import best_checkpoint, load_into
from pipeline.checkpoint.retention import find_latest, step_of, tags
from pipeline.settings.run_settings import FinetuneSettings
from pipeline.settings.settings_file import SETTINGS, read_settings
from pipeline.tasks.own_tasks import task_of
from pipeline.tasks.task import Task


@dataclass(frozen=True)
class TrainedRun:
    """A run whose model is used; after pre-training it has no task. UserError of its methods: no such checkpoint."""

    directory: Path
    task: Task | None

    def load(self, tag: Path | None = None) -> ModelWithHead:
        """The model of a checkpoint, by default the usual one: fp32, on the CPU, in evaluation mode."""
        config = read_settings(self.directory).model
        with torch.device("meta"):
            model = self.task.kind.make_model(self.task, config) if self.task else AlbertForPreTraining(config)
        return load_into(model, load_weights(tag or self.usual()), self.directory)

    def usual(self) -> Path:
        """The checkpoint that is exported unless another one is asked for.

        It is the best one of a fine-tuning run, and the newest complete one of a pre-training run.
        """
        if self.task is not None:
            return best_checkpoint(self.directory)
        if newest := find_latest(self.directory / "checkpoints", content=True):
            return newest
        raise UserError(
            f"{self.directory / 'checkpoints'} holds no complete checkpoint; train first, or name another run"
        )

    def of_step(self, step: int) -> Path:
        """The checkpoint of one step."""
        there = tags(self.directory / "checkpoints")
        if tag := next((tag for tag in there if step_of(tag) == step), None):
            return tag
        steps = ", ".join(str(step_of(tag)) for tag in reversed(there)) or "none"
        raise UserError(f"{self.directory} has no checkpoint of step {step}; its steps: {steps}; name another")


def open_run(directory: Path) -> TrainedRun:
    """The run in a directory. Raises UserError if there is none, or its record is damaged."""
    settings = read_settings(directory)
    if not isinstance(settings, FinetuneSettings):
        return TrainedRun(directory, None)
    return TrainedRun(directory, task_of(settings.task, settings.own_task, directory / SETTINGS))
