"""Fine-tuning as a `TrainingTask`: a task's examples, its head, its metrics on the dev sets, and its predictions."""

import dataclasses
import functools
import json
import os
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray
from torch import Tensor, nn

from common.errors import UserError
from common.files import atomic
from pipeline.checkpoint.initial_weights import InitialWeights, exported_checkpoint, load_run
from pipeline.checkpoint.retention import step_of
from pipeline.checkpoint.run_directory import RESULTS, OneRunRecord, read_results
from pipeline.data import sampler
from pipeline.distributed import progress
from pipeline.distributed.control import ControlGroup
from pipeline.finetuning.predictor import batches_of, outputs_of, predict
from pipeline.settings.finetune_flags import FinetuneFlags
from pipeline.settings.run_settings import FinetuneSettings
from pipeline.tasks.metrics import NOT_ABOVE
from pipeline.tasks.task import Features, SpanLimits, Splits, Task
from pipeline.training.training_run import REMEDY, Evaluation, Monitor, TrainingFailed, TrainingRun
from pipeline.training.training_task import TrainingTask

if TYPE_CHECKING:
    from pipeline.engine.engine_state import Engine

T = TypeVar("T", Tensor, float)
_WRITE_AGAIN = "training is done and saved, and the same command repeats only this"


class FinetuningSums(NamedTuple, Generic[T]):
    """Sums over batches."""

    loss: T  # over the labels
    correct: T  # labels that have the highest logit
    labels: T
    tokens: T  # without padding
    rows: T  # samples


class LabelCounts(NamedTuple):
    """The number of labels."""

    labels: float


@dataclass
class Examples:
    """The examples of all seeds, their digest, and the features of every split, once a run has needed them."""

    splits: Splits
    digest: str
    features: dict[str, Features] = field(default_factory=dict)


def digest(splits: Splits) -> str:
    """xxh3_128 of all examples, in hexadecimal."""
    state = xxhash.xxh3_128()
    for split in sorted(splits):
        state.update(split.encode())
        for example in splits[split]:
            state.update(repr(example).encode())
    return str(state.hexdigest())


