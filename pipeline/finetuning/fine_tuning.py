"""Fine-tuning as a `TrainingTask`: a task's examples, its head, its metrics on the dev sets, and its predictions.

Every example of a split is predicted exactly once: over all ranks, or in one process.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from data_prep.text.vocabulary import Vocabulary
from pipeline.data import sampler
from pipeline.data.mixture import training_step
from pipeline.data.prefetch import prefetch, to_device
from pipeline.distributed import progress
from pipeline.distributed.control import ControlGroup
from pipeline.finetuning.finetune_settings import FinetuneSettings
from pipeline.tasks.kind import Features, SampleOutput
from pipeline.tasks.task import SpanLimits, Splits, Task
from pipeline.training.training_run import REMEDY, TrainingFailed
from pipeline.training.training_task import Evaluation, Pace, without_pauses

if TYPE_CHECKING:
    from pipeline.engine.engine_state import Engine

TOKENS_IN_BATCH = 8192
"""Of an evaluation."""

T = TypeVar("T", Tensor, float)


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


def make_features(
    task: Task, vocabulary: Vocabulary, splits: Splits, max_length: int, limits: SpanLimits
) -> dict[str, Features]:
    """Makes the features of every split."""
    return {
        split: task.kind.make_features(task, vocabulary, examples, max_length, limits)
        for split, examples in splits.items()
    }


@dataclass
class FineTuning:
    """Trains on the samples of split "train" and evaluates on the task's dev sets. A `TrainingTask`.

    Attributes:
        features: of every split.
    """

    settings: FinetuneSettings
    features: Mapping[str, Features]
    control: ControlGroup

    sums_kind = FinetuningSums

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.settings.task.name

    @property
    def dev_splits(self) -> list[str]:
        """The dev sets of the task that the data has; the first decides which step is the best."""
        return [split for split in self.settings.task.dev_splits if split in self.features]

    @property
    def evaluates(self) -> bool:
        """Whether the data has a dev set."""
        return bool(self.dev_splits)

    def steps(self, batches: Iterable[int]) -> Iterator[list[Any]]:
        """See `TrainingTask.steps`."""
        engine, control = self.settings.engine, self.control
        sizes = (control.rank, control.world_size, engine.micro_batch_size, engine.train_batch_size)
        for batch in batches:
            yield training_step(self._read, batch, *sizes)

    def _read(self, positions: NDArray[np.int64], size: int) -> Any:
        """The batch of the run's `positions` (N,). A batch of fewer than `size` samples needs no empty ones."""
        training = self.features["train"]
        _, samples = sampler.rows_at(positions, len(training.lengths), self.settings.flags.seed)
        return training.batch(samples.tolist(), training=True)

    def label_counts(self, micro_batches: Sequence[Any]) -> LabelCounts:
        """See `TrainingTask.label_counts`."""
        return LabelCounts(sum(batch.label_count for batch in micro_batches))

    def loss(self, output: Any, label_counts: LabelCounts, micro_batches_per_step: int) -> Tensor:
        """The mean over the labels. See `TrainingTask.loss`."""
        return output.loss_sum * (micro_batches_per_step / max(label_counts.labels, 1.0))  # ()

    def sums(self, output: Any, tensors: dict[str, Tensor]) -> FinetuningSums[Any]:
        """See `FinetuningSums`."""
        sequence_ids = tensors["sequence_ids"]  # (B, S)
        tokens = (sequence_ids >= 0).sum()
        # Not the number of labels: a text has a tag for each of its tokens.
        rows = (sequence_ids.amax(dim=1) + 1).sum() / self.settings.task.kind.sequences_per_sample(self.settings.task)
        return FinetuningSums(output.loss_sum, output.correct, output.total, tokens, rows)

    def summarise(self, totals: FinetuningSums[float]) -> dict[str, Any]:
        """The mean loss and, except for a regression, the accuracy."""
        labels = max(totals.labels, 1.0)
        metrics: dict[str, Any] = {"loss": totals.loss / labels}
        if not self.settings.task.kind.predicts_numbers:
            metrics["accuracy"] = totals.correct / labels
        return metrics | {"interval_tokens": int(totals.tokens)}

    def data_progress(self, samples: int) -> dict[str, Any]:
        """The number of epochs."""
        return {"epochs": samples / len(self.features["train"].lengths)}

    def try_evaluation(self, engine: "Engine") -> tuple[None, float]:
        """Evaluates on one batch of each rank from every dev set. See `TrainingTask.try_evaluation`."""
        count = 0
        for split in self.dev_splits:
            batches = batches_of(self.features[split], self.control.rank, self.control.world_size)
            outputs_of(engine, self.features[split], engine.device, batches[:1])
            count += len(batches)
        engine.train()
        return None, len(self.dev_splits) / count

    def evaluate(self, engine: "Engine", pace: Pace) -> Evaluation:
        """Evaluates on all dev sets. Metrics of the first one have no prefix, those of others the split's name.

        Raises TrainingFailed, on all ranks, if predicted numbers are infinite or no numbers.
        """
        metrics: dict[str, float] = {}
        for split in self.dev_splits:
            predictions = predict(engine, self.features[split], self.control, engine.device, pace)
            with progress.get_progress().during("scoring"):
                scored = None if predictions is None else self._score(predictions)
            of_split = self.control.broadcast(scored)
            if isinstance(of_split, str):
                raise TrainingFailed(f"the evaluation on {split} failed: {of_split}; {REMEDY}")
            prefix = "" if split == self.dev_splits[0] else f"{split}/"
            metrics |= {f"{prefix}{name}": value for name, value in of_split.items()}
        engine.train()
        shown = self.settings.task.score
        return Evaluation(dict(metrics), metrics[shown], shown)

    def _score(self, predictions: Any) -> dict[str, float] | str:
        """The metrics, or why there are none."""
        try:
            return self.settings.task.kind.metrics(self.settings.task, predictions)
        except ValueError as error:
            return str(error)


