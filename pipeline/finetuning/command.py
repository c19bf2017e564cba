"""The work of `pipeline.finetune`: checks the command, trains each seed, predicts, and exports the models."""

import argparse
import gc
from collections.abc import Mapping
from dataclasses import dataclass

import xxhash
from torch import nn

from common.errors import UserError
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.initial_weights import fill
from pipeline.checkpoint.model_export import best_checkpoint
from pipeline.checkpoint.retention import step_of
from pipeline.checkpoint.run_records import RESULTS, read_results
from pipeline.distributed import elastic
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import StopSignals
from pipeline.engine import workarounds
from pipeline.engine.build import release
from pipeline.engine.machine import determinism
from pipeline.engine.machine.hardware import detect_hardware
from pipeline.finetuning import own_flags, results
from pipeline.finetuning.earlier_start import InitialModel, answers_alone, find_initial_model
from pipeline.finetuning.export import finetuned
from pipeline.finetuning.heads import has_head_of, make_model
from pipeline.finetuning.settings import FinetuneSettings, directories, parser, resolve
from pipeline.finetuning.task import FineTuning, make_features
from pipeline.sharing.export import export_usual
from pipeline.tasks import own
from pipeline.tasks.examples import Splits
from pipeline.tasks.features.base import Features
from pipeline.tasks.files import reading
from pipeline.tasks.registry import OWN_TASKS, find_task
from pipeline.tasks.task import Task
from pipeline.training import lifecycle
from pipeline.training.attention import choice
from pipeline.training.lifecycle import Finished, OpenRun, nothing_to_do
from pipeline.training.settings import EARLIER_DEFAULTS


@dataclass(frozen=True)
class Prepared(lifecycle.Prepared[FinetuneSettings]):
    """A checked command line.

    Attributes:
        several_seeds: whether --seeds was given.
        initial: what the model starts from.
        splits: the examples.
        all_data: digest of all splits, those without labels included.
    """

    several_seeds: bool
    initial: InitialModel
    splits: Splits
    all_data: str

    def facts(self) -> dict[str, str]:
        """See `pipeline.training.lifecycle.Prepared.facts`; and the examples."""
        return super().facts() | {"the examples of all splits": self.all_data}


def prepare(args: argparse.Namespace, world_size: int) -> Prepared | Finished:
    """Checks a parsed command line for `world_size` ranks and reads its files. Writes nothing.

    Raises:
        UserError: a mistake.
    """
    places = directories(args)
    if answers_alone(args, parser(), places) and (args.seeds is None or results.is_summed_up(args.output, places)):
        return Finished(args.output, args.host_timeout, args.hang_timeout)
    if args.deterministic:
        determinism.switch_on()
    if args.task in OWN_TASKS:
        task, splits = own.read(own_flags.read(args))
    else:
        task = find_task(args.task)
        splits = reading.read(task, args.data)
    _check_splits(args, task, splits)
    initial = find_initial_model(args.init, places)
    trained_on = {split: examples for split, examples in splits.items() if split in ("train", *task.dev_splits)}
    all_data = digest(splits)
    hardware = detect_hardware()
    runs = resolve(args, task, len(splits["train"]), world_size, hardware, initial, digest(trained_on))
    for settings in runs:
        lifecycle.check(settings, same={"data": all_data}, defaults=EARLIER_DEFAULTS)
    _check_form(args)
    done = [_is_done(settings, all_data) for settings in runs]
    finished = all(done)
    if args.seeds is not None:
        run_directory.check_summary(args.output)
        finished = finished and results.is_summed_up(args.output, places)
    message = nothing_to_do(args.output) if finished else ""
    return Prepared(args.output, runs, done, message, args.seeds is not None, initial, splits, all_data)


def _check_splits(args: argparse.Namespace, task: Task, splits: Splits) -> None:
    if "train" not in splits:
        raise UserError(f"--data {args.data} holds no training examples of {task.name}; it has {', '.join(splits)}")
    if args.patience is not None and not set(task.dev_splits) & splits.keys():
        raise UserError(f"--patience waits for a better evaluation, but {_source(args)} has no dev set; drop it")


def _source(args: argparse.Namespace) -> str:
    """Where the examples come from, as the command line says it."""
    return f"--train-file {args.train_file}" if args.data is None else f"--data {args.data}"


