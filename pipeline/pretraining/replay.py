"""The work of `pipeline.replay`: makes steps of a run again, and compares them with its record."""

import argparse
import dataclasses
import functools
import math
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from common.errors import UserError
from common.files.json_files import check_as
from data_prep.text.vocabulary import Vocabulary
from model import AlbertForPreTraining
from pipeline.checkpoint import loader, manifest, retention, run_directory
from pipeline.distributed import progress
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import EXIT_FAILED, EXIT_STOPPED, StopSignals
from pipeline.engine import workarounds
from pipeline.engine.build import initialise
from pipeline.engine.hardware import detect_hardware, make_deterministic
from pipeline.pretraining.command import fill_initial, open_data
from pipeline.pretraining.resolve import PretrainSettings, resolve
from pipeline.pretraining.task import PreTraining
from pipeline.run import attention_choice
from pipeline.run.launch import Prepared
from pipeline.settings import declare, pretrain
from pipeline.training import rollback
from pipeline.training.agreement import Agreements
from pipeline.training.callback import Callback, TrainingFailed
from pipeline.training.callbacks.console import Console
from pipeline.training.callbacks.hang_progress import HangProgress
from pipeline.training.callbacks.step_metrics import StepMetrics
from pipeline.training.callbacks.weight_checksums import CHECKSUMS, LAYOUT, WeightChecksums, layout_of
from pipeline.training.metrics_log import METRICS, read_records
from pipeline.training.saves import Saves
from pipeline.training.state import Clock, TrainingRun, TrainState
from pipeline.training.trainer import Due, Trainer

ROUNDING = {"fp32": 1e-4, "bf16": 2e-2, "fp16": 2e-2}
"""By precision, the largest relative difference of losses and norms between divisions of a step into ranks."""
_BATCH = "batch_checksum"
_SHOWN = {
    "loss": "loss",
    "grad_norm": "gradient norm",
    _BATCH: "batches",
    "weights_checksum": "weights",
    "moments_checksum": "moments",
}

Records = dict[int, dict[str, Any]]
"""The train records of a run, by step."""


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

    @property
    def first(self) -> int:
        """The steps that the run had made before."""
        return 0 if self.tag is None else retention.step_of(self.tag)

    @property
    def last(self) -> int:
        """The step that is compared last."""
        return max(self.records)


def prepare(args: argparse.Namespace, world_size: int) -> Prepared:
    """Checks a parsed command line of `pipeline.replay`. Writes nothing. Raises UserError for a mistake."""
    recorded = run_directory.read_settings(args.run)
    if "objective" not in recorded:
        raise UserError(f"{args.run} is a fine-tuning run, and only pre-training is replayed; give its command again")
    records = {record["step"]: record for record in read_records(args.run, "train")}
    if not any(step >= args.step for step in records):
        known = f"its last is of step {max(records):,}" if records else "it has none"
        raise UserError(f"{args.run / METRICS} has no record of step {args.step:,} or a later one: {known}")
    last = min(step for step in records if step >= args.step)
    settings = _settings(args, recorded, world_size)
    if settings.max_hours is not None:
        raise UserError(f"{args.run} has --max-hours: its learning rates followed the clock and cannot be replayed")
    tags = (tag for tag in retention.tags(args.run / "checkpoints") if retention.step_of(tag) < last)
    tag = next((tag for tag in tags if _is_complete(tag)), None)
    if tag is None and settings.initial is not None and settings.initial.weights is None:
        raise UserError(f"{args.run} has no checkpoint before step {last:,}, and did not begin with random weights")
    first = 0 if tag is None else retention.step_of(tag)
    replay = Replay(settings, tag, {step: one for step, one in records.items() if first < step <= last})
    facts = {"the run": str(settings.identity()), "the checkpoint": str(tag), "the step": str(last)}
    work = functools.partial(run, replay)
    # No rank is watched for hangs: the stacks would be written into the run.
    return Prepared(settings.output, facts, work, settings.host_timeout, hang_timeout=0.0)