def batches_of(
    features: Features, rank: int = 0, world_size: int = 1, limit: int = TOKENS_IN_BATCH, by_tokens: bool = True
) -> list[list[int]]:
    """The numbers of the samples in each of this rank's batches. Samples of similar length share a batch.

    The batches of all ranks together hold each sample once. All ranks get the same number of batches, because a forward
    pass under ZeRO-3 is collective; the last batch may be empty.

    Args:
        limit: tokens of a batch, or samples if not `by_tokens`. A batch has at least one sample.
    """
    order = np.argsort(features.lengths, kind="stable")[::-1]  # longest first: too little memory shows at once
    ends = np.cumsum(features.lengths[order] if by_tokens else np.ones_like(order))
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        batches.append(order[start:end].tolist())
        start = end
    batches += [[] for _ in range(-len(batches) % world_size)]
    return batches[rank::world_size]


def predict(
    model: nn.Module, features: Features, control: ControlGroup, device: torch.device, pace: Pace = without_pauses
) -> Any | None:
    """Predicts each example with a model or an engine, and leaves it in evaluation mode. Collective.

    Returns:
        The predictions on rank 0; None on the other ranks.
    """
    batches = batches_of(features, control.rank, control.world_size)
    gathered = control.gather(outputs_of(model, features, device, batches, pace))
    if gathered is None:
        return None
    with progress.get_progress().during("scoring"):
        return features.predictions({sample: result for part in gathered for sample, result in part.items()})


@torch.no_grad()
def outputs_of(
    model: nn.Module,
    features: Features,
    device: torch.device,
    batches: Sequence[list[int]],
    pace: Pace = without_pauses,
) -> dict[int, SampleOutput]:
    """The output of a model or an engine for each sample in `batches`, by number. Leaves it in evaluation mode."""
    model.eval()
    made = ((samples, features.batch(samples, training=False)) for samples in batches)
    outputs: dict[int, SampleOutput] = {}
    for samples, batch in pace(prefetch(made), len(batches)):
        output = model(**to_device(batch, device))
        outputs.update(zip(samples, features.decode(samples, batch, output)))
    return outputs
