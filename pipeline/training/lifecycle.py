"""The life of a run, common to pre-training and fine-tuning: check, open, introduce, train, finish.

Prepared(settings) -> open_run -> introduce -> train -> finish
"""

import contextlib
import json
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from common.errors import UserError
from common.files import atomic
from common.files.json_files import check_as
from data_prep.text.vocabulary import Vocabulary
from pipeline.checkpoint import loader, run_directory
from pipeline.distributed import collectives
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import EXIT_STOPPED, StopSignals, say_stopped
from pipeline.distributed.hangs import compilation, progress
from pipeline.engine import workarounds
from pipeline.engine.build import initialise
from pipeline.engine.protocol import Engine
from pipeline.tracking import choice
from pipeline.training.divergence import rollback
from pipeline.training.divergence.non_finite import TrainingFailed
from pipeline.training.divergence.rollback import Rollback, SpikeFound
from pipeline.training.divergence.spikes import Spike
from pipeline.training.reporting.clock import Clock
from pipeline.training.reporting.metrics_log import MetricsLog
from pipeline.training.reporting.throughput import Throughput
from pipeline.training.settings import RunSettings
from pipeline.training.state import TrainState
from pipeline.training.trainer import Trainer
from pipeline.training.training_task import TrainingTask

S = TypeVar("S", bound=RunSettings)


