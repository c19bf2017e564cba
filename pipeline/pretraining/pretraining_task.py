"""Pre-training as a `TrainingTask`: rows of shards, masked tokens and the sentence loss."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torch import Tensor

from model.config import IGNORED_LABEL
from model.pretraining import PreTrainingOutput
from pipeline.data.collate import Batch, Collator
from pipeline.data.mixture import Mixture, training_step
from pipeline.distributed.control import ControlGroup
from pipeline.pretraining import evaluation
from pipeline.pretraining.evaluation import PretrainingSums
from pipeline.pretraining.pretrain_settings import PretrainSettings
from pipeline.training.training_task import Evaluation, Pace, without_pauses

if TYPE_CHECKING:
    from pipeline.engine.engine_state import Engine

SANITY_BATCHES = 2
"""Micro-batches of each rank in the evaluation before the first step."""


class LabelCounts(NamedTuple):
    """The number of labels: predicted tokens, and segment pairs with a label."""

    predictions: float
    pairs: float


@dataclass
class PreTraining:
    """Trains on the rows of `training` and evaluates on the rows of `held_out`. A `TrainingTask`.

    Attributes:
        held_out: collators by name. The metrics of the first one have no prefix and decide which step is the best.
    """

    settings: PretrainSettings
    training: Mixture
    held_out: Mapping[str, Collator]
    control: ControlGroup

    name = "pretrain"
    sums_kind: ClassVar[type[Any]] = PretrainingSums

    @property
    def evaluates(self) -> bool:
        """Whether there are held-out rows."""
        return bool(self.held_out)

    def steps(self, batches: Iterable[int]) -> Iterator[list[Batch]]:
        """See `TrainingTask.steps`."""
        for batch in batches:
            yield training_step(
                self.training.read,
                batch,
                self.control.rank,
                self.control.world_size,
                self.settings.engine.micro_batch_size,
                self.settings.engine.train_batch_size,
            )

    def label_counts(self, micro_batches: Sequence[Batch]) -> LabelCounts:
        """See `TrainingTask.label_counts`."""
        return LabelCounts(
            predictions=sum(int((batch.masked_labels != IGNORED_LABEL).sum()) for batch in micro_batches),
            pairs=sum(int((batch.sentence_labels != IGNORED_LABEL).sum()) for batch in micro_batches),
        )

    def loss(self, output: PreTrainingOutput, label_counts: LabelCounts, micro_batches_per_step: int) -> Tensor:
        """MLM loss + sentence loss, each a mean over the global batch. See `TrainingTask.loss`."""
        assert output.mlm_loss_sum is not None
        assert output.sentence_loss_sum is not None
        mlm_loss = output.mlm_loss_sum * (micro_batches_per_step / max(label_counts.predictions, 1.0))  # ()
        return mlm_loss + output.sentence_loss_sum * (micro_batches_per_step / max(label_counts.pairs, 1.0))

    def sums(self, output: PreTrainingOutput, tensors: dict[str, Tensor]) -> PretrainingSums[Any]:
        """See `pipeline.pretraining.evaluation.batch_sums`."""
        return evaluation.batch_sums(output, tensors["sequence_ids"])

    def summarise(self, totals: PretrainingSums[float]) -> dict[str, Any]:
        """See `pipeline.pretraining.evaluation.summarise`."""
        return evaluation.summarise(totals, None if self.settings.objective == "mlm" else self.settings.objective)

    def data_progress(self, samples: int) -> dict[str, Any]:
        """The epochs of all rows together, and the samples and epochs of each corpus of a mixture."""
        return {"epochs": samples / self.training.rows, **self.training.progress(samples)}

    def try_evaluation(self, engine: "Engine") -> tuple[Evaluation, float]:
        """Evaluates on two batches of each rank from each held-out directory. See `TrainingTask.try_evaluation`."""
        limit = SANITY_BATCHES * self.settings.engine.micro_batch_size * self.control.world_size
        whole = self._rows(self._limit)
        tried = self._evaluate(engine, min(limit, self._limit or limit), without_pauses)
        return tried, min(1.0, self._rows(limit) / whole)

    def evaluate(self, engine: "Engine", pace: Pace) -> Evaluation:
        """Evaluates on the same rows every time: all, or those of `eval_batches`. The score is the MLM accuracy."""
        return self._evaluate(engine, self._limit, pace)

    @property
    def _limit(self) -> int | None:
        """The rows of each held-out directory in an evaluation. Every start of a run has the same."""
        batches = self.settings.flags.eval_batches
        return None if batches is None else batches * self.settings.engine.train_batch_size

    def _rows(self, limit: int | None) -> int:
        """The rows of all held-out directories together, at most `limit` of each."""
        counts = [len(collator.shards) for collator in self.held_out.values()]
        return sum(counts if limit is None else [min(limit, count) for count in counts])

    def _evaluate(self, engine: "Engine", limit: int | None, pace: Pace) -> Evaluation:
        """Evaluates on up to `limit` rows of each held-out directory."""
        metrics: dict[str, Any] = {}
        for number, (name, collator) in enumerate(self.held_out.items()):
            named = self._evaluate_rows(engine, collator, limit, pace)
            metrics |= {f"{name}/{key}": value for key, value in named.items()} if number else named
        return self._score(metrics)

    def _evaluate_rows(self, engine: "Engine", collator: Collator, limit: int | None, pace: Pace) -> dict[str, Any]:
        rows = self.settings.engine.micro_batch_size
        return evaluation.evaluate(engine, collator, self.control, rows, limit, pace)

    def _score(self, metrics: dict[str, Any]) -> Evaluation:
        objective = self.settings.objective
        tasks = ("mlm",) if objective == "mlm" else ("mlm", objective)
        names = tuple(self.held_out) if len(self.held_out) > 1 else ()
        return Evaluation(metrics, metrics["mlm_accuracy"], "mlm_loss", tasks, names)
