"""Distillation as a `TrainingTask`: pre-training whose loss is the distance from a teacher's states.

The parts of the loss are those of `model.distillation.DistillationSums`, and `mlm` and `sentence`, the losses of
pre-training. Each is a mean over the global batch, times its weight.
"""

from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from model.distillation import PARTS, DistillationOutput
from pipeline.data.collate import Batch, Collator
from pipeline.pretraining import evaluation
from pipeline.pretraining.evaluation import PretrainingSums
from pipeline.pretraining.pretraining_task import PreTraining
from pipeline.pretraining.student import HEAD_PARTS
from pipeline.training.step_metrics import Meter, sum_over_ranks
from pipeline.training.training_task import Evaluation, Pace

if TYPE_CHECKING:
    from pipeline.engine.engine_state import Engine

_TOTALS = (*PretrainingSums._fields, *PARTS, "sequences", "neighbours")
DistillationTotals = cast(Any, namedtuple)("DistillationTotals", _TOTALS)
"""Sums over batches: those of `PretrainingSums` and `DistillationSums`, and the numbers of sequences and of ordered
pairs of two sequences in a row."""
DistillationCounts = namedtuple("DistillationCounts", "mlm_count sentence_count tokens sequences neighbours")
"""What the sums of a loss are divided by, called as in `DistillationTotals`."""
_COUNT_OF = dict.fromkeys(PARTS, "tokens") | {"pooled": "sequences", "similarity": "neighbours"}
_COUNT_OF |= {name: f"{name}_count" for name in HEAD_PARTS}


@dataclass
class Distillation(PreTraining):
    """Trains a student as `PreTraining` trains a model, on the distances from its teacher.

    Attributes:
        weights: of the parts of the loss, see `Teacher.loss`.
    """

    weights: Mapping[str, float]

    name = "distil"
    sums_kind = DistillationTotals

    def label_counts(self, micro_batches: Sequence[Batch]) -> DistillationCounts:  # type: ignore[override]
        """See `TrainingTask.label_counts`."""
        sequences = np.concatenate([batch.sequence_ids.max(axis=1) + 1 for batch in micro_batches])  # of each row
        return DistillationCounts(
            *super().label_counts(micro_batches),
            tokens=float(sum((batch.sequence_ids >= 0).sum() for batch in micro_batches)),
            sequences=float(sequences.sum()),
            neighbours=float((sequences * (sequences - 1)).sum()),
        )

    def loss(  # type: ignore[override]
        self, output: DistillationOutput, label_counts: Any, micro_batches_per_step: int
    ) -> Tensor:
        """The weighted sum of the parts, each a mean over the global batch. See `TrainingTask.loss`."""
        heads = output.heads
        sums = {"mlm": heads.mlm_loss_sum, "sentence": heads.sentence_loss_sum, **output.distances._asdict()}
        weights = {name: self.weights.get(name, 0.0) * micro_batches_per_step for name in sums}
        terms = [
            part * (weights[name] / max(getattr(label_counts, _COUNT_OF[name]), 1.0)) for name, part in sums.items()
        ]
        return torch.stack(terms).sum()

    def sums(self, output: DistillationOutput, tensors: dict[str, Tensor]) -> Any:  # type: ignore[override]
        """See `TrainingTask.sums`."""
        sequences = tensors["sequence_ids"].amax(dim=1) + 1  # (B,)
        return DistillationTotals(
            *evaluation.batch_sums(output.heads, tensors["sequence_ids"]),
            *output.distances,
            sequences=sequences.sum(),
            neighbours=(sequences * (sequences - 1)).sum(),
        )

    def summarise(self, totals: Any) -> dict[str, Any]:
        """The loss; the mean of each part, as `distil_PART`; and the metrics of the heads that are trained."""
        weights = self.weights
        metrics: dict[str, Any] = {
            f"distil_{name}": getattr(totals, name) / max(getattr(totals, _COUNT_OF[name]), 1.0)
            for name in PARTS
            if name in weights
        }
        loss = sum(weights[name.removeprefix("distil_")] * value for name, value in metrics.items())
        if set(HEAD_PARTS) & set(weights):
            objective = self.settings.objective
            of_heads = evaluation.summarise(
                PretrainingSums(*totals[: len(PretrainingSums._fields)]),
                None if objective == "mlm" else objective,
            )
            loss += weights.get("mlm", 0.0) * of_heads["mlm_loss"]
            loss += weights.get("sentence", 0.0) * of_heads.get(f"{objective}_loss", 0.0)
            metrics = of_heads | metrics
        return metrics | {"loss": loss, "interval_tokens": int(totals.tokens)}

    def _evaluate_rows(self, engine: "Engine", collator: Collator, limit: int | None, pace: Pace) -> dict[str, Any]:
        meter = Meter(DistillationTotals, engine.device)
        rows = self.settings.engine.micro_batch_size
        for tensors, output in evaluation.outputs_of(engine, collator, self.control, rows, limit, pace):
            meter.add(self.sums(output, tensors))
        (totals,) = sum_over_ranks(self.control, meter.totals())
        return self.summarise(totals)

    def _score(self, metrics: dict[str, Any]) -> Evaluation:
        """The score is minus the loss on the first held-out directory."""
        return Evaluation(metrics, -metrics["loss"], "loss")
