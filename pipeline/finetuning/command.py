"""The work of `pipeline.finetune`: checks the command, trains each seed, predicts, and exports the models."""

import functools
import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash
from torch import nn

from common.errors import UserError
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.initial_weights import InitialWeights, best_checkpoint, fill_weights
from pipeline.checkpoint.retention import step_of
from pipeline.checkpoint.run_records import RESULTS, read_results
from pipeline.distributed import launcher
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import StopSignals
from pipeline.engine import workarounds
from pipeline.engine.hardware import detect_hardware, make_deterministic
from pipeline.finetuning import results
from pipeline.finetuning.fine_tuning import FineTuning, make_features
from pipeline.finetuning.resolve import FinetuneSettings, InitialModel, find_initial_model, resolve
from pipeline.run import lifecycle
from pipeline.run.launch import Prepared
from pipeline.run.lifecycle import nothing_to_do
from pipeline.settings.finetune import FinetuneFlags
from pipeline.sharing.export import export_usual
from pipeline.tasks import own_tasks
from pipeline.tasks.files import reading
from pipeline.tasks.kind import Features
from pipeline.tasks.registry import find_task
from pipeline.tasks.task import Splits, Task
from pipeline.training.state import TrainingRun


@dataclass(frozen=True)
class _Work:
    """What the runs of a command train on.

    Attributes:
        runs: the settings of the run of each seed.
        done: for each run, whether nothing is left to do.
        several_seeds: whether --seeds was given.
        initial: what the model starts from.
        splits: the examples.
        all_data: digest of all splits, those without labels included.
    """

    output: Path
    runs: Sequence[FinetuneSettings]
    done: Sequence[bool]
    several_seeds: bool
    initial: InitialModel
    splits: Splits
    all_data: str


def prepare(flags: FinetuneFlags, world_size: int) -> Prepared:
    """Checks a parsed command line for `world_size` ranks and reads its files. Writes nothing.

    Raises:
        UserError: a mistake.
    """
    if flags.deterministic:
        make_deterministic()
    if flags.is_own_task:
        task, splits = own_tasks.read(flags.own_data())
    else:
        task = find_task(flags.task_word)
        splits = reading.read(task, flags.data or "")
    _check_splits(flags, task, splits)
    initial = find_initial_model(flags.init, flags.outputs())
    trained_on = {split: examples for split, examples in splits.items() if split in ("train", *task.dev_splits)}
    all_data = digest(splits)
    runs = resolve(flags, task, len(splits["train"]), world_size, detect_hardware(), initial, digest(trained_on))
    for settings in runs:
        lifecycle.check(settings)
    _check_form(flags)
    done = [_is_done(settings, all_data) for settings in runs]
    several = flags.seeds is not None
    if several:
        run_directory.check_summary(flags.output)
    finished = all(done) and (not several or (flags.output / RESULTS).exists())
    work = _Work(flags.output, runs, done, several, initial, splits, all_data)
    message = nothing_to_do(flags.output) if finished else ""
    facts = {"the examples of all splits": all_data}
    return lifecycle.prepare_runs(flags.output, runs, done, functools.partial(run, work), message, facts)


def _check_splits(flags: FinetuneFlags, task: Task, splits: Splits) -> None:
    if "train" not in splits:
        raise UserError(f"--data {flags.data} holds no training examples of {task.name}; it has {', '.join(splits)}")
    if flags.evaluations_without_gain is not None and not set(task.dev_splits) & splits.keys():
        raise UserError("--patience waits for a better evaluation, but there is no dev set; drop it")


def _check_form(flags: FinetuneFlags) -> None:
    """Raises UserError if --output holds a run of one seed and --seeds is given, or the other way round."""
    single = (flags.output / "settings.json").exists()
    several = any(flags.output.glob("seed-*/settings.json"))
    if single and flags.seeds is not None:
        raise UserError(f"{flags.output} holds a run of one seed; leave --seeds out, or choose another --output")
    if several and flags.seeds is None:
        raise UserError(f"{flags.output} holds runs of several seeds; give --seeds, or choose another --output")