@dataclass
class FineTuning(TrainingTask):
    """The run of one seed: trains on the samples of split "train" and evaluates on the task's dev sets.

    The runs of all seeds share `data`, and `command`, the flags as they were given.
    """

    settings: FinetuneSettings
    task: Task
    data: Examples
    command: FinetuneFlags

    noun = "samples"
    sums_kind = FinetuningSums
    shares_weights = True

    @property
    def is_done(self) -> bool:
        """Whether the run has ended and has predicted the present examples."""
        written = self.settings.flags.output / RESULTS
        return super().is_done and written.exists() and read_results(written).predicted_data == self.data.digest

    @property
    def weights(self) -> InitialWeights | None:
        return None if self.settings.flags.random_weights else super().weights

    def facts(self) -> Mapping[str, str]:
        return {"the examples of all splits": self.data.digest}

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.task.name

    @property
    def features(self) -> Mapping[str, Features]:
        """Those of every split."""
        return self.data.features

    @property
    def rows(self) -> int:
        """The samples in the training data."""
        return len(self.features["train"].lengths)

    @property
    def dev_splits(self) -> list[str]:
        """The dev sets of the task that the data has; the first decides which step is the best."""
        return [split for split in self.task.dev_splits if split in self.features]

    @property
    def evaluates(self) -> bool:
        """Whether the data has a dev set."""
        return bool(self.dev_splits)

    def open(self, control: ControlGroup) -> None:
        """Makes the features."""
        self.control = control
        limits = self.settings.limits or SpanLimits()
        self.data.features = self.data.features or {
            split: self.task.kind.make_features(self.task, self.vocabulary, examples, self.settings.max_length, limits)
            for split, examples in self.data.splits.items()
        }

    def make_model(self) -> nn.Module:
        return self.task.kind.make_model(self.task, self.settings.model, self.settings.execution)

    def has_head(self, name: str) -> bool:
        assert self.weights is not None
        head, task = self.weights.head, self.task
        return head.finetuning_task == task.name and (not task.labels or head.labels in (None, task.labels))

    def subject(self, new_tensors: Sequence[str] | None) -> list[str]:
        flags, task = self.settings.flags, self.task
        examples = ", ".join(f"{split} {its.examples:,}" for split, its in self.features.items())
        weights = "random weights" if flags.random_weights else f"weights from {flags.init}"
        new = f"; new: {', '.join(new_tensors)}" if new_tensors else ""
        lines = [f"task: {task.name}, seed {flags.seed}; examples: {examples}", f"model: {weights}{new}"]
        if task.columns is not None and task.labels:
            shown = ", ".join(map(repr, task.labels[:20]))
            lines.append(f"labels: {shown}{', ...' if len(task.labels) > 20 else ''}")
            if len({label.casefold() for label in task.labels}) < len(task.labels):
                lines.append("note: some labels differ in capitals only; is each a class of its own?")
            if note := task.kind.note(task.labels):
                lines.append(f"note: {note}")
        for split, its in self.features.items():
            if its.cut:
                longest = self.settings.max_length
                lines.append(
                    f"note: {its.cut:,} examples of {split} have more than {longest} tokens; the rest is not read"
                )
        return lines

    def details(self) -> list[str]:
        settings = self.settings
        lines = [
            f"learning rate: {settings.engine.learning_rate:g} after {settings.warmup_steps:,} steps"
            f"{settings.rate_note}; longest sequence {settings.max_length}"
        ]
        if not self.evaluates:
            lines.append("note: no dev set, so nothing is measured and the last step is taken")
        return lines

    def conclude(self, run: TrainingRun) -> str:
        """Predicts with the best step."""
        best = exported_checkpoint(self.settings.flags.output)
        model = load_run(self.settings.flags.output, best)
        model = model.to(run.engine.device, next(run.engine.module.parameters()).dtype)
        self._write_results(model, run.state.step, step_of(best))
        return f"the model of step {step_of(best)}"

    def _write_results(self, model: nn.Module, steps: int, best_step: int) -> None:
        """Predicts every split but "train" and writes logits/, submission/ and results.json. Collective.

        UserError, on all ranks: rank 0 cannot write. The training is kept; the same command writes them again.
        """
        settings, task, output = self.settings, self.task, self.settings.flags.output
        metrics: dict[str, dict[str, float]] = {}

        def failed(reason: str) -> UserError:
            return UserError(f"the predictions of {output} were not written: {reason}; {_WRITE_AGAIN}")

        self.control.on_rank_0(functools.partial(_remove_others, task, self.features, output), (OSError,), failed)
        for split in [split for split in self.features if split != "train"]:
            predictions = predict(model, self.features[split], self.control, next(model.parameters()).device)
            self.control.all_or_raise(
                functools.partial(_write_split, task, split, predictions, output), (OSError, UserError), failed
            )
            if predictions is not None and (of_split := task.kind.metrics(task, predictions)):
                metrics[split] = of_split
                _print_split(task, split, of_split, predictions)
        if self.control.rank == 0:
            results: dict[str, Any] = {
                "task": task.name,
                **({} if settings.own_task is None else {"own_task": dataclasses.asdict(settings.own_task)}),
                "model": settings.model.to_dict(),
                "init": None if settings.flags.random_weights else os.path.abspath(settings.flags.init),
                "random_weights": settings.flags.random_weights,
                "seed": settings.flags.seed,
                "hyperparameters": settings.hyperparameters,
                "steps": steps,
                "best_step": best_step,
                "examples": {split: of_split.examples for split, of_split in self.features.items()},
                "metrics": metrics,
                "predicted_data": self.data.digest,
            }
            atomic.write_text(output / RESULTS, json.dumps(results, indent=1) + "\n")

    def summarise_seeds(self, members: Sequence[Path]) -> None:
        _write_summary(self.command.output, members)

    def last_line(self) -> str:
        """See `TrainingTask`. Of several seeds, the summary ends with it."""
        return _how_to_predict(self.settings.flags.output) if self.command.seeds is None else ""

    def read(self, positions: NDArray[np.int64], size: int) -> Any:
        _, samples = sampler.rows_at(positions, self.rows, self.settings.flags.seed)
        return self.features["train"].batch(samples.tolist(), training=True)

    def label_counts(self, micro_batches: Sequence[Any]) -> LabelCounts:
        return LabelCounts(sum(batch.label_count for batch in micro_batches))

    def loss(self, output: Any, label_counts: LabelCounts, micro_batches_per_step: int) -> Tensor:
        """The mean over the labels."""
        return output.loss_sum * (micro_batches_per_step / max(label_counts.labels, 1.0))  # ()

    def sums(self, output: Any, tensors: dict[str, Tensor]) -> FinetuningSums[Any]:
        """See `FinetuningSums`."""
        sequence_ids = tensors["sequence_ids"]  # (B, S)
        tokens = (sequence_ids >= 0).sum()
        # Not the number of labels: a text has a tag for each of its tokens.
        rows = (sequence_ids.amax(dim=1) + 1).sum() / self.task.kind.sequences_per_sample(self.task)
        return FinetuningSums(output.loss_sum, output.correct, output.total, tokens, rows)

    def summarise(self, totals: FinetuningSums[float]) -> dict[str, Any]:
        """The mean loss and, except for a regression, the accuracy."""
        labels = max(totals.labels, 1.0)
        accuracy = {} if self.task.kind.predicts_numbers else {"accuracy": totals.correct / labels}
        return {"loss": totals.loss / labels, **accuracy, "interval_tokens": int(totals.tokens)}

    def data_progress(self, samples: int) -> dict[str, Any]:
        """The number of epochs."""
        return {"epochs": samples / self.rows}

    def try_evaluation(self, engine: "Engine") -> tuple[None, float]:
        """Evaluates on one batch of each rank from every dev set."""
        count = 0
        for split in self.dev_splits:
            batches = batches_of(self.features[split], self.control.rank, self.control.world_size)
            outputs_of(engine, self.features[split], engine.device, batches[:1])
            count += len(batches)
        engine.train()
        return None, len(self.dev_splits) / count

    def evaluate(self, engine: "Engine", wrap: Monitor) -> Evaluation:
        """Evaluates on all dev sets. Metrics of the first one have no prefix, those of others the split's name.

        Raises TrainingFailed, on all ranks, if predicted numbers are infinite or no numbers.
        """
        metrics: dict[str, float] = {}
        for split in self.dev_splits:
            predictions = predict(engine, self.features[split], self.control, engine.device, wrap)
            scored: dict[str, float] | str | None = None  # the metrics, or why there are none
            with progress.get_progress().during("scoring"):
                try:
                    scored = None if predictions is None else self.task.kind.metrics(self.task, predictions)
                except ValueError as error:
                    scored = str(error)
            of_split = self.control.broadcast(scored)
            if isinstance(of_split, str):
                raise TrainingFailed(f"the evaluation on {split} failed: {of_split}; {REMEDY}")
            prefix = "" if split == self.dev_splits[0] else f"{split}/"
            metrics |= {f"{prefix}{name}": value for name, value in of_split.items()}
        engine.train()
        return Evaluation(dict(metrics), metrics[self.task.score], self.task.score)


