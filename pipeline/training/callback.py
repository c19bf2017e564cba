"""The moments of training at which other code may act, and how that code ends training early."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor

from common.errors import UserError
from pipeline.checkpoint.saver import Saved
from pipeline.distributed.exits import EXIT_FAILED
from pipeline.training.training_task import Evaluation

Phase = Literal["data", "agreement", "forward", "backward", "optimizer", "logging", "evaluation", "save"]


REMEDY = "lower the learning rate, lengthen the warm-up or use --precision bf16, and start again with another --output"


class Callback:
    """Accompanies the training of one start of a run. A subclass has the moments that it needs.

    The callbacks of a run are in one list (`pipeline.training.callbacks`), on all ranks. At each moment they are called
    in its order, so they may call collectives. Between two logged lines none of them waits for the device.
    """

    def on_start(self) -> None:
        """Before the first step."""

    def on_phase(self, phase: Phase, micro_step: int = 0) -> None:
        """At the beginning of a phase, and again whenever a long phase makes progress. `micro_step` counts from 1."""

    def on_vote(self, step: int) -> Sequence[float]:
        """Before a step, when `step` steps are made: returns numbers to be summed over the ranks.

        The count of numbers is the same on all ranks and in all steps.
        """
        return ()

    def on_agreement(self, sums: list[float]) -> None:
        """Before a step: gets the sums over all ranks of what `vote` returned for it."""

    def on_micro_step(self, tensors: dict[str, Tensor], output: Any, loss: Tensor) -> None:
        """After a micro-step: its input, the output of the model, and the loss () as `TrainingTask.loss` gives it."""

    def on_step(self, seconds: float) -> None:
        """After a step, which took `seconds` on this rank's host. `TrainState.step` counts it already."""

    def on_log(self, record: dict[str, Any]) -> None:
        """At a logging interval: adds to the record of `metrics.jsonl`, or uses what earlier callbacks have added."""

    def on_trial(self, evaluation: Evaluation | None, fraction: float) -> None:
        """After the evaluation of a few batches before the first step. See `TrainingTask.try_evaluation`."""

    def on_evaluation(self, evaluation: Evaluation, seconds: float) -> None:
        """After an evaluation, which took `seconds`."""

    def on_save(self) -> str:
        """Before a checkpoint of the present step: writes what a resume needs into the state.

        Returns why the weights must not be saved, the same on all ranks; "" if they may be.
        """
        return ""

    def on_checkpoint(self, checkpoint: Saved) -> None:
        """Once a checkpoint is complete, which may be some steps later."""

    def on_end(self) -> None:
        """After training, also if it failed. Not collective."""


def tell(callbacks: Sequence[Callback], moment: Callable[..., None], *arguments: Any) -> None:
    """Calls a moment of each callback: `tell(callbacks, Callback.on_step, seconds)`."""
    for callback in callbacks:
        getattr(callback, moment.__name__)(*arguments)


class TrainingFailed(RuntimeError):
    """Training cannot continue. The message says why and what to try.

    Attributes:
        status: the exit status of the ranks.
    """

    def __init__(self, message: str, status: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.status = status


def cannot_begin(problem: str) -> UserError:
    """The error of a start that cannot write its first files, for all ranks."""
    return UserError(f"the run cannot begin: {problem}; free some space, or choose another --output")


class EvaluationLeft(Exception):
    """A stop signal ended an evaluation early.

    Attributes:
        stop_signal: its number.
    """

    def __init__(self, stop_signal: int) -> None:
        super().__init__(f"signal {stop_signal}")
        self.stop_signal = stop_signal
