"""Starts training, of pre-training and fine-tuning alike: check, open, resume, train, export.

launch.run_command -> train_all -> _train -> Trainer.train
"""

import gc
import json
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from common.errors import UserError
from common.files import atomic
from common.files.json_files import check_as
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.initial_weights import fill_weights
from pipeline.checkpoint.run_directory import RESULTS, read_results
from pipeline.checkpoint.save_and_load import load_latest
from pipeline.distributed import launcher, progress
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import EXIT_STOPPED, StopSignals, say_stopped
from pipeline.engine import workarounds
from pipeline.engine.engine_state import initialise
from pipeline.engine.hardware import processor
from pipeline.run.facts import facts_of_host, summary
from pipeline.settings import declare
from pipeline.settings.run_flags import RunFlags
from pipeline.settings.run_settings import PretrainSettings, RunSettings
from pipeline.settings.settings_file import SETTINGS
from pipeline.sharing.write_export import export_run
from pipeline.training.trainer import make_trainer
from pipeline.training.training_run import Clock, TrainingFailed, TrainingRun, TrainState, cannot_begin
from pipeline.training.training_task import TrainingTask


def check(flags: RunFlags, tasks: Sequence[TrainingTask]) -> dict[str, str]:
    """Checks the runs of a command: one, or one for each seed. Writes nothing.

    Returns what all ranks must agree on, by name: each reads the files of its own host, which may differ. Raises
    UserError: training would be wrong, or a directory holds a run with other settings or files that no run wrote.
    """
    for task in tasks:
        run_directory.check_same_settings(task.settings)
        run_directory.check_output(task.settings.flags.output, task.reopens)
    if _has_seeds(flags, tasks):
        run_directory.check_summary(flags.output)
    settings = tasks[0].settings
    shards = [*settings.data, *settings.flags.eval_data] if isinstance(settings, PretrainSettings) else []
    facts = {
        f"the run in {flags.output}": _states_on_disk(tasks),
        **(summary(facts_of_host(shards)) if settings.engine.world_size > 1 else {}),
        **{f"the setting {name}": json.dumps(value) for name, value in settings.fixed_values().items()},
        "the precision": settings.engine.precision,
        **tasks[0].facts(),
        # Ranks that compute in different ways could send their gradients in different orders.
        "how the model runs": str(settings.execution),
    }
    if settings.engine.zero_stage == 0:  # each rank updates all weights, and another processor rounds in another way
        facts["the processor (stage 0 needs one kind; set ZeRO stage 1)"] = (
            processor() if settings.engine.device == "CPU" else settings.engine.device
        )
    return facts


def is_finished(flags: RunFlags, tasks: Sequence[TrainingTask]) -> bool:
    """Whether nothing is left to do."""
    summary = flags.output / RESULTS
    if _has_seeds(flags, tasks):
        seeds: list[Any] = (read_results(summary).seeds if summary.exists() else None) or []
        if [seed.get("seed") for seed in seeds] != [task.settings.flags.seed for task in tasks]:
            return False
    return all(task.is_done for task in tasks)


def _has_seeds(flags: RunFlags, tasks: Sequence[TrainingTask]) -> bool:
    """Whether the command makes runs of several seeds, in directories of their own below its --output."""
    return tasks[0].settings.flags.output != flags.output


def _states_on_disk(tasks: Sequence[TrainingTask]) -> str:
    def state(task: TrainingTask) -> str:
        at = task.settings.flags.output
        is_there = "ended" if (at / "done").exists() else "begun" if (at / SETTINGS).exists() else "not there"
        return "finished" if task.is_done else is_there

    return ", ".join(map(state, tasks))


def train_all(flags: RunFlags, tasks: Sequence[TrainingTask], facts: Mapping[str, str]) -> int:
    """Trains each run that is not done. Collective.

    facts: what `check` has found. Returns the exit status, see `_train`.
    """
    workarounds.init_distributed()
    control = ControlGroup()

    def check_unchanged() -> None:
        if _states_on_disk(tasks) != facts[f"the run in {flags.output}"]:
            raise UserError(f"another command has trained in {flags.output} meanwhile; give this command again")

    has_seeds = _has_seeds(flags, tasks)
    with run_directory.lock_run(flags.output, control, check_unchanged, launcher.lock_seconds()):
        if has_seeds and control.rank == 0:
            (flags.output / RESULTS).unlink(missing_ok=True)  # the summary of results that will be others
        signals = StopSignals()  # a signal between two seeds ends the second one
        for task in tasks:
            if not task.is_done and (status := _train(flags, task, control, signals)):
                return status
            gc.collect()  # an engine refers to itself; it would keep its device memory while the next one is made
        if has_seeds and control.rank == 0:
            tasks[0].summarise_seeds([task.settings.flags.output for task in tasks])
        control.barrier()
    return 0


