"""Distillation as a `TrainingTask`: pre-training whose loss is the distance from a teacher's states.

The parts of the loss are those of `model.distillation.DistillationSums`, and `mlm` and `sentence`, the losses of
pre-training. Each is a mean over the global batch, times its weight.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from model.distillation import PARTS
from model.pretraining import PreTrainingOutput
from pipeline.data import collate
from pipeline.data.collate import Batch, Collator
from pipeline.data.prefetch import to_device
from pipeline.pretraining import evaluation
from pipeline.pretraining.student import HEAD_PARTS
from pipeline.pretraining.task import PreTraining
from pipeline.training.meter import Meter, sum_over_ranks
from pipeline.training.training_task import Evaluation, Pace

if TYPE_CHECKING:
    from pipeline.engine.state import Engine

T = TypeVar("T", Tensor, float)


class DistillationTotals(NamedTuple, Generic[T]):
    """Sums over batches.

    Attributes:
        mlm_loss ... sentence_count, tokens, rows: see `PretrainingSums`.
        states ... relations: see `DistillationSums`.
        sequences, neighbours: the numbers of sequences, and of ordered pairs of two sequences in a row.
    """

    mlm_loss: T
    mlm_correct: T
    mlm_count: T
    sentence_loss: T
    sentence_correct: T
    sentence_count: T
    tokens: T
    rows: T
    states: T
    layers: T
    cls: T
    pooled: T
    similarity: T
    relations: T
    sequences: T
    neighbours: T


class DistillationCounts(NamedTuple):
    """What the sums of a loss are divided by."""

    predictions: float
    pairs: float
    tokens: float
    sequences: float
    neighbours: float


_COUNT_OF = dict.fromkeys(PARTS, "tokens") | {"cls": "sequences", "pooled": "sequences", "similarity": "neighbours"}


class Distillation(PreTraining):
    """Trains a student as `PreTraining` trains a model, on the distances from its teacher."""

    name = "distil"
    sums_kind = DistillationTotals  # type: ignore[assignment]

    @property
    def _weights(self) -> Mapping[str, float]:
        assert self.settings.distilled is not None, "the settings have a teacher"
        return self.settings.distilled.loss

    def label_counts(self, micro_batches: Sequence[Batch]) -> DistillationCounts:  # type: ignore[override]
        """See `TrainingTask.label_counts`."""
        sequences = np.concatenate([batch.sequence_ids.max(axis=1) + 1 for batch in micro_batches])  # of each row
        return DistillationCounts(
            *super().label_counts(micro_batches),
            tokens=float(sum((batch.sequence_ids >= 0).sum() for batch in micro_batches)),
            sequences=float(sequences.sum()),
            neighbours=float((sequences * (sequences - 1)).sum()),
        )

    def loss(
        self,
        output: PreTrainingOutput,
        label_counts: DistillationCounts,  # type: ignore[override]
        micro_batches_per_step: int,
    ) -> Tensor:
        """The weighted sum of the parts, each a mean over the global batch. See `TrainingTask.loss`."""
        assert output.distillation is not None
        assert output.mlm_loss_sum is not None
        assert output.sentence_loss_sum is not None
        weights = self._weights
        parts = [
            (output.mlm_loss_sum, weights.get("mlm", 0.0), label_counts.predictions),
            (output.sentence_loss_sum, weights.get("sentence", 0.0), label_counts.pairs),
            *(
                (getattr(output.distillation, name), weights.get(name, 0.0), getattr(label_counts, _COUNT_OF[name]))
                for name in PARTS
            ),
        ]
        terms = [part * (weight * micro_batches_per_step / max(count, 1.0)) for part, weight, count in parts]
        return torch.stack(terms).sum()

    def sums(self, output: PreTrainingOutput, tensors: dict[str, Tensor]) -> DistillationTotals[Any]:  # type: ignore[override]
        """See `TrainingTask.sums`."""
        assert output.distillation is not None
        sequences = tensors["sequence_ids"].amax(dim=1) + 1  # (B,)
        return DistillationTotals(
            *evaluation.batch_sums(output, tensors["sequence_ids"]),
            *output.distillation,
            sequences=sequences.sum(),
            neighbours=(sequences * (sequences - 1)).sum(),
        )

    def summarise(self, totals: DistillationTotals[float]) -> dict[str, Any]:  # type: ignore[override]
        """The loss; the mean of each part, as `distil_PART`; and the metrics of the heads that are trained."""
        weights = self._weights
        metrics: dict[str, Any] = {
            f"distil_{name}": getattr(totals, name) / max(getattr(totals, _COUNT_OF[name]), 1.0)
            for name in PARTS
            if name in weights
        }
        loss = sum(weights[name.removeprefix("distil_")] * value for name, value in metrics.items())
        if set(HEAD_PARTS) & set(weights):
            objective = self.settings.objective
            of_heads = evaluation.summarise(
                evaluation.PretrainingSums(*totals[: len(evaluation.PretrainingSums._fields)]),
                None if objective == "mlm" else objective,
            )
            loss += weights.get("mlm", 0.0) * of_heads["mlm_loss"]
            loss += weights.get("sentence", 0.0) * of_heads.get(f"{objective}_loss", 0.0)
            metrics = of_heads | metrics
        return metrics | {"loss": loss, "interval_tokens": int(totals.tokens)}

    def _evaluate(self, engine: "Engine", limit: int | None, pace: Pace) -> Evaluation:
        """Evaluates on up to `limit` rows of each held-out directory. The score is minus the loss of the first."""
        found: dict[str, Any] = {}
        for number, (name, collator) in enumerate(self.held_out.items()):
            named = self._evaluate_rows(engine, collator, limit, pace)
            found |= {f"{name}/{key}": value for key, value in named.items()} if number else named
        return Evaluation(found, -found["loss"], "loss")

    @torch.no_grad()
    def _evaluate_rows(self, engine: "Engine", collator: Collator, limit: int | None, pace: Pace) -> dict[str, Any]:
        engine.eval()
        meter = Meter(DistillationTotals, engine.device)
        of_this_rank = self.control.world_size, self.settings.engine.micro_batch_size, limit
        count = collate.evaluation_batches(collator, *of_this_rank)
        for batch in pace(collate.evaluation(collator, self.control.rank, *of_this_rank), count):
            tensors = to_device(batch, engine.device)
            meter.add(self.sums(engine(**tensors), tensors))
        (totals,) = sum_over_ranks(self.control, meter.totals())
        engine.train()
        return self.summarise(totals)
