"""Runs of pipeline.pretrain whose steps a test looks into."""

import inspect
from pathlib import Path
from typing import Any

from torch import Tensor

import pipeline
from pipeline.training.callback import Callback
from tests.pipeline.workers.added_callbacks import added_callback
from tests.pipeline.workers.runs import Ended, run_one

PACKAGE = str(Path(pipeline.__file__ or "").parent)


class _Frames(Callback):
    """Keeps the functions of pipeline/ that lead to the loop, at the first micro-step."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_micro_step(self, tensors: dict[str, Tensor], output: Any, loss: Tensor) -> None:
        if not self.names:
            frames = [frame for frame in inspect.stack() if frame.filename.startswith(PACKAGE)]
            self.names = [f"{Path(frame.filename).stem}.{frame.function}" for frame in reversed(frames)]


def run_and_look(commands: list[list[str]]) -> tuple[list[Ended], list[str]]:
    """Runs the command lines, and returns the functions of pipeline/ that lead to a micro-step of the first one."""
    frames = _Frames()
    with added_callback(lambda run: frames):
        return [run_one(command) for command in commands], frames.names