@dataclass(frozen=True)
class Prepared(Generic[S]):
    """A checked command line. It is a `pipeline.training.launch.Checked`.

    Attributes:
        output: the --output of the command.
        runs: the settings of each run: one run, or one for each seed.
        done: for each run, whether nothing is left to do.
        finished: message if nothing is left to do for the whole command; "" if something is.
    """

    output: Path
    runs: Sequence[S]
    done: Sequence[bool]
    finished: str
    _on_disk: tuple[tuple[bool, bool], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_on_disk", self._look())

    def _look(self) -> tuple[tuple[bool, bool], ...]:
        """For each run, whether it was begun, and whether it has ended."""
        return tuple(((run.output / "settings.json").exists(), is_done(run)) for run in self.runs)

    def check_unchanged(self) -> None:
        """Raises UserError if another command has begun or ended one of the runs since this command line was checked.

        Called with the lock of the run, so that it stays true.
        """
        if self._look() != self._on_disk:
            raise UserError(f"another command has trained in {self.output} meanwhile; give this command again")

    @property
    def host_timeout(self) -> float:
        """Seconds without an answer after which a host counts as lost."""
        return self.runs[0].host_timeout

    @property
    def hang_timeout(self) -> float:
        """Seconds without progress after which a rank counts as hanging, at least; 0 for never."""
        return self.runs[0].hang_timeout

    def facts(self) -> dict[str, str]:
        """What all ranks must agree on: the settings, the state of the runs on disk, and the precision."""
        first = self.runs[0]
        facts = {f"the setting {name}": json.dumps(value, sort_keys=True) for name, value in first.identity().items()}
        states = ", ".join(map(_state_on_disk, self.runs, self.done))
        return {f"the run in {self.output}": states, **facts, "the precision": first.engine.precision}


@dataclass(frozen=True)
class Finished:
    """A command that has nothing to do, which is known without reading its files. A `pipeline.training.launch.Checked`.

    Attributes:
        output: the --output of the command.
        host_timeout, hang_timeout: of the command.
    """

    output: Path
    host_timeout: float
    hang_timeout: float

    @property
    def finished(self) -> str:
        """The message."""
        return nothing_to_do(self.output)

    def facts(self) -> dict[str, str]:
        """See `Prepared.facts`."""
        return {f"the run in {self.output}": "finished"}


def nothing_to_do(output: Path) -> str:
    """The message of a command that finds its run finished."""
    return f"{output} is finished: nothing to do"


def _state_on_disk(settings: RunSettings, done: bool) -> str:
    if done:
        return "finished"
    return "begun" if (settings.output / "settings.json").exists() else "not there"


def is_done(settings: RunSettings) -> bool:
    """Whether the run is marked as done: trained and exported."""
    return (settings.output / "done").exists()


def check(
    settings: RunSettings,
    same: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    reopens: bool = False,
) -> None:
    """Checks the DeepSpeed JSON and the run's directory. Writes nothing.

    Args:
        same, defaults: see `run_directory.check_same_settings`.
        reopens: whether a run that is done will go on.
    Raises:
        UserError: training would be wrong, or the directory holds a run with other settings or files that no run wrote.
    """
    workarounds.reject_unsafe_settings(settings.engine.json)
    choice.check(settings.track, settings.engine.json)
    run_directory.check_same_settings(settings.output, settings.identity(), same, defaults)
    run_directory.check_output(settings.output, reopens)
    rollback.read(settings.output)


@dataclass
class OpenRun:
    """A run whose engine is ready to train.

    Attributes:
        state: restored from the newest checkpoint, or that of a new run.
        description: of the optimizer's parameter groups, one line each.
        rollbacks: that the run has made.
    """

    settings: RunSettings
    control: ControlGroup
    engine: Engine
    state: TrainState
    description: str
    rollbacks: list[Rollback]


def open_run(
    settings: RunSettings, make_model: Callable[[], nn.Module], vocabulary: Vocabulary, control: ControlGroup
) -> OpenRun:
    """Writes the run's settings, makes the model and the engine, and loads the newest checkpoint. Collective.

    Args:
        make_model: makes the model with its initial weights; torch's random numbers are seeded before.
        vocabulary: written into the run's directory.
    """
    progress.of_this_process().begin()
    if control.rank == 0:
        run_directory.write_settings_and_vocabulary(settings.output, settings.to_dict(), vocabulary)
    control.barrier()
    torch.manual_seed(settings.seed)
    engine, description = initialise(make_model(), settings.engine, settings.execution.cuda_graphs)
    saved = loader.load_latest(engine, settings.output / "checkpoints")
    state = TrainState() if saved is None else _state_of(saved, settings)
    rollbacks = control.broadcast(rollback.read(settings.output) if control.rank == 0 else None)
    rollback.check(settings.output, rollbacks, state.step, state.rollbacks)
    state.rollbacks = len(rollbacks)
    return OpenRun(settings, control, engine, state, description, rollbacks)


def _state_of(saved: Any, settings: RunSettings) -> TrainState:
    """The state in a checkpoint. Raises UserError if it does not fit."""
    state = check_as(saved, TrainState, settings.output / "checkpoints", "restore a whole checkpoint")
    # Without a time limit and without patience a run ends at its last step only. So it has become longer since.
    may_end_early = settings.max_hours is not None or settings.patience is not None
    if not may_end_early and state.step < settings.steps:
        state.finished = False
        state.evaluation_due = state.evaluation_due and "earlier"
    return state


def introduce(run: OpenRun, subject: Sequence[str], rows: int, noun: str, details: Sequence[str]) -> None:
    """Prints what the run will do, on rank 0.

    Args:
        subject: the first lines: model, task and data.
        rows: number of rows or samples in the training data.
        noun: "rows" or "samples".
        details: further lines.
    """
    if run.control.rank != 0:
        return
    settings, engine = run.settings, run.settings.engine
    print(
        *subject,
        run.description,
        f"batch: {engine.describe_batch(noun)}; {settings.steps:,} steps = "
        f"{settings.steps * engine.train_batch_size / rows:.2f} epochs of {rows:,} {noun}",
        f"precision: {engine.precision}, ZeRO stage {engine.zero_stage}"
        f"{', deterministic algorithms' if settings.deterministic else ''}",
        *details,
        *(f"note: {note}" for note in engine.notes),
        *([f"resuming from step {run.state.step}"] if run.state.step else []),
        sep="\n",
        flush=True,
    )


def train(run: OpenRun, task: TrainingTask, signals: StopSignals, throughput: Throughput | None = None) -> int:
    """Trains to the end of the run. After a spike it may go back to a checkpoint and go on from there. Collective.

    Args:
        signals: stop-signal handlers, already installed.
        throughput: see `Trainer`.
    Returns:
        The exit status: 0; 1 if training failed; 69 if a rank holds wrong weights; 75 if a signal ended it early.
        Rank 0 has printed why.
    """
    collectives.note()
    status = None
    try:
        while status is None:
            status = _train_until_spike(run, task, signals, throughput)
    finally:
        progress.of_this_process().enter("end")
    if status:
        run.control.barrier()  # the launcher ends all ranks as soon as one exits
    return status


def _train_until_spike(
    run: OpenRun, task: TrainingTask, signals: StopSignals, throughput: Throughput | None
) -> int | None:
    """As `train`. None: the run has gone back to a checkpoint before a spike, and has to go on from there."""
    control, state = run.control, run.state
    settings, json = run.settings, run.settings.engine.json
    metrics_log = MetricsLog(
        settings.output,
        state.step,
        enabled=control.rank == 0,
        settings=settings.to_dict(),
        on_gpu=run.engine.device.type != "cpu",
        all_curves=settings.all_curves,
        open_trackers=lambda tracked: choice.open_all(settings.track, json, tracked),
        evaluation_due=state.evaluation_due is not None,
    )
    hosts = control.gather(socket.gethostname()) or ()
    trainer = Trainer(
        settings, run.engine, task, control, metrics_log, state, signals, throughput, hosts, run.rollbacks
    )
    try:
        with compilation.recorded() if settings.execution.compile else contextlib.nullcontext():
            stop_signal = trainer.train()
        if stop_signal is None:
            return 0
        if control.rank == 0:
            say_stopped(stop_signal, state.step)
        return EXIT_STOPPED
    except SpikeFound as found:
        spike = found.spike
    except TrainingFailed as error:  # raised on all ranks together
        return _fail(run, error)
    finally:
        metrics_log.close(state.finished)
    try:
        _go_back(run, spike, trainer.clock)
    except TrainingFailed as error:
        return _fail(run, error)
    return None


def _fail(run: OpenRun, error: TrainingFailed) -> int:
    if run.control.rank == 0:
        print(f"error: {error}", file=sys.stderr, flush=True)
    return error.status


def _go_back(run: OpenRun, spike: Spike, clock: Clock) -> None:
    """Sets the run to a checkpoint before the spike, whose batches it will pass over. Collective.

    Args:
        clock: of the run. Its time does not go back, and the rollback takes some of it.
    """
    progress.of_this_process().enter("rollback")
    settings = run.settings
    made = rollback.roll_back(settings.output, run.rollbacks, spike, run.control)
    run.rollbacks.append(made)
    run.state = _state_of(loader.load_latest(run.engine, settings.output / "checkpoints"), settings)
    run.state.seconds, run.state.rollbacks = clock.seconds(), len(run.rollbacks)
    if run.control.rank == 0:
        (first, end), number = made.passed_over, len(run.rollbacks)
        print(
            f"rollback {number} of {settings.max_rollbacks}: {spike}; back to step {run.state.step:,}, passing over "
            f"batches {first:,} to {end - 1:,}",
            flush=True,
        )


def finish(run: OpenRun, export: Callable[[Path, Path], str], model: str = "the model") -> None:
    """Exports the model and marks the run as done, on rank 0. Collective.

    Args:
        export: writes the model of the run in the first directory to the second, and returns the format for people.
        model: which model is exported.
    """
    if run.control.rank == 0:
        output, steps = run.settings.output, run.state.step
        form = export(output, output / "export")
        atomic.write_text(output / "done", f"{steps}\n")
        print(f"finished after {steps} steps: {output / 'export'} holds {model} {form}")
    run.control.barrier()
