"""Sums over batches to the figures that are reported. Means are over predicted tokens and pairs, never of means."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from model.albert import PreTrainingOutput

FIELDS = (
    "mlm_loss_sum",
    "mlm_correct",
    "mlm_count",
    "sentence_loss_sum",
    "sentence_correct",
    "sentence_count",
)
SUMS = len(FIELDS) + 2
"""How many `pretraining_sums` there are."""


class Meter:
    """Adds up `size` scalars of each batch on the device: nothing waits for it until `totals` is asked.

    The last two count tokens and rows. Of a batch whose others are not all finite only those two are added;
    `pipeline.health` counts such steps.
    """

    def __init__(self, size: int, device: torch.device | str) -> None:
        # float64: a count of predicted tokens passes the 2**24 that fp32 can count to within a few hundred steps.
        self._sums = torch.zeros(size, dtype=torch.float64, device=device)

    def add(self, values: Sequence[Tensor]) -> None:
        """Adds the scalars of one batch."""
        sums = torch.stack([value.detach().double() for value in values])
        sums[:-2] = torch.where(sums[:-2].isfinite().all(), sums[:-2], 0.0)
        self._sums += sums

    def totals(self) -> list[float]:
        """This rank's sums. Waits for the device."""
        return self._sums.tolist()

    def load(self, totals: Sequence[float]) -> None:
        """Goes on from sums that `totals` gave earlier."""
        self._sums.copy_(torch.tensor(totals, dtype=torch.float64))

    def reset(self) -> None:
        """Starts again from nothing."""
        self._sums.zero_()


def pretraining_sums(output: PreTrainingOutput, sequence_ids: Tensor) -> list[Tensor]:
    """What a `Meter` adds up of a batch: `FIELDS`, then tokens and rows; `sequence_ids` (B, S) is -1 on padding."""
    tokens = (sequence_ids >= 0).sum()
    rows = (sequence_ids[:, 0] >= 0).sum()
    return [*(getattr(output, name) for name in FIELDS), tokens, rows]


def summarise(totals: Sequence[float], sentence_task: str | None) -> dict[str, Any]:
    """Losses and accuracies of `pretraining_sums`, added up over batches and ranks.

    Args:
        sentence_task: "sop" or "nsp", whose name the sentence figures carry; None leaves them out.
    Returns:
        `loss`, `mlm_loss`, `mlm_accuracy` (NaN where nothing was predicted), `predictions`, `interval_tokens` and
        `sentence_figures`.
    """
    mlm_loss, mlm_correct, predictions, _, _, _, tokens, _ = totals
    figures: dict[str, Any] = {
        "mlm_loss": mlm_loss / predictions if predictions else math.nan,
        "mlm_accuracy": mlm_correct / predictions if predictions else math.nan,
    }
    figures["loss"] = figures["mlm_loss"]
    if sentence_task is not None:
        figures |= sentence_figures(totals, sentence_task)
        figures["loss"] += figures.get(f"{sentence_task}_loss", 0.0)
    return figures | {"predictions": int(predictions), "interval_tokens": int(tokens)}


def sentence_figures(totals: Sequence[float], task: str) -> dict[str, Any]:
    """Loss and accuracy of the sentence head, in the name of `task`, and the number of pairs; empty without any."""
    loss, correct, pairs = totals[3:6]
    if not pairs:
        return {}
    return {f"{task}_loss": loss / pairs, f"{task}_accuracy": correct / pairs, "pairs": int(pairs)}


def wilson_interval(successes: float, trials: float, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % confidence interval of a proportion (Wilson, JASA 22, 1927): sound near 0 and 1 and for few trials."""
    if trials == 0:
        return 0.0, 1.0
    p = successes / trials
    centre = (p + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    return centre - half, centre + half


def entropy(counts: Tensor) -> float:
    """Entropy, in nats, of the distribution that `counts` (V,) are counts of."""
    shares = counts.double() / counts.sum().clamp(min=1)
    return float(torch.special.entr(shares).sum())
