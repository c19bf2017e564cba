"""The life of a run, common to pre-training and fine-tuning: check, open, print the header, train, finish.

prepare_runs -> open_run -> print_header -> train -> finish
"""

import functools
import json
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from common.errors import UserError
from common.files import atomic
from common.files.json_files import check_as
from common.text import fit_to_terminal
from data_prep.text.vocabulary import Vocabulary
from pipeline.checkpoint import loader, run_directory
from pipeline.checkpoint.mirror import Mirror
from pipeline.distributed import progress
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import EXIT_STOPPED, StopSignals, say_stopped
from pipeline.engine import workarounds
from pipeline.engine.build import initialise
from pipeline.run.launch import Prepared
from pipeline.tracking import services
from pipeline.training.callback import TrainingFailed, cannot_begin
from pipeline.training.callbacks import make_trainer
from pipeline.training.callbacks.step_metrics import Throughput
from pipeline.training.run_settings import RunSettings
from pipeline.training.state import Clock, TrainingRun, TrainState
from pipeline.training.training_task import TrainingTask


def prepare_runs(
    output: Path,
    runs: Sequence[RunSettings],
    done: Sequence[bool],
    work: Callable[[Callable[[], None]], int],
    finished: str,
    facts: Mapping[str, str],
) -> Prepared:
    """Makes the `Prepared` of a command whose runs have been checked: one run, or one for each seed.

    Args:
        output: the --output of the command.
        done: for each run, whether nothing is left to do.
        work: gets a function that raises UserError if another command has begun or ended one of the runs since now. It
            is called with the lock of the run, so that it stays true.
        finished: message if nothing is left to do for the whole command; "" if something is.
        facts: what all ranks must agree on beside the settings, the state of the runs on disk, and the precision.
    """
    on_disk = [_state_on_disk(run) for run in runs]

    def check_unchanged() -> None:
        if [_state_on_disk(run) for run in runs] != on_disk:
            raise UserError(f"another command has trained in {output} meanwhile; give this command again")

    first = runs[0]
    states = ("finished" if is_done else state for state, is_done in zip(on_disk, done))
    all_facts = {
        f"the run in {output}": ", ".join(states),
        **{f"the setting {name}": json.dumps(value, sort_keys=True) for name, value in first.identity().items()},
        "the precision": first.engine.precision,
        # Ranks that compute in different ways could send their gradients in different orders.
        "how the model runs": str(first.execution),
        **facts,
    }
    return Prepared(
        output, all_facts, functools.partial(work, check_unchanged), first.host_timeout, first.hang_timeout, finished
    )


def nothing_to_do(output: Path) -> str:
    """The message of a command that finds its run finished."""
    return f"{output} is finished: nothing to do"


def _state_on_disk(settings: RunSettings) -> str:
    if is_done(settings):
        return "ended"
    return "begun" if (settings.output / "settings.json").exists() else "not there"


def is_done(settings: RunSettings) -> bool:
    """Whether the run is marked as done: trained and exported."""
    return (settings.output / "done").exists()


def check(
    settings: RunSettings,
    same: Mapping[str, Any] | None = None,
    reopens: bool = False,
) -> None:
    """Checks the DeepSpeed JSON and the run's directory. Writes nothing.

    Args:
        same: see `run_directory.check_same_settings`.
        reopens: whether a run that is done will go on.
    Raises:
        UserError: training would be wrong, or the directory holds a run with other settings or files that no run wrote.
    """
    workarounds.reject_unsafe_settings(settings.engine.json)
    services.check(settings.track, settings.engine.json)
    run_directory.check_same_settings(settings.output, settings.identity(), same)
    run_directory.check_output(settings.output, reopens)


def open_run(
    settings: RunSettings, make_model: Callable[[], nn.Module], vocabulary: Vocabulary, control: ControlGroup
) -> TrainingRun:
    """Makes the model and the engine, loads the newest checkpoint, and writes the run's settings. Collective.

    Args:
        make_model: makes the model with its initial weights; torch's random numbers are seeded before.
        vocabulary: written into the run's directory.
    Raises:
        UserError: rank 0 cannot write the settings; on all ranks.
    """
    progress.get_progress().start_run()
    torch.manual_seed(settings.seed)
    engine, description = initialise(make_model(), settings.engine)
    saved = loader.load_latest(engine, settings.output / "checkpoints")
    state = TrainState() if saved is None else _state_of(saved, settings)

    def write_settings() -> None:
        run_directory.write_settings_and_vocabulary(settings.output, settings.to_dict(), vocabulary, settings.config)

    # After the load: a run that cannot be resumed stays as it is.
    control.all_or_raise(write_settings if control.rank == 0 else lambda: None, (OSError,), cannot_begin)
    hosts = control.gather(socket.gethostname()) or ()
    run = TrainingRun(settings, control, engine, state, description, hosts, Clock(state.seconds))
    _open_mirror(run)
    return run


