"""Fine-tuning as a `Recipe`: one for each seed, which share the examples.

At its end a run writes its predictions, submissions and `results.json`.
"""

import functools
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash
from torch import nn

from common.errors import UserError
from common.files import atomic
from pipeline.analysis.comparison import NOT_ABOVE, estimate_of
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.initial_weights import InitialWeights, best_checkpoint
from pipeline.checkpoint.retention import step_of
from pipeline.checkpoint.run_records import RESULTS, OneRunRecord, read_results
from pipeline.distributed.control import ControlGroup
from pipeline.engine.hardware import detect_hardware, make_deterministic
from pipeline.finetuning.fine_tuning import FineTuning, make_features, predict
from pipeline.finetuning.finetune_settings import FinetuneSettings, resolve
from pipeline.run import start
from pipeline.run.initial_model import InitialModel, find_initial_model
from pipeline.run.launch import Prepared
from pipeline.run.recipe import Header, Recipe
from pipeline.settings.finetune_flags import FinetuneFlags
from pipeline.tasks import own_tasks
from pipeline.tasks.files import reading
from pipeline.tasks.kind import Features
from pipeline.tasks.own_tasks import RECORD, record_of
from pipeline.tasks.registry import find_task
from pipeline.tasks.task import Splits, Task
from pipeline.training.training_run import TrainingRun
from pipeline.training.training_task import TrainingTask


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
    if "train" not in splits:
        raise UserError(f"--data {flags.data} holds no training examples of {task.name}; it has {', '.join(splits)}")
    initial = find_initial_model(flags.init, flags.outputs())
    assert initial is not None, "--init is required"
    trained_on = {split: examples for split, examples in splits.items() if split in ("train", *task.dev_splits)}
    runs = resolve(flags, task, len(splits["train"]), world_size, detect_hardware(), initial, digest(trained_on))
    _check_form(flags)
    data = Examples(splits, digest(splits))
    recipes = [FinetuneRecipe(flags, settings, initial.vocabulary, initial, data) for settings in runs]
    if flags.seeds is None:
        return start.prepare(flags.output, recipes)
    return start.prepare(flags.output, recipes, lambda: write_summary(flags.output, flags.outputs()))


def _check_form(flags: FinetuneFlags) -> None:
    """Raises UserError if --output holds a run of one seed and --seeds is given, or the other way round."""
    single = (flags.output / "settings.json").exists()
    several = any(flags.output.glob("seed-*/settings.json"))
    if single and flags.seeds is not None:
        raise UserError(f"{flags.output} holds a run of one seed; leave --seeds out, or choose another --output")
    if several and flags.seeds is None:
        raise UserError(f"{flags.output} holds runs of several seeds; give --seeds, or choose another --output")


def digest(splits: Splits) -> str:
    """xxh3_128 of all examples, in hexadecimal."""
    state = xxhash.xxh3_128()
    for split in sorted(splits):
        state.update(split.encode())
        for example in splits[split]:
            state.update(repr(example).encode())
    return str(state.hexdigest())


@dataclass
class Examples:
    """The examples of all seeds.

    Attributes:
        digest: of all splits, those without labels included.
        features: of every split, once a run has needed them.
    """

    splits: Splits
    digest: str
    features: dict[str, Features] = field(default_factory=dict)


