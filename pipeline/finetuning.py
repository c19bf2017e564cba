"""Fine-tuning as a `Workload`: a task's examples, its head, and its metrics on the dev sets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from data_prep.vocabulary import Vocabulary
from pipeline import order
from pipeline.control import Control
from pipeline.finetune_settings import FinetuneSettings
from pipeline.prediction import batches_of, find, predict
from pipeline.tasks.choice_features import ChoiceFeatures
from pipeline.tasks.ensemble import metrics_of
from pipeline.tasks.examples import Splits
from pipeline.tasks.features import Features
from pipeline.tasks.metrics import METRICS
from pipeline.tasks.span_features import SpanFeatures, SpanLimits
from pipeline.tasks.task import Task
from pipeline.tasks.text_features import TextFeatures
from pipeline.workload import Evaluation


def make_features(
    task: Task, vocabulary: Vocabulary, splits: Splits, max_length: int, limits: SpanLimits
) -> dict[str, Features]:
    """The features of every split."""
    made: dict[str, Features] = {}
    for split, examples in splits.items():
        given: Any = examples
        if task.kind in ("spans", "conditioned_spans"):
            made[split] = SpanFeatures(vocabulary, given, max_length, limits)
        elif task.kind == "choice":
            made[split] = ChoiceFeatures(task, vocabulary, given, max_length)
        else:
            made[split] = TextFeatures(task, vocabulary, given, max_length)
    return made


def score_name(task: Task) -> str:
    """The figure by which the best step is chosen; of SQuAD 2.0 that of the best threshold, as the paper has it."""
    return {"squad1": "f1", "squad2": "best_f1"}.get(task.name) or METRICS[task.name][0]


@dataclass
class FineTuning:
    """The units of split "train", evaluated on the task's dev sets. A `Workload`.

    Attributes:
        features: of every split.
    """

    settings: FinetuneSettings
    features: Mapping[str, Features]
    control: Control

    sums_count = 5

    @property
    def name(self) -> str:
        """The task's."""
        return self.settings.task.name

    @property
    def dev_splits(self) -> list[str]:
        """The task's dev sets that there are; the first chooses the best step."""
        return [split for split in self.settings.task.dev_splits if split in self.features]

    @property
    def evaluates(self) -> bool:
        """Whether there is a dev set."""
        return bool(self.dev_splits)

    def steps(self, first: int) -> Iterator[list[Any]]:
        """See `Workload.steps`."""
        engine, training = self.settings.engine, self.features["train"]
        for step in range(first, self.settings.steps):
            micro_batches = []
            for micro_step in range(engine.accumulation_steps):
                positions = order.positions_of(
                    step,
                    micro_step,
                    self.control.rank,
                    self.control.world_size,
                    engine.micro_batch_size,
                    engine.train_batch_size,
                )
                _, units = order.rows_at(positions, len(training.lengths), self.settings.seed)
                micro_batches.append(training.batch(units.tolist(), training=True))
            yield micro_batches

    def counts(self, micro_batches: Sequence[Any]) -> list[float]:
        """Labels."""
        return [sum(batch.label_count for batch in micro_batches)]

    def loss(self, output: Any, counts: Sequence[float], shares: int) -> Tensor:
        """The mean over the labels. See `Workload.loss`."""
        return output.loss_sum * (shares / max(counts[0], 1.0))

    def sums(self, output: Any, tensors: dict[str, Tensor]) -> list[Tensor]:
        """Loss, hits, labels, tokens, labels once more: a unit is what is counted a second."""
        tokens = (tensors["sequence_ids"] >= 0).sum()
        return [output.loss_sum, output.correct, output.total, tokens, output.total]

    def summarise(self, totals: Sequence[float]) -> dict[str, Any]:
        """Mean loss and, but for a regression, the share of labels that have the highest logit."""
        loss, hits, labels, tokens, _ = totals
        figures: dict[str, Any] = {"loss": loss / max(labels, 1.0)}
        if self.settings.task.kind != "regression":
            figures["accuracy"] = hits / max(labels, 1.0)
        return figures | {"interval_tokens": int(tokens)}

    def progress(self, samples: int) -> dict[str, Any]:
        """How often all units have been seen."""
        return {"epochs": samples / len(self.features["train"].lengths)}

    def try_evaluation(self, engine: Any) -> tuple[None, float]:
        """A batch of each rank from every dev set."""
        batches = 0
        for split in self.dev_splits:
            features = self.features[split]
            find(engine, features, self.control, engine.device, limit=1)
            batches += len(list(batches_of(features, self.control.rank, self.control.world_size)))
        engine.train()
        return None, len(self.dev_splits) / batches

    def evaluate(self, engine: Any, last: bool) -> Evaluation:
        """The metrics of all dev sets; those of the first have their plain names, others their split's before them."""
        figures: dict[str, float] = {}
        for split in self.dev_splits:
            predictions = predict(engine, self.features[split], self.control, engine.device)
            found = None if predictions is None else metrics_of(self.name, predictions)
            prefix = "" if split == self.dev_splits[0] else f"{split}/"
            figures |= {f"{prefix}{name}": value for name, value in self.control.share(found).items()}
        engine.train()
        shown = score_name(self.settings.task)
        return Evaluation(dict(figures), figures[shown], shown)
