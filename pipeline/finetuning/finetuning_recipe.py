"""Fine-tuning as a `Recipe`: one for each seed, which share the examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import xxhash
from torch import nn

from common.errors import UserError
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.initial_weights import InitialWeights, best_checkpoint
from pipeline.checkpoint.retention import step_of
from pipeline.checkpoint.run_records import RESULTS, read_results
from pipeline.distributed.control import ControlGroup
from pipeline.engine.hardware import detect_hardware, make_deterministic
from pipeline.finetuning import results
from pipeline.finetuning.fine_tuning import FineTuning, make_features
from pipeline.finetuning.finetune_settings import FinetuneSettings, resolve
from pipeline.run import start
from pipeline.run.initial_model import InitialModel, find_initial_model
from pipeline.run.launch import Prepared
from pipeline.run.recipe import Header, Recipe
from pipeline.settings.finetune_flags import FinetuneFlags
from pipeline.tasks import own_tasks
from pipeline.tasks.files import reading
from pipeline.tasks.kind import Features
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
    _check_splits(flags, task, splits)
    initial = find_initial_model(flags.init, flags.outputs())
    assert initial is not None, "--init is required"
    trained_on = {split: examples for split, examples in splits.items() if split in ("train", *task.dev_splits)}
    runs = resolve(flags, task, len(splits["train"]), world_size, detect_hardware(), initial, digest(trained_on))
    _check_form(flags)
    data = Examples(splits, digest(splits))
    recipes = [FinetuneRecipe(flags, settings, initial.vocabulary, initial, data) for settings in runs]
    if flags.seeds is None:
        return start.prepare(flags.output, recipes)
    return start.prepare(flags.output, recipes, lambda: results.write_summary(flags.output, flags.outputs()))


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
        results.write_results(
            settings, model, self.data.features, run.control, run.state.step, step_of(best), self.data.digest
        )
        return f"the model of step {step_of(best)}"

    def last_line(self) -> str:
        """See `Recipe`. Of several seeds, the summary ends with it."""
        return results.how_to_predict(self.settings.flags.output) if self.flags.seeds is None else ""
