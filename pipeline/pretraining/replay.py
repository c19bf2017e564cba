"""The work of `pipeline.replay`: makes steps of a run again, and compares them with its records."""

import argparse
import dataclasses
import functools
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from common.errors import UserError
from common.files.json_files import check_as
from data_prep.text.vocabulary import Vocabulary
from pipeline.checkpoint import loader, manifest, retention, run_directory
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import EXIT_FAILED, EXIT_STOPPED, StopSignals
from pipeline.engine import workarounds
from pipeline.engine.build import initialise
from pipeline.engine.hardware import detect_hardware, make_deterministic
from pipeline.pretraining.command import fill_initial, make_model, make_task, open_data
from pipeline.pretraining.resolve import PretrainSettings, resolve
from pipeline.run import attention_choice
from pipeline.run.launch import Prepared
from pipeline.settings import declare, pretrain
from pipeline.training import rollback
from pipeline.training.agreement import Agreements
from pipeline.training.callback import Callback, TrainingFailed
from pipeline.training.callbacks.console import Console
from pipeline.training.callbacks.step_metrics import StepMetrics
from pipeline.training.callbacks.weight_checksums import WeightChecksums, layout_of
from pipeline.training.metrics_log import METRICS, read_records
from pipeline.training.saves import Saves
from pipeline.training.state import Clock, TrainingRun, TrainState
from pipeline.training.trainer import Trainer

_BATCHES = "batch_checksum"
_COMPARED = ("loss", "grad_norm", _BATCHES, "weights_checksum", "moments_checksum")

Records = dict[int, dict[str, Any]]
"""Train records by step."""


@dataclass(frozen=True)
class Replay:
    """What is made again.

    Attributes:
        settings: of the run.
        tag: the checkpoint before the steps; None for the beginning of the run.
        records: of the steps that are made again; the last one is the step that was asked for.
    """

    settings: PretrainSettings
    tag: Path | None
    records: Records


def prepare(args: argparse.Namespace, world_size: int) -> Prepared:
    """Checks a parsed command line of `pipeline.replay`. Writes nothing. Raises UserError for a mistake."""
    settings = _settings_of(args, world_size)
    records = {record["step"]: record for record in read_records(args.run, "train")}
    last = min((step for step in records if step >= args.step), default=None)
    if last is None:
        raise UserError(f"{args.run / METRICS} has no record of step {args.step:,} or a later one")
    tags = (tag for tag in retention.tags(args.run / "checkpoints") if retention.step_of(tag) < last)
    tag = next((tag for tag in tags if _is_complete(tag)), None)
    if tag is None and settings.initial is not None and settings.initial.weights is None:
        raise UserError(f"{args.run} has no checkpoint before step {last:,}, and did not begin with random weights")
    first = 0 if tag is None else retention.step_of(tag)
    replay = Replay(settings, tag, {step: record for step, record in records.items() if first < step <= last})
    facts = {"the run": str(settings.identity()), "the checkpoint": str(tag), "the step": str(last)}
    # No rank is watched for hangs: the stacks would be written into the run.
    return Prepared(args.run, facts, functools.partial(run, replay), settings.host_timeout, hang_timeout=0.0)


def _settings_of(args: argparse.Namespace, world_size: int) -> PretrainSettings:
    recorded = run_directory.read_settings(args.run)
    words = [*(recorded.get("command") or ())]
    if "objective" not in recorded or not words:
        raise UserError(f"{args.run} is no pre-training run of this version, and only these are replayed")
    words += ["--precision", recorded.get("precision") or "auto", "--output", str(args.run)]
    words += ["--data", *args.data] if args.data else []
    words += ["--deepspeed_config", str(args.deepspeed_config)] if args.deepspeed_config else []
    flags = dataclasses.replace(pretrain.parse(words), eval_data=())  # nothing is evaluated
    if flags.deterministic:
        make_deterministic()
    settings = resolve(flags, world_size, detect_hardware())
    workarounds.reject_unsafe_settings(settings.engine.json)
    run_directory.check_same_settings(args.run, settings.identity(), defaults=declare.earlier_values(PretrainSettings))
    if settings.max_hours is not None:
        raise UserError(f"{args.run} has --max-hours: its learning rates followed the clock and cannot be replayed")
    return dataclasses.replace(settings, on_divergence=None, save_mode="foreground")


def _is_complete(tag: Path) -> bool:
    try:
        manifest.check(tag, content=False)
    except manifest.DamagedCheckpoint:
        return False
    return True