def _check_form(args: argparse.Namespace) -> None:
    """Raises UserError if --output holds a run of one seed and --seeds is given, or the other way round."""
    single = (args.output / "settings.json").exists()
    several = any(args.output.glob("seed-*/settings.json"))
    if single and args.seeds is not None:
        raise UserError(f"{args.output} holds a run of one seed; leave --seeds out, or choose another --output")
    if several and args.seeds is None:
        raise UserError(f"{args.output} holds runs of several seeds; give --seeds, or choose another --output")


def _is_done(settings: FinetuneSettings, all_data: str) -> bool:
    """Whether the run has ended and has predicted the present examples.

    A run of an older version did not record its examples, and counts as done.
    """
    if not lifecycle.is_done(settings):
        return False
    written = settings.output / RESULTS
    return not written.exists() or read_results(written).get("predicted_data", all_data) == all_data


def digest(splits: Splits) -> str:
    """xxh3_128 of all examples, in hexadecimal."""
    state = xxhash.xxh3_128()
    for split in sorted(splits):
        state.update(split.encode())
        for example in splits[split]:
            state.update(repr(example).encode())
    return str(state.hexdigest())


def run(prepared: Prepared) -> int:
    """Trains each seed that is not done, and summarises several seeds. Collective.

    Returns:
        The exit status, see `pipeline.training.lifecycle.train`.
    """
    workarounds.init_distributed()
    control = ControlGroup()
    first = prepared.runs[0]
    features = make_features(first.task, prepared.initial.vocabulary, prepared.splits, first.max_length, first.limits)
    with run_directory.lock_run(prepared.output, control, prepared.check_unchanged, elastic.lock_seconds()):
        signals = StopSignals()  # a signal between two seeds ends the second one
        for settings, done in zip(prepared.runs, prepared.done):
            if not done and (status := _run_seed(settings, prepared, features, control, signals)):
                return status
            gc.collect()  # an engine refers to itself; it would keep its device memory while the next one is made
        if prepared.several_seeds and control.rank == 0:
            results.write_summary(prepared.output, [settings.output for settings in prepared.runs])
        control.barrier()
        return 0


def _run_seed(
    settings: FinetuneSettings,
    prepared: Prepared,
    features: Mapping[str, Features],
    control: ControlGroup,
    signals: StopSignals,
) -> int:
    """Trains one seed to its end, predicts with its best step and exports it. Returns the exit status."""
    initial = prepared.initial
    first_step = FineTuning(settings, features, control).steps([0])
    outputs = [one.output for one in prepared.runs]
    settings = choice.choose_for_run(settings, lambda: next(first_step)[0], control, outputs)
    new_tensors: list[str] = []

    def make_initial_model() -> nn.Module:
        model = make_model(settings.task, settings.model, settings.execution)
        if not settings.random_weights and (weights := initial.weights) is not None:
            new_tensors.extend(fill(model, weights, lambda name: has_head_of(weights, settings.task)))
        return model

    opened = lifecycle.open_run(settings, make_initial_model, initial.vocabulary, control)
    _introduce(opened, settings, features, new_tensors)
    if status := lifecycle.train(opened, FineTuning(settings, features, control), signals):
        return status

    best = best_checkpoint(settings.output)
    best_step = step_of(best)
    model = make_model(settings.task, settings.model)
    model.load_state_dict(load_weights(best))
    model = model.to(opened.engine.device, next(opened.engine.module.parameters()).dtype)
    counts = {split: len(examples) for split, examples in prepared.splits.items()}
    results.write_results(settings, model, features, counts, control, opened.state.step, best_step, prepared.all_data)
    lifecycle.finish(opened, lambda run, out: export_usual(finetuned(run), out), f"the model of step {best_step}")
    release(opened.engine)
    return 0


def _introduce(
    opened: OpenRun, settings: FinetuneSettings, features: Mapping[str, Features], new_tensors: list[str]
) -> None:
    examples = ", ".join(f"{split} {found.examples:,}" for split, found in features.items())
    weights = "random weights" if settings.random_weights else f"weights from {settings.init}"
    if new_tensors:
        weights += f"; new: {', '.join(new_tensors)}"
    task = settings.task
    subject = [f"task: {task.name}, seed {settings.seed}; examples: {examples}", f"model: {weights}"]
    if task.columns is not None and task.kind != "regression":
        more = f" and {len(task.labels) - 20} more" if len(task.labels) > 20 else ""
        subject.append(f"labels: {', '.join(task.labels[:20])}{more}")
    details = [
        f"learning rate: {settings.engine.learning_rate:g} after {settings.warmup_steps:,} steps; "
        f"longest sequence {settings.max_length}"
    ]
    lifecycle.introduce(opened, subject, len(features["train"].lengths), "samples", details)
