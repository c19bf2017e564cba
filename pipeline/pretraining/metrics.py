"""Metrics of pre-training from sums over batches. Every mean is over predicted tokens or pairs, never over means."""

import math
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from model.pretraining import PreTrainingOutput

T = TypeVar("T", Tensor, float)


class PretrainingSums(NamedTuple, Generic[T]):
    """Sums over batches.

    Attributes:
        mlm_loss, mlm_correct, mlm_count: over the masked tokens.
        sentence_loss, sentence_correct, sentence_count: over the segment pairs.
        tokens: without padding.
        rows: that hold at least one token.
    """

    mlm_loss: T
    mlm_correct: T
    mlm_count: T
    sentence_loss: T
    sentence_correct: T
    sentence_count: T
    tokens: T
    rows: T


def batch_sums(output: PreTrainingOutput, sequence_ids: Tensor) -> PretrainingSums[Any]:
    """The sums of one batch, scalars () on its device; `sequence_ids` (B, S) is -1 on padding."""
    return PretrainingSums(
        mlm_loss=output.mlm_loss_sum,
        mlm_correct=output.mlm_correct,
        mlm_count=output.mlm_count,
        sentence_loss=output.sentence_loss_sum,
        sentence_correct=output.sentence_correct,
        sentence_count=output.sentence_count,
        tokens=(sequence_ids >= 0).sum(),
        rows=(sequence_ids[:, 0] >= 0).sum(),
    )


def summarise(totals: PretrainingSums[float], sentence_task: str | None) -> dict[str, Any]:
    """Losses and accuracies from sums over all batches and ranks.

    Args:
        sentence_task: "sop" or "nsp", the prefix of the sentence metrics; None leaves them out.
    Returns:
        `loss`, `mlm_loss`, `mlm_accuracy` (NaN if nothing was predicted), `predictions`, `interval_tokens` and
        `sentence_metrics`.
    """
    predictions = totals.mlm_count
    metrics: dict[str, Any] = {
        "mlm_loss": totals.mlm_loss / predictions if predictions else math.nan,
        "mlm_accuracy": totals.mlm_correct / predictions if predictions else math.nan,
    }
    metrics["loss"] = metrics["mlm_loss"]
    if sentence_task is not None:
        metrics |= sentence_metrics(totals, sentence_task)
        metrics["loss"] += metrics.get(f"{sentence_task}_loss", 0.0)
    return metrics | {"predictions": int(predictions), "interval_tokens": int(totals.tokens)}


def sentence_metrics(totals: PretrainingSums[float], task: str) -> dict[str, Any]:
    """Loss and accuracy of the sentence head, named after `task`, and the number of pairs; {} without pairs."""
    pairs = totals.sentence_count
    if not pairs:
        return {}
    return {
        f"{task}_loss": totals.sentence_loss / pairs,
        f"{task}_accuracy": totals.sentence_correct / pairs,
        "pairs": int(pairs),
    }


def entropy(counts: Tensor) -> float:
    """Entropy, in nats, of the distribution with the frequencies `counts` (V,)."""
    probabilities = counts.double() / counts.sum().clamp(min=1)
    return float(torch.special.entr(probabilities).sum())