def _how_to_predict(run: Path) -> str:
    """The command that predicts with a fine-tuned run, for people."""
    return f"to predict: python -m pipeline.predict --run {run} --input FILE --out predicted.jsonl"


def _remove_others(task: Task, splits: Collection[str], output: Path) -> None:
    """Removes the predictions of splits that only an earlier command had."""
    for split in {*task.splits, "diagnostic"}.difference(splits):
        (output / "logits" / f"{split}{task.kind.ending}").unlink(missing_ok=True)
        (output / "submission" / f"{split}.jsonl").unlink(missing_ok=True)


def _write_split(task: Task, split: str, predictions: Any | None, output: Path) -> None:
    """Writes the predictions of one split, which rank 0 has."""
    if predictions is not None:
        for directory in ("logits", "submission"):
            (output / directory).mkdir(exist_ok=True)
        predictions.save(output / "logits" / f"{split}{task.kind.ending}")
        task.write_submission(split, predictions, output / "submission")


def _print_split(task: Task, split: str, metrics: Mapping[str, float], predictions: Any) -> None:
    print(f"{split}: {', '.join(f'{name} {value:.4g}' for name, value in metrics.items())}")
    if (estimate := task.estimate(predictions)) is not None:
        low, high = estimate.interval
        if task.kind.predicts_numbers:
            print(f"  95 % interval of {task.metrics[0]}: {low / 100:.3f} to {high / 100:.3f}")
            return
        majority = f"; majority class: {estimate.majority:.1f}" if estimate.majority else ""
        verdict = "" if estimate.exceeds_majority else f"; {NOT_ABOVE}"
        print(f"  {estimate.value:.1f} %, 95 % interval {low:.1f} to {high:.1f}{majority}{verdict}")


def _write_summary(output: Path, members: Sequence[Path]) -> None:
    """Writes `output/results.json` from those of several seeds: the median, lowest and highest value of each metric."""
    results = [read_results(member / RESULTS, OneRunRecord) for member in members]
    first, metrics = results[0], [result.metrics for result in results]
    median: dict[str, dict[str, float]] = {}
    spread: dict[str, dict[str, list[float]]] = {}
    lines = []
    for split, of_split in first.metrics.items():
        median[split], spread[split] = {}, {}
        for name in of_split:
            if lacking := [member for member, of_run in zip(members, metrics) if name not in of_run.get(split, {})]:
                raise UserError(f"{lacking[0] / RESULTS} lacks {name} of {split}; run that seed again")
            values = [of_run[split][name] for of_run in metrics]
            middle, low, high = statistics.median(values), min(values), max(values)
            median[split][name], spread[split][name] = middle, [low, high]
            reach = f"the median of {len(members)} seeds from {low:.4g} to {high:.4g}"
            lines.append(f"{split}: {name} {middle:.4g}, {reach}")
    shared = ("task", "own_task", "model", "init", "random_weights", "hyperparameters", "examples")
    seeds = [
        {"directory": member.name, "seed": result.seed, "best_step": result.best_step, "metrics": result.metrics}
        for member, result in zip(members, results)
    ]
    recorded = dataclasses.asdict(first)
    summary = {name: recorded[name] for name in shared if name != "own_task" or first.own_task is not None}
    summary |= {"seeds": seeds, "median": median, "spread": spread}
    atomic.write_text(output / RESULTS, json.dumps(summary, indent=1) + "\n")
    print(*lines, _how_to_predict(members[0]), sep="\n")