@dataclass
class FinetuneRecipe(Recipe):
    """The fine-tuning run of one seed."""

    flags: FinetuneFlags
    settings: FinetuneSettings
    initial: InitialModel
    data: Examples

    shares_weights = True

    @property
    def is_done(self) -> bool:
        """Whether the run has ended and has predicted the present examples. See `Recipe`."""
        written = self.settings.flags.output / RESULTS
        return super().is_done and written.exists() and read_results(written)["predicted_data"] == self.data.digest

    @property
    def weights(self) -> InitialWeights | None:
        """See `Recipe`."""
        return None if self.settings.flags.random_weights else self.initial.weights

    def facts(self) -> Mapping[str, str]:
        """See `Recipe`."""
        return {"the examples of all splits": self.data.digest}

    def open(self, control: ControlGroup) -> FineTuning:
        """See `Recipe`."""
        settings, data = self.settings, self.data
        data.features = data.features or make_features(
            settings.task, self.vocabulary, data.splits, settings.max_length, settings.limits
        )
        return FineTuning(settings, data.features, control)

    def make_model(self, task: TrainingTask) -> nn.Module:
        """See `Recipe`."""
        settings = self.settings
        return settings.task.kind.make_model(settings.task, settings.model, settings.execution)

    def has_head(self, name: str) -> bool:
        """See `Recipe`."""
        assert self.weights is not None
        head, task = self.weights.head, self.settings.task
        return head.finetuning_task == task.name and (not task.labels or head.labels in (None, task.labels))

    def header(self, task: TrainingTask, new_tensors: Sequence[str] | None) -> Header:
        """See `Recipe`."""
        settings, named = self.settings, self.settings.task
        examples = ", ".join(f"{split} {its.examples:,}" for split, its in self.data.features.items())
        weights = "random weights" if settings.flags.random_weights else f"weights from {settings.flags.init}"
        new = f"; new: {', '.join(new_tensors)}" if new_tensors else ""
        subject = [
            f"task: {named.name}, seed {settings.flags.seed}; examples: {examples}",
            f"model: {weights}{new}",
        ]
        if named.columns is not None and named.labels:
            shown = ", ".join(map(repr, named.labels[:20]))
            subject.append(f"labels: {shown}{', ...' if len(named.labels) > 20 else ''}")
            if len({label.casefold() for label in named.labels}) < len(named.labels):
                subject.append("note: some labels differ in capitals only; is each a class of its own?")
            if note := named.kind.note(named.labels):
                subject.append(f"note: {note}")
        details = [
            f"learning rate: {settings.engine.learning_rate:g} after {settings.warmup_steps:,} steps"
            f"{settings.rate_reason}; longest sequence {settings.max_length}"
        ]
        return Header(subject, len(self.data.features["train"].lengths), "samples", details)

    def conclude(self, run: TrainingRun, task: TrainingTask) -> str:
        """Predicts with the best step. See `Recipe`."""
        settings, best = self.settings, best_checkpoint(self.settings.flags.output)
        model = settings.task.kind.make_model(settings.task, settings.model)
        model.load_state_dict(load_weights(best))
        model = model.to(run.engine.device, next(run.engine.module.parameters()).dtype)
        write_results(settings, model, self.data.features, run.control, run.state.step, step_of(best), self.data.digest)
        return f"the model of step {step_of(best)}"

    def last_line(self) -> str:
        """See `Recipe`. Of several seeds, the summary ends with it."""
        return how_to_predict(self.settings.flags.output) if self.flags.seeds is None else ""


def write_results(
    settings: FinetuneSettings,
    model: nn.Module,
    features: Mapping[str, Features],
    control: ControlGroup,
    steps: int,
    best_step: int,
    predicted_data: str,
) -> None:
    """Predicts every split but "train" and writes logits/, submission/ and results.json. Collective.

    Args:
        steps: all steps of the run.
        best_step: the step of the weights in `model`.
        predicted_data: digest of all splits.
    Raises:
        UserError: on all ranks, if rank 0 cannot write. The training is kept; the same command writes them again.
    """
    task = settings.task
    metrics: dict[str, dict[str, float]] = {}

    def not_written(reason: str) -> UserError:
        return UserError(
            f"the predictions of {settings.flags.output} were not written: {reason}; training is done and saved, and "
            "the same command repeats only this"
        )

    for split in [split for split in features if split != "train"]:
        found = predict(model, features[split], control, next(model.parameters()).device)
        control.all_or_raise(
            functools.partial(_write_split, task, split, found, settings.flags.output),
            (OSError, UserError),
            not_written,
        )
        if found is not None and (of_split := task.kind.metrics(task, found)):
            metrics[split] = of_split
            _print_split(task, split, of_split, found)
    if control.rank == 0:
        results: dict[str, Any] = {
            "task": task.name,
            **record_of(task),
            "model": settings.model.to_dict(),
            "init": None if settings.flags.random_weights else os.path.abspath(settings.flags.init),
            "random_weights": settings.flags.random_weights,
            "seed": settings.flags.seed,
            "hyperparameters": settings.hyperparameters(),
            "steps": steps,
            "best_step": best_step,
            "examples": {split: of_split.examples for split, of_split in features.items()},
            "metrics": metrics,
            "predicted_data": predicted_data,
        }
        atomic.write_text(settings.flags.output / RESULTS, json.dumps(results, indent=1) + "\n")