def _settings(args: argparse.Namespace, recorded: Mapping[str, Any], world_size: int) -> PretrainSettings:
    words = run_directory.read_command(args.run)
    if not words:
        raise UserError(f"{args.run} was made by an older version, which did not record its command")
    words += ["--precision", recorded.get("precision") or "auto", "--output", str(args.run)]
    words += ["--data", *args.data] if args.data else []
    words += ["--deepspeed_config", str(args.deepspeed_config)] if args.deepspeed_config else []
    # A replay does not evaluate, and the held-out rows may be gone.
    given = dataclasses.replace(pretrain.parse(words), eval_data=())
    if given.deterministic:
        make_deterministic()
    settings = resolve(given, world_size, detect_hardware())
    workarounds.reject_unsafe_settings(settings.engine.json)
    run_directory.check_same_settings(args.run, settings.identity(), defaults=declare.earlier_values(PretrainSettings))
    return settings


def _is_complete(tag: Path) -> bool:
    try:
        manifest.check(tag, content=False)
    except manifest.DamagedCheckpoint:
        return False
    return True


@dataclass
class ReplayTrainer(Trainer):
    """Makes steps again up to the last one of `records`, with a record at each of them. It saves nothing."""

    records: Records = field(default_factory=dict)

    def _due(self, step: int) -> Due:
        return Due(log=step in self.records, evaluate=False, save=False, last=step == max(self.records))

    def _save(self, required: bool) -> None:
        pass


@dataclass
class _Recorder(Callback):
    """Keeps the records."""

    run: TrainingRun
    found: Records = field(default_factory=dict)

    def on_log(self, record: dict[str, Any]) -> None:
        self.found[self.run.state.step] = dict(record)


class _ReplayChecksums(WeightChecksums):
    """Compares the ranks at the steps whose record has checksums."""

    def __init__(self, run: TrainingRun, records: Records) -> None:
        super().__init__(run)
        self._records = records

    def is_due(self, step: int) -> bool:
        return self._records[step].get(_BATCH) is not None


def run(prepared: Replay) -> int:
    """Makes the steps again and prints the comparison. Collective. Returns the exit status of `pipeline.replay`."""
    settings = dataclasses.replace(prepared.settings, on_divergence=None, save_mode="foreground")
    rollbacks = rollback.read(settings.output)
    vocabulary = Vocabulary.load(settings.data[0])
    training, _ = open_data(settings, vocabulary)
    workarounds.init_distributed()
    control = ControlGroup()
    progress.get_progress().start_run()
    first_step = PreTraining(settings, training, {}, control, vocabulary.spellings).steps([0])
    settings = attention_choice.choose_for_run(settings, lambda: next(first_step)[0], control)
    prepared = dataclasses.replace(prepared, settings=settings)
    torch.manual_seed(settings.seed)
    model = AlbertForPreTraining(settings.model, settings.execution)
    if prepared.tag is None:
        fill_initial(model, settings)
    engine, _ = initialise(model, settings.engine, settings.execution.cuda_graphs)
    state = TrainState()
    if prepared.tag is not None:
        state = check_as(loader.load(engine, prepared.tag), TrainState, prepared.tag, "restore the checkpoint")
        rollback.check(settings.output, rollbacks, state.step, state.rollbacks)
        state.finished, state.evaluation_due = False, None
    if control.rank == 0:
        print(
            f"making steps {prepared.first + 1:,} to {prepared.last:,} of {settings.output} again, from "
            f"{'the beginning' if prepared.tag is None else prepared.tag.name}",
            flush=True,
        )
    task = PreTraining(settings, training, {}, control, vocabulary.spellings)  # no held-out rows: it never evaluates
    hosts = control.gather(socket.gethostname()) or ()
    opened = TrainingRun(settings, control, engine, state, rollbacks=rollbacks, hosts=hosts, clock=Clock(state.seconds))
    recorder = _Recorder(opened)
    callbacks: list[Callback] = [
        HangProgress(opened),
        StepMetrics(opened, task),
        _ReplayChecksums(opened, prepared.records),
        recorder,
        Console(opened, "replay", prepared.last),
    ]
    agreements = Agreements(control, StopSignals(saves=False), callbacks)
    trainer = ReplayTrainer(opened, task, agreements, callbacks, Saves(opened, []), records=prepared.records)
    try:
        stop_signal = trainer.train()
    except TrainingFailed as error:
        if control.rank == 0:
            print(f"the replay failed: {error}", flush=True)
        return EXIT_FAILED
    if stop_signal is not None:
        if control.rank == 0:
            name = signal.Signals(stop_signal).name
            print(f"stopped by {name} after step {state.step:,}: nothing is compared", flush=True)
        return EXIT_STOPPED
    status = print_comparison(prepared, recorder.found) if control.rank == 0 else 0
    return int(control.sum([float(status)])[0])


