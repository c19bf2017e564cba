"""What trainer, task and callbacks share: the progress of the run, its clock, speeds and evaluations."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from common.errors import UserError
from common.files.json_files import Count, Finite
from model.config import AlbertConfig
from model.counts import model_flops
from pipeline.data.collate import BatchShape
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import EXIT_FAILED
from pipeline.distributed.progress import Phase, get_progress
from pipeline.engine.engine_config import Precision
from pipeline.engine.hardware import find_by_device_name
from pipeline.settings.run_settings import RunSettings
from pipeline.training.metrics_file import parts_of

if TYPE_CHECKING:  # whoever predicts need not wait for DeepSpeed
    from pipeline.checkpoint.save_and_load import Saved
    from pipeline.engine.engine_state import Engine

T = TypeVar("T")

REMEDY = "lower the learning rate, lengthen the warm-up or use --precision bf16, and start again with another --output"


class Lap(NamedTuple):
    """The seconds since the previous lap without pauses, and the part that was spent waiting for data."""

    seconds: float
    waiting: float


class Clock:
    """Measures a run. It starts when it is made. before: seconds of earlier starts of the run."""

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


@dataclass(frozen=True)
class Throughput:
    """Computes speeds from counts and seconds."""

    row_flops: int | None  # floating-point operations of training on one row; None if rows differ
    world_size: int
    peak: float | None  # floating-point operations a second of one GPU, by its data sheet; None if unknown

    @classmethod
    def of(
        cls, model: AlbertConfig, shape: BatchShape, world_size: int, device_name: str, precision: Precision
    ) -> "Throughput":
        """For rows of `shape` on a device called `device_name` (see `pipeline.engine.hardware.Hardware`)."""
        gpu = find_by_device_name(device_name)
        tflops = None if gpu is None else gpu.tflops.get(precision)
        flops = model_flops(model, shape.sequence_length, shape.predictions)
        return cls(flops, world_size, None if tflops is None else 1e12 * tflops)

    def metrics(self, tokens: float, rows: float, lap: Lap) -> dict[str, float]:
        """Speeds of a lap in which all ranks together trained on `rows` rows with `tokens` tokens."""
        rows_per_gpu = rows / lap.seconds / self.world_size
        metrics = {
            "tokens_per_second": tokens / lap.seconds,
            "rows_per_second": rows / lap.seconds,
            "tokens_per_second_per_gpu": tokens / lap.seconds / self.world_size,
            "rows_per_second_per_gpu": rows_per_gpu,
            "data_wait_share": lap.waiting / lap.seconds,
        }
        if self.row_flops is not None:
            speed = rows_per_gpu * self.row_flops
            metrics["tflops_per_gpu"] = speed / 1e12
            if self.peak is not None:
                metrics["peak_share"] = speed / self.peak
        return metrics


class Monitor(Protocol):
    """What an evaluation passes its batches through."""

    def __call__(self, batches: Iterable[T], count: int) -> Iterator[T]:
        """The `batches`, `count` of them. All ranks must have the same number."""
        ...


def unmonitored(batches: Iterable[T], count: int) -> Iterator[T]:
    """A `Monitor` that only yields the batches."""
    return iter(batches)


class Evaluation(NamedTuple):
    """The result of an evaluation."""

    metrics: dict[str, Any]  # for metrics.jsonl and TensorBoard
    score: float  # higher is better; the checkpoint with the highest score is kept
    shown: str  # name of the metric that the console shows
    # "mlm", "sop" and "nsp", as far as the run trains them; the console shows their accuracies
    tasks: tuple[str, ...] = ()
    # of the held-out sets, if there are several. The metrics of the first have no prefix, and decide the score; those
    # of another begin with its name and a slash.
    names: tuple[str, ...] = ()

    def parts(self) -> dict[str, dict[str, Any]]:
        """The metrics of each held-out set, by name; "" for the only one."""
        return parts_of(self.metrics, self.names)


@dataclass
class TrainState:
    """The progress of a run: all that a resume needs beside the engine's own state."""

    # steps made, including those whose update was skipped. With the batch size and the skipped batches it gives the
    # samples consumed, and with the seed the order of all rows to come.
    step: Count = 0
    seconds: Finite = 0.0  # wall-clock time of all starts
    tokens: Count = 0  # tokens trained on up to the last logged line, without padding
    # the task's sums since the last logged line over all ranks, in the order of `TrainingTask.sums_kind`
    meter: list[float] | None = None
    finished: bool = False


@dataclass
class TrainingRun:
    """A run whose engine is ready to train. The trainer and its parts share it."""

    settings: RunSettings
    control: ControlGroup
    engine: "Engine"
    state: TrainState
    description: str = ""  # of the optimizer's parameter groups, one line each
    hosts: Sequence[str] = ()  # host name of each rank, on rank 0; empty on the others
    clock: Clock = field(default_factory=Clock)
    say: Callable[[str], None] = print  # prints a line on rank 0, above the bar; `print` until the trainer is made

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


class Callback:
    """Observes the training of one start of a run. A subclass has the moments that it needs.

    A callback changes nothing: it sets nothing in the run, and the order of callbacks means nothing. The trainer calls
    them on all ranks. Between two logged lines none of them waits for the device.
    """

    def on_step(self, step: int) -> None:
        """After the step with this number."""

    def on_log(self, record: Mapping[str, Any], is_last: bool) -> None:
        """At a logging interval: the record of `metrics.jsonl`, and whether the step is the last one of the run."""

    def on_trial(self, evaluation: Evaluation, fraction: float) -> None:
        """After the evaluation of a `fraction` of the batches before the first step."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """After an evaluation."""

    def on_save(self) -> None:
        """Before a checkpoint of the present step is written."""

    def on_checkpoint(self, checkpoint: "Saved") -> None:
        """Once a checkpoint is complete, which may be some steps later."""

    def on_end(self) -> None:
        """After training, also if it failed. Not collective."""


class TrainingFailed(RuntimeError):
    """Training cannot continue. The message says why and what to try. status: the exit status of the ranks."""

    def __init__(self, message: str, status: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.status = status


def cannot_begin(problem: str) -> UserError:
    """The error of a start that cannot write its first files, for all ranks."""
    return UserError(f"the run cannot begin: {problem}; free some space, or choose another --output")