def _train(flags: RunFlags, task: TrainingTask, control: ControlGroup, signals: StopSignals) -> int:
    """Trains one run to its end, and exports its model. Collective.

    Returns the exit status: 0; 1 if training failed; 69 if ranks hold different weights; 75 if a signal ended it early.
    Rank 0 has printed why.
    """
    task.open(control)
    run, new_tensors = _make_run(flags, task, control)
    _print_header(run, task, None if run.state.step else new_tensors)
    trainer = make_trainer(run, task, signals)
    try:
        stop_signal = trainer.train()
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
    if status == 0:
        _export(run, task.conclude(run))
        if run.is_rank_0 and (line := task.last_line()):
            print(line, flush=True)
    control.barrier()  # the launcher ends all ranks as soon as one exits
    run.engine.destroy()
    return status


def _make_run(flags: RunFlags, task: TrainingTask, control: ControlGroup) -> tuple[TrainingRun, list[str]]:
    """Makes the model and the engine, loads the newest checkpoint, and writes the run's settings. Collective.

    Returns the run, and the names of the tensors that the initial weights did not fill. Raises UserError: rank 0 cannot
    write the settings; on all ranks.
    """
    settings, output = task.settings, task.settings.flags.output
    if task.reopens and control.rank == 0:
        (output / "done").unlink(missing_ok=True)  # the export stays until the new end
    progress.get_progress().start_run()
    torch.manual_seed(settings.flags.seed)
    model, weights = task.make_model(), task.weights
    new_tensors = [] if weights is None else fill_weights(model, weights, task.has_head)
    if weights is not None and not task.shares_weights:
        weights.tensors.clear()
    engine, description = initialise(model, settings.engine)
    saved = load_latest(engine, control, output / "checkpoints")
    if saved is None and settings.branch is not None:
        saved = load_latest(engine, control, Path(settings.branch.run) / "checkpoints", settings.branch.step)
        assert saved is not None
        saved |= {"seconds": 0.0, "finished": False}  # the hours of this run are its own
    state = TrainState() if saved is None else _state_of(saved, settings)
    if settings.branch is not None and state.step == settings.branch.step and state.meter is not None:
        names = task.sums_kind._fields  # of the last steps of the other run, which has not logged them
        of_other = dict(zip(names, state.meter)) if len(names) == len(state.meter) else {}
        state.tokens, state.meter = state.tokens + int(of_other.get("tokens", 0)), None
    yaml, write = declare.to_yaml(flags), run_directory.write_settings_and_vocabulary
    # After the load: a run that cannot be resumed stays as it is.
    control.on_rank_0(lambda: write(settings, yaml, task.vocabulary), (OSError,), cannot_begin)
    hosts = control.gather(socket.gethostname()) or ()
    return TrainingRun(settings, control, engine, state, description, hosts, Clock(state.seconds)), new_tensors


def _state_of(saved: Any, settings: RunSettings) -> TrainState:
    state = check_as(saved, TrainState, settings.flags.output / "checkpoints", "restore a whole checkpoint")
    if state.step > settings.steps:
        raise UserError(
            f"{settings.flags.output / 'checkpoints'} has a checkpoint of step {state.step:,}, and the run has "
            f"{settings.steps:,} steps; restore settings.json and checkpoints of one run"
        )
    # Without a time limit a run ends at its last step only. So it has become longer since.
    if settings.flags.max_hours is None and state.step < settings.steps:
        state.finished = False
    return state


def _print_header(run: TrainingRun, task: TrainingTask, new_tensors: Sequence[str] | None) -> None:
    if not run.is_rank_0:
        return
    settings, engine, step, branch = run.settings, run.settings.engine, run.state.step, run.settings.branch
    epochs = settings.samples_after(settings.steps) / task.rows
    origin = f"resuming from step {step}"
    if branch is not None and branch.step == step:
        origin = f"going on from step {step} of {branch.run}"
    lines = [
        *task.subject(new_tensors),
        run.description,
        f"batch: {engine.describe_batch(task.noun)}; {settings.steps:,} steps = {epochs:.2f} epochs of "
        f"{task.rows:,} {task.noun}",
        f"precision: {engine.precision}, ZeRO stage {engine.zero_stage}"
        f"{', deterministic algorithms' if settings.flags.deterministic else ''}",
        *task.details(),
        *(f"note: {note}" for note in engine.notes),
        *([origin] if step else []),
    ]
    print("\n".join(lines), flush=True)


def _export(run: TrainingRun, model: str) -> None:
    """Exports the model and marks the run as done, on rank 0. model: which one it is, for people."""
    if run.is_rank_0:
        output, steps, hours = run.settings.flags.output, run.state.step, run.settings.flags.max_hours
        form = export_run(output, output / "export")
        atomic.write_text(output / "done", f"{steps}\n")
        early = ""
        if steps < run.settings.steps:
            early = f" of {run.settings.steps}" + (f", because --max-hours {hours:g} are over" if hours else "")
        print(f"finished after {steps} steps{early}: {output / 'export'} holds {model} {form}")
