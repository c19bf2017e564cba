"""Distillation as a `TrainingTask`: pre-training whose loss is the distance from a teacher's states.

The parts of the loss are those of `model.distillation.DistillationSums`. Each is a mean over the global batch, times
its weight.
"""

from collections import namedtuple
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from model.distillation import PARTS, DistillationOutput
from pipeline.data.collate import Batch, Collator
from pipeline.pretraining import evaluation
from pipeline.pretraining.pretraining_task import PreTraining
from pipeline.pretraining.student import Teacher, start_as_teacher
from pipeline.training.evaluations import Evaluation, Monitor
from pipeline.training.step_metrics import Meter, sum_over_ranks
from pipeline.training.training_run import Callback, TrainingRun

if TYPE_CHECKING:
    from pipeline.engine.engine_state import Engine

SAMPLED_ROWS = 1024
"""Rows in which the pieces are counted for the start from a teacher."""
DistillationCounts = namedtuple("DistillationCounts", "tokens sequences neighbours")
"""What the sums of a loss are divided by: the numbers of tokens, of sequences and of ordered pairs of two of a row."""
DistillationTotals = cast(Any, namedtuple)("DistillationTotals", (*PARTS, *DistillationCounts._fields, "rows"))
"""Sums over batches: those of `DistillationSums`, their counts, and the rows that hold a token."""
_COUNT_OF = dict.fromkeys(PARTS, "tokens") | {"pooled": "sequences", "similarity": "neighbours"}


@dataclass
class Distillation(PreTraining):
    """Trains a student as `PreTraining` trains a model, on the distances from its teacher.

    Attributes:
        teacher: whose states are learned.
    """

    teacher: Teacher

    name = "distil"
    sums_kind = DistillationTotals
    held_out_has_paper_masks = False  # a student reads the tokens as they are

    def make_model(self) -> nn.Module:
        """A student that begins as the teacher, unless --init fills it. See `TrainingTask`."""
        settings = self.settings
        model = self.teacher.make_student(settings.model, settings.execution)
        if self.initial is None:
            sample = self.training.read(np.arange(SAMPLED_ROWS)).input_ids
            counts = np.bincount(sample.reshape(-1), minlength=settings.model.vocab_size)
            start_as_teacher(model, self.teacher, torch.from_numpy(counts))
        return model

    def subject(self, new_tensors: Sequence[str] | None) -> list[str]:
        """See `TrainingTask`."""
        parts = ", ".join(f"{name} {weight:g}" for name, weight in self.teacher.loss.items())
        return [*super().subject(new_tensors), f"distilled from {self.teacher.directory}: {parts}"]

    def callbacks(self, run: TrainingRun) -> Sequence[Callback]:
        """None: a student cannot stay at the loss of a model without context."""
        return ()

    def label_counts(self, micro_batches: Sequence[Batch]) -> DistillationCounts:  # type: ignore[override]
        """See `TrainingTask.label_counts`."""
        sequences = np.concatenate([batch.sequence_ids.max(axis=1) + 1 for batch in micro_batches])  # of each row
        return DistillationCounts(
            tokens=float(sum((batch.sequence_ids >= 0).sum() for batch in micro_batches)),
            sequences=float(sequences.sum()),
            neighbours=float((sequences * (sequences - 1)).sum()),
        )

    def loss(  # type: ignore[override]
        self, output: DistillationOutput, label_counts: Any, micro_batches_per_step: int
    ) -> Tensor:
        """The weighted sum of the parts, each a mean over the global batch. See `TrainingTask.loss`."""
        sums = output.distances._asdict()
        weights = {name: self.teacher.loss.get(name, 0.0) * micro_batches_per_step for name in sums}
        terms = [
            part * (weights[name] / max(getattr(label_counts, _COUNT_OF[name]), 1.0)) for name, part in sums.items()
        ]
        assert output.heads.mlm_loss_sum is not None
        assert output.heads.sentence_loss_sum is not None
        of_heads = output.heads.mlm_loss_sum + output.heads.sentence_loss_sum  # (), so that their gradients are 0
        return torch.stack(terms).sum() + 0.0 * of_heads

    def sums(self, output: DistillationOutput, tensors: dict[str, Tensor]) -> Any:  # type: ignore[override]
        """See `TrainingTask.sums`."""
        sequences = tensors["sequence_ids"].amax(dim=1) + 1  # (B,)
        return DistillationTotals(
            *output.distances,
            tokens=(tensors["sequence_ids"] >= 0).sum(),
            sequences=sequences.sum(),
            neighbours=(sequences * (sequences - 1)).sum(),
            rows=(sequences > 0).sum(),
        )

    def summarise(self, totals: Any) -> dict[str, Any]:
        """The loss, and the mean of each part as `distil_PART`."""
        means = {name: getattr(totals, name) / max(getattr(totals, _COUNT_OF[name]), 1.0) for name in self.teacher.loss}
        metrics = {f"distil_{name}": mean for name, mean in means.items()}
        loss = sum(self.teacher.loss[name] * mean for name, mean in means.items())
        return metrics | {"loss": loss, "interval_tokens": int(totals.tokens)}

    def _evaluate_rows(self, engine: "Engine", collator: Collator, limit: int | None, wrap: Monitor) -> dict[str, Any]:
        meter = Meter(DistillationTotals, engine.device)
        rows = self.settings.engine.micro_batch_size
        for tensors, output in evaluation.outputs_of(engine, collator, self.control, rows, limit, wrap):
            meter.add(self.sums(output, tensors))
        (totals,) = sum_over_ranks(self.control, meter.totals())
        return self.summarise(totals)

    def _score(self, metrics: dict[str, Any]) -> Evaluation:
        """The score is minus the loss on the first held-out directory."""
        return Evaluation(metrics, -metrics["loss"], "loss")
