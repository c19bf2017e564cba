"""The moments of training at which other code may act."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor

from pipeline.checkpoint.saver import Saved
from pipeline.training.training_task import Evaluation

Phase = Literal["data", "agreement", "forward", "backward", "optimizer", "logging", "evaluation", "save"]


class Callback:
    """Accompanies the training of one start of a run. A subclass has the moments that it needs.

    The callbacks of a run are in one list (`pipeline.training.callbacks`), on all ranks. At each moment they are called
    in its order, so they may call collectives. Between two logged lines none of them waits for the device.
    """

    def start(self) -> None:
        """Before the first step."""

    def enter(self, phase: Phase, micro_step: int = 0) -> None:
        """At the beginning of a phase, and again whenever a long phase makes progress. `micro_step` counts from 1."""

    def vote(self, step: int) -> Sequence[float]:
        """Before a step, when `step` steps are made: returns numbers to be summed over the ranks.

        The count of numbers is the same on all ranks and in all steps.
        """
        return ()

    def agreed(self, sums: list[float]) -> None:
        """Before a step: gets the sums over all ranks of what `vote` returned for it."""

    def batch(self, tensors: dict[str, Tensor], output: Any, loss: Tensor) -> None:
        """After a micro-step: its input, the output of the model, and the loss () as `TrainingTask.loss` gives it."""

    def step(self, seconds: float) -> None:
        """After a step, which took `seconds` on this rank's host. `TrainState.step` counts it already."""

    def log(self, record: dict[str, Any]) -> None:
        """At a logging interval: adds to the record of `metrics.jsonl`, or uses what earlier callbacks have added."""

    def tried_evaluation(self, evaluation: Evaluation | None, fraction: float) -> None:
        """After the evaluation of a few batches before the first step. See `TrainingTask.try_evaluation`."""

    def evaluated(self, evaluation: Evaluation, seconds: float) -> None:
        """After an evaluation, which took `seconds`."""

    def before_save(self) -> str:
        """Before a checkpoint of the present step: writes what a resume needs into the state.

        Returns why the weights must not be saved, the same on all ranks; "" if they may be.
        """
        return ""

    def saved(self, checkpoint: Saved) -> None:
        """Once a checkpoint is complete, which may be some steps later."""

    def end(self) -> None:
        """After training, also if it failed. Not collective."""


def tell(callbacks: Sequence[Callback], moment: Callable[..., None], *arguments: Any) -> None:
    """Calls a moment of each callback: `tell(callbacks, Callback.step, seconds)`."""
    for callback in callbacks:
        getattr(callback, moment.__name__)(*arguments)
