"""How far a run has come."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Interval

from common.files.json_files import Count, Finite
from pipeline.training.divergence.spikes import SpikeState


@dataclass
class TrainState:
    """The progress of a run: all that a resume needs beside the engine's own state.

    Attributes:
        step: steps made, including those whose update was skipped. With the batch size and the record of rollbacks it
            gives the samples consumed, and with the seed the order of all rows to come.
        seconds: wall-clock time of all starts.
        tokens: tokens trained on up to the last logged line, without padding.
        meter: the task's sums over the steps since the last logged line and over all ranks, in the order of the
            fields of `TrainingTask.sums_kind`.
        best_score: the highest score of an evaluation so far.
        best_step: the step after which `best_score` was first reached.
        finished: True once the final step completed.
        evaluation_due: a stop signal ended the evaluation after this step early: an evaluation after the "last" step or
            after an "earlier" one; None if none is due.
    """

    step: Count = 0
    seconds: Finite = 0.0
    tokens: Count = 0
    meter: list[float] | None = None
    best_score: float | None = None
    best_step: Count = 0
    finished: bool = False
    evaluation_due: Literal["earlier", "last"] | None = None
    spikes: SpikeState = field(default_factory=SpikeState)
    rollbacks: Count = 0
    batches: Annotated[int, Interval(ge=-(2**63), lt=2**63)] = 0
