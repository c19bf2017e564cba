"""Held-out loss and accuracy of a model in training, over all ranks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline import batches
from pipeline.batches import Batch, Objective, Reader
from pipeline.control import Control
from pipeline.statistics import SUMS, Meter, entropy, pretraining_sums, sentence_figures, summarise, wilson_interval
from pipeline.tensors import to_device


class Scores(NamedTuple):
    """What an evaluation found.

    Attributes:
        figures: see `evaluate`.
        batch: the first batch of this rank.
        guesses: (B, M) the likeliest token of each of its masked positions.
    """

    figures: dict[str, Any]
    batch: Batch
    guesses: NDArray[np.int64]


class _Pass(NamedTuple):
    """One pass over the rows: sums over all ranks, and what `Scores` shows."""

    totals: Sequence[float]
    frequencies: torch.Tensor  # float64 (V,) how often each token was to be predicted
    batch: Batch
    guesses: NDArray[np.int64]


def evaluate(engine: Any, reader: Reader, control: Control, micro_batch_size: int, limit: int | None = None) -> Scores:
    """Evaluates `engine` on the rows of `reader`, each once; the model is back in training mode afterwards. Collective.

    A sentence head is scored on both sentence tasks (the paper's Table 5), in a pass of its own over the same rows:
    label 0 means in both that the segments stand as in the document. A model without a sentence head has no such
    scores.

    Beside the losses it gives `mlm_unigram_entropy`: what a model that knows only how frequent each token is
    would pay for the same masked tokens. A model below it uses context.

    Args:
        reader: its objective is the one that the model learns; `loss` and the MLM figures are of that one's rows.
        limit: micro-batches of each rank; None for all rows.
    Returns:
        The figures `loss`, `mlm_loss`, `mlm_accuracy`, `mlm_unigram_entropy` (nats), `mlm_below_unigram` (share),
        `predictions` and, where the objective has a sentence loss, `sop_loss`, `sop_accuracy` with its 95 % interval
        `sop_accuracy_low` and `sop_accuracy_high`, the same for `nsp`, and `pairs`.
    """
    engine.eval()
    learned = _pass(engine, reader, control, micro_batch_size, limit)
    task = None if reader.objective == "mlm" else reader.objective
    figures = summarise(learned.totals, task)
    floor = entropy(learned.frequencies)
    figures |= {
        "mlm_unigram_entropy": floor,
        "mlm_below_unigram": 1.0 - figures["mlm_loss"] / floor if floor > 0 else 0.0,
    }
    if task is not None:
        figures |= _scores(learned.totals, task)
        other = _other_task(task)
        crossed = _pass(engine, replace(reader, objective=other), control, micro_batch_size, limit)
        figures |= _scores(crossed.totals, other)
    engine.train()
    return Scores(figures, learned.batch, learned.guesses)


def _other_task(task: Objective) -> Objective:
    return next(other for other in get_args(Objective) if other not in (task, "mlm"))


def _scores(totals: Sequence[float], task: str) -> dict[str, Any]:
    figures = sentence_figures(totals, task)
    if figures:
        low, high = wilson_interval(figures[f"{task}_accuracy"] * figures["pairs"], figures["pairs"])
        figures |= {f"{task}_accuracy_low": low, f"{task}_accuracy_high": high}
    return figures


@torch.no_grad()
def _pass(engine: Any, reader: Reader, control: Control, micro_batch_size: int, limit: int | None) -> _Pass:
    meter = Meter(SUMS, engine.device)
    frequencies = torch.zeros(len(reader.continues_word), dtype=torch.float64, device=engine.device)
    first: tuple[Batch, torch.Tensor] | None = None
    for batch in batches.evaluation(reader, control.rank, control.world_size, micro_batch_size, limit):
        tensors = to_device(batch, engine.device)
        output = engine(**tensors)
        meter.add(pretraining_sums(output, tensors["sequence_ids"]))
        labels = tensors["masked_labels"].flatten()  # (B * M,)
        # Unused labels count nothing, at id 0: no shape depends on how many there are.
        frequencies.index_add_(0, labels.clamp(min=0), (labels >= 0).double())
        if first is None:
            first = batch, output.mlm_logits.argmax(dim=-1)  # (B, M)
    assert first is not None, "a shard set has at least one row"
    own = meter.totals()
    combined = control.sum([*own, *frequencies.tolist()])
    return _Pass(combined[: len(own)], torch.tensor(combined[len(own) :]), first[0], first[1].cpu().numpy())