def _is_done(settings: FinetuneSettings, all_data: str) -> bool:
    """Whether the run has ended and has predicted the present examples."""
    written = settings.output / RESULTS
    return lifecycle.is_done(settings) and read_results(written).get("predicted_data") == all_data


def digest(splits: Splits) -> str:
    """xxh3_128 of all examples, in hexadecimal."""
    state = xxhash.xxh3_128()
    for split in sorted(splits):
        state.update(split.encode())
        for example in splits[split]:
            state.update(repr(example).encode())
    return str(state.hexdigest())


def run(work: _Work, check_unchanged: Callable[[], None]) -> int:
    """Trains each seed that is not done, and summarises several seeds. Collective.

    Args:
        check_unchanged: see `lifecycle.prepare_runs`.
    Returns:
        The exit status, see `pipeline.run.lifecycle.train`.
    """
    workarounds.init_distributed()
    control = ControlGroup()
    first = work.runs[0]
    features = make_features(first.task, work.initial.vocabulary, work.splits, first.max_length, first.limits)
    with run_directory.lock_run(work.output, control, check_unchanged, launcher.lock_seconds()):
        if work.several_seeds and control.rank == 0:
            (work.output / RESULTS).unlink(missing_ok=True)  # the summary of results that will be others
        signals = StopSignals()  # a signal between two seeds ends the second one
        for settings, done in zip(work.runs, work.done):
            if not done and (status := _run_seed(settings, work, features, control, signals)):
                return status
            gc.collect()  # an engine refers to itself; it would keep its device memory while the next one is made
        if work.several_seeds and control.rank == 0:
            results.write_summary(work.output, [settings.output for settings in work.runs])
        control.barrier()
        return 0


def _run_seed(
    settings: FinetuneSettings,
    work: _Work,
    features: Mapping[str, Features],
    control: ControlGroup,
    signals: StopSignals,
) -> int:
    """Trains one seed to its end, predicts with its best step and exports it. Returns the exit status."""
    initial = work.initial
    new_tensors: list[str] = []

    def make_initial_model() -> nn.Module:
        model = settings.task.kind.make_model(settings.task, settings.model, settings.execution)
        if not settings.random_weights and (weights := initial.weights) is not None:
            new_tensors.extend(fill_weights(model, weights, lambda name: _has_head_of(weights, settings.task)))
        return model

    opened = lifecycle.open_run(settings, make_initial_model, initial.vocabulary, control)
    _print_header(opened, settings, features, new_tensors)
    if status := lifecycle.train(opened, FineTuning(settings, features, control), signals):
        return status

    best = best_checkpoint(settings.output)
    model = settings.task.kind.make_model(settings.task, settings.model)
    model.load_state_dict(load_weights(best))
    model = model.to(opened.engine.device, next(opened.engine.module.parameters()).dtype)
    results.write_results(settings, model, features, control, opened.state.step, step_of(best), work.all_data)
    lifecycle.finish(opened, export_usual, f"the model of step {step_of(best)}")
    opened.engine.destroy()
    return 0


def _has_head_of(initial: InitialWeights, task: Task) -> bool:
    """Whether the head of `initial` is that of `task`: its outputs mean the same."""
    head = initial.head
    return head.finetuning_task == task.name and (not task.labels or head.labels in (None, task.labels))


def _print_header(
    opened: TrainingRun, settings: FinetuneSettings, features: Mapping[str, Features], new_tensors: list[str]
) -> None:
    task, examples = settings.task, ", ".join(f"{split} {found.examples:,}" for split, found in features.items())
    weights = "random weights" if settings.random_weights else f"weights from {settings.init}"
    new = f"; new: {', '.join(new_tensors)}" if new_tensors else ""
    subject = [f"task: {task.name}, seed {settings.seed}; examples: {examples}", f"model: {weights}{new}"]
    if task.columns is not None and task.labels:
        subject.append(f"labels: {', '.join(task.labels[:20])}{', ...' if len(task.labels) > 20 else ''}")
    details = [
        f"learning rate: {settings.engine.learning_rate:g} after {settings.warmup_steps:,} steps"
        f"{settings.rate_reason}; longest sequence {settings.max_length}"
    ]
    lifecycle.print_header(opened, subject, len(features["train"].lengths), "samples", details)