def how_to_predict(run: Path) -> str:
    """The command that predicts with a fine-tuned run, for people."""
    return f"to predict: python -m pipeline.predict --run {run} --input FILE --out predicted.jsonl"


def _write_split(task: Task, split: str, found: Any | None, output: Path) -> None:
    """Writes the predictions of one split, which rank 0 has."""
    if found is None:
        return
    for directory in ("logits", "submission"):
        (output / directory).mkdir(exist_ok=True)
    found.save(output / "logits" / f"{split}{task.kind.ending}")
    task.write_submission(split, found, output / "submission")


def _print_split(task: Task, split: str, metrics: Mapping[str, float], found: Any) -> None:
    print(f"{split}: {', '.join(f'{name} {value:.4g}' for name, value in metrics.items())}")
    if (estimate := estimate_of(task, found)) is not None:
        low, high = estimate.interval
        if task.kind.predicts_numbers:
            print(f"  95 % interval of {task.metrics[0]}: {low / 100:.3f} to {high / 100:.3f}")
            return
        majority = f"; majority class: {estimate.majority:.1f}" if estimate.majority else ""
        verdict = "" if estimate.exceeds_majority else f"; {NOT_ABOVE}"
        print(f"  {estimate.value:.1f} %, 95 % interval {low:.1f} to {high:.1f}{majority}{verdict}")


def write_summary(output: Path, members: Sequence[Path]) -> None:
    """Writes `output/results.json` from those of several seeds: the median of every metric, and its spread.

    The spread is the lowest and the highest value.
    """
    results = [read_results(member / RESULTS, OneRunRecord) for member in members]
    first, metrics = results[0], [result["metrics"] for result in results]
    median: dict[str, dict[str, float]] = {}
    spread: dict[str, dict[str, list[float]]] = {}
    for split, of_split in first["metrics"].items():
        median[split], spread[split] = {}, {}
        for name in of_split:
            if lacking := [member for member, of_run in zip(members, metrics) if name not in of_run.get(split, {})]:
                raise UserError(f"{lacking[0] / RESULTS} lacks {name} of {split}; run that seed again")
            values = [of_run[split][name] for of_run in metrics]
            median[split][name], spread[split][name] = statistics.median(values), [min(values), max(values)]
    shared = ("task", RECORD, "model", "init", "random_weights", "hyperparameters", "examples")
    seeds = [
        {"directory": member.name, **{name: result[name] for name in ("seed", "best_step", "metrics")}}
        for member, result in zip(members, results)
    ]
    summary = {name: first[name] for name in shared if name in first}
    summary |= {"seeds": seeds, "median": median, "spread": spread}
    atomic.write_text(output / RESULTS, json.dumps(summary, indent=1) + "\n")
    for split, of_split in median.items():
        for name, value in of_split.items():
            low, high = spread[split][name]
            print(f"{split}: {name} {value:.4g}, the median of {len(seeds)} seeds from {low:.4g} to {high:.4g}")
    print(how_to_predict(members[0]))