class _ReplayTrainer(Trainer):
    """Saves nothing."""

    def _save(self, required: bool) -> None:
        pass

    def _save_to_stop(self) -> bool:
        return True


class _Recorder(Callback):
    """Keeps the records, and ends training at the last of them."""

    def __init__(self, opened: TrainingRun, last: int) -> None:
        self._run, self._last = opened, last
        self.records: Records = {}

    def on_agreement(self, sums: list[float]) -> None:
        self._run.ends = self._run.state.step + 1 >= self._last

    def on_log(self, record: dict[str, Any]) -> None:
        self.records[self._run.state.step] = dict(record)


def run(replay: Replay) -> int:
    """Makes the steps again and prints the comparison. Collective. Returns the exit status of `pipeline.replay`."""
    settings, last = replay.settings, max(replay.records)
    vocabulary = Vocabulary.load(settings.data[0])
    training, _ = open_data(settings, vocabulary)
    workarounds.init_distributed()
    control = ControlGroup()
    first_step = make_task(settings, training, {}, control).steps([0])
    settings = attention_choice.choose_for_run(settings, lambda: next(first_step)[0], control)
    torch.manual_seed(settings.seed)
    model = make_model(settings)
    if replay.tag is None:
        fill_initial(model, settings, training)
    engine, _ = initialise(model, settings.engine, settings.execution.cuda_graphs)
    state = TrainState()
    if replay.tag is not None:
        state = check_as(loader.load(engine, replay.tag), TrainState, replay.tag, "restore the checkpoint")
        state.finished, state.evaluation_due = False, None
    rollbacks = rollback.read(settings.output)
    rollback.check(settings.output, rollbacks, state.step, state.rollbacks)
    if control.rank == 0:
        print(f"making steps {state.step + 1:,} to {last:,} of {settings.output} again", flush=True)
    hosts = control.gather(socket.gethostname()) or ()
    opened = TrainingRun(settings, control, engine, state, rollbacks=rollbacks, hosts=hosts, clock=Clock(state.seconds))
    task = make_task(settings, training, {}, control)  # no held-out rows: it never evaluates
    recorder = _Recorder(opened, last)
    callbacks = [StepMetrics(opened, task), WeightChecksums(opened), recorder, Console(opened, "replay")]
    agreements = Agreements(control, StopSignals(saves=False), callbacks)
    try:
        stopped = _ReplayTrainer(opened, task, agreements, callbacks, Saves(opened, [])).train() is not None
    except TrainingFailed as error:
        if control.rank == 0:
            print(f"the replay failed: {error}", flush=True)
        return EXIT_FAILED
    if stopped:
        if control.rank == 0:
            print(f"stopped after step {state.step:,}: nothing is compared", flush=True)
        return EXIT_STOPPED
    status = 0
    if control.rank == 0:
        lines, status = compare(replay.records, recorder.records, layout_of(settings))
        print("\n".join(lines), flush=True)
    return int(control.sum([float(status)])[0])


def compare(recorded: Records, again: Records, layout: str) -> tuple[list[str], int]:
    """Compares the records of each step, up to the first step that differs.

    Args:
        layout: how the replay divides a step (`layout_of`). A run that divided it otherwise, at a record or before it,
            computed with other roundings: there only the batches are compared.
    Returns:
        The lines for people; and the exit status.
    """
    other: str | None = None
    lines, before = [], "the checkpoint"
    for step in sorted(recorded):
        then, now = recorded[step], again[step]
        if other is None and then.get("layout", layout) != layout:
            other = then["layout"]
            lines.append(f"only batches are compared: the run computed on {other}, this replay on {layout}")
        names = [name for name in _COMPARED if then.get(name) is not None and (other is None or name == _BATCHES)]
        different = [name for name in names if then[name] != now.get(name)]
        lines += [f"step {step:,}: {name} was {then[name]}, and is {now.get(name)} now" for name in different]
        if _BATCHES in different:
            lines.append(
                f"a batch after {before} was another one on the device: it was changed after it was read, or the "
                "shards have changed since (python -m data_prep verify tells)"
            )
        elif different:
            lines.append(
                f"what followed {before} was not computed as here, from the same batches: weights, moments or the "
                "computation went wrong, then or now; replay it on another host as well"
            )
        if different:
            return lines, EXIT_FAILED
        before = f"step {step:,}"
    return [*lines, f"{before} is as recorded: {', '.join(names)}"], 0
