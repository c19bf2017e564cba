"""How well a pre-trained model does its own tasks and the other sentence loss's, on held-out text (Table 5)."""

import json
from pathlib import Path
from typing import Any

import torch

from data_prep import atomic
from data_prep.errors import UserError
from data_prep.shards import open_shards
from data_prep.vocabulary import Vocabulary
from model import AlbertForPreTraining
from pipeline import batches, export
from pipeline.batches import BatchShape, Objective, Reader
from pipeline.statistics import SUMS, Meter, pretraining_sums, summarise, wilson_interval
from pipeline.tasks.results import INTRINSIC
from pipeline.tensors import to_device

MICRO_BATCH = 16
_SEED = 0


@torch.no_grad()
def figures_of(model: AlbertForPreTraining, reader: Reader, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Accuracies of `model`, which is in evaluation mode on `device`, on every row of `reader`."""
    meter = Meter(SUMS, device)
    for batch in batches.evaluation(reader, 0, 1, MICRO_BATCH, None):
        tensors = to_device(batch, device)
        meter.add(pretraining_sums(model(**tensors), tensors["sequence_ids"]))
    return summarise(meter.totals(), None if reader.objective == "mlm" else reader.objective)


def measure(run: Path, held_out: Path) -> dict[str, Any]:
    """`mlm_accuracy`, and what the run's sentence head says of either sentence task, each with its 95 % interval.

    A head that has learned one task answers the other as it is: 0 is "in order" for both. A model without a sentence
    head has no such figures.

    Raises:
        UserError: `run` holds no run or no checkpoint, or `held_out` no shards of its vocabulary.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = export.load_model(run).to(device)
    shards = open_shards(held_out)
    if shards.manifest.vocabulary_size != model.config.vocab_size:
        raise UserError(f"{held_out} was made with another vocabulary than {run}; name the run's own held-out shards")
    vocabulary = Vocabulary.load(run / "spiece.model")
    tasks: tuple[Objective, ...] = ("mlm",) if model.config.sentence_head is None else ("sop", "nsp")
    found: dict[str, Any] = {}
    for task in tasks:
        reader = Reader(shards, BatchShape.of(shards), vocabulary.continues_word, task, _SEED)
        figures = figures_of(model, reader, device)
        names = ["mlm_accuracy", *([f"{task}_accuracy"] if f"{task}_accuracy" in figures else [])]
        for name, trials in zip(names, (figures["predictions"], figures.get("pairs", 0))):
            if name not in found:
                low, high = wilson_interval(figures[name] * trials, trials)
                found |= {name: figures[name], f"{name}_low": low, f"{name}_high": high}
    return found


def write(run: Path, held_out: Path) -> dict[str, Any]:
    """Measures and keeps the figures as `run/intrinsic.json`. Raises UserError as `measure` does."""
    figures = measure(run, held_out)
    atomic.write_text(run / INTRINSIC, json.dumps(figures, indent=1) + "\n")
    return figures
