"""Losses and accuracies of pre-training from sums over batches; the evaluation on held-out rows.

Every mean is over predicted tokens or pairs, never over means.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, get_args

import torch
from torch import Tensor

from model.pretraining import PreTrainingOutput
from pipeline.data import collate
from pipeline.data.collate import Collator, Objective
from pipeline.data.prefetch import prefetch, to_device
from pipeline.distributed.control import ControlGroup
from pipeline.tasks.metrics import wilson_interval
from pipeline.training.evaluations import Monitor, unmonitored
from pipeline.training.step_metrics import Meter, sum_over_ranks

if TYPE_CHECKING:
    from pipeline.engine.engine_state import Engine

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


def evaluate(
    engine: "Engine",
    collator: Collator,
    control: ControlGroup,
    micro_batch_size: int,
    limit: int | None = None,
    wrap: Monitor = unmonitored,
) -> dict[str, Any]:
    """Evaluates `engine` on rows of `collator`, each once, and leaves it in training mode. Collective.

    A model with a sentence head is scored on both sentence tasks (Table 5 of the paper): on its own one, and on the
    other one in a second pass over the same rows. In both tasks label 0 means that the segments are in document order.

    `mlm_unigram_entropy` is the MLM loss of a model that knows only the frequency of each token. A model with a lower
    loss uses context.

    Args:
        collator: its objective is the model's; `loss` and the MLM metrics are those of the rows that it draws.
        limit: number of rows, see `collate.evaluation`; None for all rows.
        wrap: every batch passes through it.
    Returns:
        The metrics `loss`, `mlm_loss`, `mlm_accuracy` with its 95 % interval `mlm_accuracy_low` and
        `mlm_accuracy_high`, `mlm_unigram_entropy` (nats), `mlm_below_unigram` (from 0 to 1, by how much the MLM loss is
        below that entropy), and `predictions`. With a sentence loss also `sop_loss`,
        `sop_accuracy` with its interval, the same for `nsp`, and `pairs`.
    """
    totals, frequencies = _pass(engine, collator, control, micro_batch_size, limit, wrap)
    task = None if collator.objective == "mlm" else collator.objective
    metrics = summarise(totals, task)
    unigram_entropy = entropy(frequencies)
    metrics |= {
        "mlm_unigram_entropy": unigram_entropy,
        "mlm_below_unigram": 1.0 - metrics["mlm_loss"] / unigram_entropy if unigram_entropy > 0 else 0.0,
        # As if the masked tokens were independent.
        **_interval("mlm", totals.mlm_correct, totals.mlm_count),
    }
    if task is not None:
        other = next(other for other in get_args(Objective) if other not in (task, "mlm"))
        as_other = replace(collator, objective=other)
        of_other, _ = _pass(engine, as_other, control, micro_batch_size, limit, wrap)
        for name, sums in ((task, totals), (other, of_other)):
            if sums.sentence_count:
                metrics |= sentence_metrics(sums, name) | _interval(name, sums.sentence_correct, sums.sentence_count)
    return metrics


def _interval(name: str, correct: float, count: float) -> dict[str, float]:
    """The 95 % interval of an accuracy."""
    return dict(zip((f"{name}_accuracy_low", f"{name}_accuracy_high"), wilson_interval(correct, count)))


@torch.no_grad()
def outputs_of(
    engine: "Engine", collator: Collator, control: ControlGroup, micro_batch_size: int, limit: int | None, wrap: Monitor
) -> Iterator[tuple[dict[str, Tensor], Any]]:
    """Yields this rank's held-out batches on the device, with the output for each.

    The engine is in evaluation mode meanwhile, and in training mode afterwards. Collective.
    """
    engine.eval()
    count = collate.evaluation_batches(collator, control.world_size, micro_batch_size, limit)
    batches = collate.evaluation(collator, control.rank, control.world_size, micro_batch_size, limit)
    with contextlib.closing(prefetch(batches)) as made:
        for batch in wrap(made, count):
            tensors = to_device(batch, engine.device)
            yield tensors, engine(**tensors)
    engine.train()


def _pass(
    engine: "Engine",
    collator: Collator,
    control: ControlGroup,
    micro_batch_size: int,
    limit: int | None,
    wrap: Monitor,
) -> tuple[PretrainingSums[float], Tensor]:
    """Evaluates the rows of `collator` with its objective. Collective.

    Returns:
        Sums over all ranks; float64 (V,) how often each token is a label.
    """
    meter = Meter(PretrainingSums, engine.device)
    frequencies = torch.zeros(len(collator.continues_word), dtype=torch.float64, device=engine.device)
    for tensors, output in outputs_of(engine, collator, control, micro_batch_size, limit, wrap):
        meter.add(batch_sums(output, tensors["sequence_ids"]))
        labels = tensors["masked_labels"].flatten()  # (B * M,)
        # An unused label adds 0 at id 0, so that no shape depends on their number.
        frequencies.index_add_(0, labels.clamp(min=0), (labels >= 0).double())
    totals, counts = sum_over_ranks(control, meter.totals(), frequencies.tolist())
    return totals, torch.tensor(counts)
