"""The moments of training at which other code may look on, and the exceptions that end training early."""

from collections.abc import Mapping
from typing import Any

from common.errors import UserError
from pipeline.checkpoint.saver import Saved
from pipeline.distributed.exits import EXIT_FAILED
from pipeline.training.training_task import Evaluation

REMEDY = "lower the learning rate, lengthen the warm-up or use --precision bf16, and start again with another --output"


class Callback:
    """Observes the training of one start of a run. A subclass has the moments that it needs.

    A callback changes nothing: it sets nothing in the run, and the order of callbacks means nothing. The trainer calls
    them on all ranks. Between two logged lines none of them waits for the device.
    """

    def on_start(self) -> None:
        """Before the first step."""

    def on_step(self, step: int) -> None:
        """After the step with this number."""

    def on_log(self, record: Mapping[str, Any], is_last: bool) -> None:
        """At a logging interval: the record of `metrics.jsonl`, and whether the step is the last one of the run."""

    def on_trial(self, evaluation: Evaluation, fraction: float) -> None:
        """After the evaluation of a `fraction` of the batches before the first step."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """After an evaluation."""

    def on_checkpoint(self, checkpoint: Saved) -> None:
        """Once a checkpoint is complete, which may be some steps later."""

    def on_end(self) -> None:
        """After training, also if it failed. Not collective."""


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
