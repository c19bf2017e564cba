"""Held-out loss and accuracy of a model in training, over all ranks."""

from typing import Any

import torch

from pipeline import batches
from pipeline.batches import Reader
from pipeline.control import Control
from pipeline.statistics import SUMS, Meter, entropy, pretraining_sums, summarise, wilson_interval
from pipeline.tensors import to_device


@torch.no_grad()
def evaluate(
    engine: Any, reader: Reader, control: Control, micro_batch_size: int, limit: int | None = None
) -> dict[str, Any]:
    """Evaluates `engine` on the rows of `reader`, each once; the model is back in training mode afterwards.

    Beside the losses it gives `mlm_unigram_entropy`: what a model that knows only how frequent each token is
    would pay for the same masked tokens. A model below it uses context.

    Args:
        limit: micro-batches of each rank; None for all rows.
    Returns:
        `loss`, `mlm_loss`, `mlm_accuracy`, `mlm_unigram_entropy` (nats), `mlm_below_unigram` (share) and, where the
        objective has a sentence loss, `sop_accuracy` with its 95 % interval and so on.
    """
    engine.eval()
    meter = Meter(SUMS, engine.device)
    frequencies = torch.zeros(len(reader.continues_word), dtype=torch.float64, device=engine.device)
    for batch in batches.evaluation(reader, control.rank, control.world_size, micro_batch_size, limit):
        tensors = to_device(batch, engine.device)
        meter.add(pretraining_sums(engine(**tensors), tensors["sequence_ids"]))
        labels = tensors["masked_labels"].flatten()  # (B * M,)
        # Unused labels count nothing, at id 0: no shape depends on how many there are.
        frequencies.index_add_(0, labels.clamp(min=0), (labels >= 0).double())
    engine.train()
    own = meter.totals()
    combined = control.sum([*own, *frequencies.tolist()])
    totals, counts = combined[: len(own)], torch.tensor(combined[len(own) :])
    task = None if reader.objective == "mlm" else reader.objective
    figures = summarise(totals, task)
    floor = entropy(counts)
    figures |= {
        "mlm_unigram_entropy": floor,
        "mlm_below_unigram": 1.0 - figures["mlm_loss"] / floor if floor > 0 else 0.0,
    }
    if f"{task}_accuracy" in figures:
        low, high = wilson_interval(figures[f"{task}_accuracy"] * figures["pairs"], figures["pairs"])
        figures |= {f"{task}_accuracy_low": low, f"{task}_accuracy_high": high}
    return figures