def _open_mirror(run: TrainingRun) -> None:
    """Claims the place of --mirror and starts the uploads, on rank 0. Collective. Raises UserError on all ranks."""
    output, url = run.settings.output, run.settings.mirror

    def claim() -> None:
        if url is not None and run.is_rank_0:
            run.mirror = Mirror(output, url, lambda line: run.say(line))

    run.control.all_or_raise(claim, (OSError,), cannot_begin)
    if run.mirror is not None:
        run.mirror.begin()


def _finish_mirror(run: TrainingRun) -> None:
    """Waits for the last uploads."""
    if run.mirror is not None:
        run.mirror.finish(progress.get_progress().beat)


def _state_of(saved: Any, settings: RunSettings) -> TrainState:
    """The state in a checkpoint. Raises UserError if it does not fit."""
    state = check_as(saved, TrainState, settings.output / "checkpoints", "restore a whole checkpoint")
    # Without a time limit and without patience a run ends at its last step only. So it has become longer since.
    may_end_early = settings.max_hours is not None or settings.patience is not None
    if not may_end_early and state.step < settings.steps:
        state.finished = False
        state.evaluation_due = state.evaluation_due and "earlier"
    return state


def print_header(run: TrainingRun, subject: Sequence[str], rows: int, noun: str, details: Sequence[str]) -> None:
    """Prints what the run will do, on rank 0.

    Args:
        subject: the first lines: model, task and data.
        rows: number of rows or samples in the training data.
        noun: "rows" or "samples".
        details: further lines.
    """
    if not run.is_rank_0:
        return
    settings, engine = run.settings, run.settings.engine
    lines = [
        *subject,
        run.description,
        f"batch: {engine.describe_batch(noun)}; {settings.steps:,} steps = "
        f"{settings.steps * engine.train_batch_size / rows:.2f} epochs of {rows:,} {noun}",
        f"precision: {engine.precision}, ZeRO stage {engine.zero_stage}"
        f"{', deterministic algorithms' if settings.deterministic else ''}",
        *details,
        *(f"note: {note}" for note in engine.notes),
        *([f"resuming from step {run.state.step}"] if run.state.step else []),
    ]
    print(fit_to_terminal("\n".join(lines)), flush=True)


def train(run: TrainingRun, task: TrainingTask, signals: StopSignals, throughput: Throughput | None = None) -> int:
    """Trains to the end of the run. Collective.

    Args:
        signals: stop-signal handlers, already installed.
        throughput: see `make_trainer`.
    Returns:
        The exit status: 0; 1 if training failed; 69 if a rank holds wrong weights; 75 if a signal ended it early.
        Rank 0 has printed why.
    """
    try:
        stop_signal = make_trainer(run, task, signals, throughput).train()
    except TrainingFailed as error:  # raised on all ranks together
        if run.is_rank_0:
            print(f"error: {error}", file=sys.stderr, flush=True)
        status = error.status
    else:
        status = 0 if stop_signal is None else EXIT_STOPPED
        if stop_signal is not None and run.is_rank_0:
            say_stopped(stop_signal, run.state.step)
    finally:
        progress.get_progress().enter("end")
    if status:
        _finish_mirror(run)
        run.control.barrier()  # the launcher ends all ranks as soon as one exits
    return status


def finish(run: TrainingRun, export: Callable[[Path, Path], str], model: str = "the model") -> None:
    """Exports the model and marks the run as done, on rank 0. Collective.

    Args:
        export: writes the model of the run in the first directory to the second, and returns the format for people.
        model: which model is exported.
    """
    if run.is_rank_0:
        output, steps = run.settings.output, run.state.step
        form = export(output, output / "export")
        atomic.write_text(output / "done", f"{steps}\n")
        print(fit_to_terminal(f"finished after {steps} steps: {output / 'export'} holds {model} {form}"))
        _finish_mirror(run)
    run.control.barrier()