Row = tuple[str, Any, Any, str]
"""One line of the comparison: the name, the recorded value, the new one, and whether they agree."""


def compare(recorded: Mapping[str, Any], again: Mapping[str, Any], same: bool, settings: PretrainSettings) -> list[Row]:
    """The values of a record beside those of the same step made again.

    Args:
        same: whether all steps up to the record were divided into ranks as the replay is. Otherwise it is equal up to
            rounding at best, and only its batches are equal bit for bit. With dropout, whose masks belong to the
            ranks, nothing else is comparable.
    """
    dropout = settings.model.hidden_dropout_prob > 0 or settings.model.attention_probs_dropout_prob > 0
    tolerance = ROUNDING[settings.engine.precision]
    rows = []
    for key, name in _SHOWN.items():
        before, now = recorded.get(key), again.get(key)
        if isinstance(now, float) and not math.isfinite(now):
            now = None  # null in metrics.jsonl
        verdict = "equal" if before == now else "differs"
        if before is None and key in CHECKSUMS:
            verdict = "not recorded"
        elif not same and key != _BATCH:
            if dropout or key in CHECKSUMS:
                verdict = "not comparable"
            elif verdict == "differs" and before is not None and now is not None:
                verdict = "equal up to rounding" if math.isclose(before, now, rel_tol=tolerance) else "differs"
        rows.append((name, before, now, verdict))
    return rows


def print_comparison(prepared: Replay, again: Records) -> int:
    """Prints the comparison of the first record that differs, or of the last one, and returns the exit status."""
    layout, before = layout_of(prepared.settings), prepared.first
    other: str | None = None
    for step in sorted(prepared.records):
        recorded = prepared.records[step].get(LAYOUT)
        other = other or (recorded if recorded != layout else None)
        same = recorded == layout and other is None
        rows = compare(prepared.records[step], again[step], same, prepared.settings)
        wrong = [name for name, *_, verdict in rows if verdict == "differs"]
        if wrong or step == prepared.last:
            break
        before = step
    shown = [["-" if value is None else str(value) for value in row] for row in rows]
    cells = [[f"step {step:,}", "recorded", "again", ""], *shown]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    for line in cells:
        print("  ".join(text.ljust(width) for text, width in zip(line, [*widths, 0])).rstrip())
    if other is not None or recorded is None:
        which = "this step" if recorded != layout else "a step before it"
        print(f"the run computed {which} on {other or 'an unknown number of ranks'}, this replay on {layout}")
    where = f"step {step:,}" if step == before + 1 else f"one of the steps {before + 1:,} to {step:,}"
    if not wrong:
        print(f"step {step:,} is as recorded")
    elif "batches" in wrong:
        print(
            f"the batch of {where} was another one on the device: it was changed after it was read, or the shards have "
            "changed since (python -m data_prep verify tells)"
        )
    else:
        print(
            f"{where} was not computed as here, from the same batches: the weights, the moments or the computation "
            "went wrong, then or now; replay it on another host as well"
        )
    return EXIT_FAILED if wrong else 0
