"""How far a run has come, its clock, and what its trainer and its callbacks share."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

from common.files.json_files import Count, Finite
from pipeline.checkpoint.mirror import Mirror
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.progress import Phase, get_progress
from pipeline.engine.engine_state import Engine
from pipeline.training.run_settings import RunSettings

T = TypeVar("T")


class Lap(NamedTuple):
    """The time since the previous lap.

    Attributes:
        seconds: without pauses.
        waiting: the part of `seconds` that was spent waiting for data.
    """

    seconds: float
    waiting: float


class Clock:
    """Measures a run. It starts when it is made.

    Args:
        before: seconds of earlier starts of the run.
    """

    def __init__(self, before: float = 0.0) -> None:
        now = time.perf_counter()
        self._zero = now - before
        self._lap_start = now
        self._paused = self._waiting = 0.0

    def seconds(self) -> float:
        """Seconds of all starts of the run, pauses included."""
        return time.perf_counter() - self._zero

    def lap(self) -> Lap:
        """Ends a lap and begins the next one."""
        now = time.perf_counter()
        lap = Lap(max(now - self._lap_start - self._paused, 1e-9), self._waiting)
        self._lap_start, self._paused, self._waiting = now, 0.0, 0.0
        return lap

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves the time of the block (an evaluation, a save) out of the lap."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - start

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        """Yields the items and counts the time until each one arrives as waiting."""
        iterator = iter(items)
        while True:
            start = time.perf_counter()
            try:
                item = next(iterator)
            except StopIteration:
                return
            self._waiting += time.perf_counter() - start
            yield item


@dataclass
class TrainState:
    """The progress of a run: all that a resume needs beside the engine's own state.

    Attributes:
        step: steps made, including those whose update was skipped. With the batch size and the skipped batches it gives
            the samples consumed, and with the seed the order of all rows to come.
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


@dataclass
class TrainingRun:
    """A run whose engine is ready to train. The trainer and its parts share it.

    Attributes:
        state: restored from the newest checkpoint, or that of a new run.
        description: of the optimizer's parameter groups, one line each.
        hosts: host name of each rank, on rank 0; empty on the others.
        clock: wall-clock time of the run.
        say: prints a line on rank 0, above the bar; `print` until the trainer is made.
        mirror: uploads the run; None without --mirror, and on ranks other than 0.
    """

    settings: RunSettings
    control: ControlGroup
    engine: Engine
    state: TrainState
    description: str = ""
    hosts: Sequence[str] = ()
    clock: Clock = field(default_factory=Clock)
    say: Callable[[str], None] = print
    mirror: Mirror | None = None

    @property
    def is_rank_0(self) -> bool:
        """Whether this process prints and writes for all ranks."""
        return self.control.rank == 0

    def enter(self, phase: Phase, micro_step: int = 0) -> None:
        """Notes for the watch what this rank does: when a phase begins, and again whenever a long one goes on."""
        own = get_progress()
        if own.step or phase == "data":  # what comes before the first batch belongs to no step
            own.step = self.state.step + (0 if phase in ("logging", "evaluation", "save") else 1)
        own.enter(phase, micro_step)
