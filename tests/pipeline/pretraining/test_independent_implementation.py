"""This system and an independent implementation compute the same training: the losses of each step, and the models.

This system: `pipeline.pretrain` on two ranks, ZeRO stage 2, two accumulated micro-batches, packed rows. The other:
`transformers.AlbertForPreTraining` in one process, one padded row for each pair, and LAMB, its schedule and the
clipping written out here. Its order of rows, swaps and masks are computed plainly in `tests/pipeline/data`. Both start
from the same weights.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.shared.examples import open_collator, unpack
from data_prep.format.shards import open_shards
from model import AlbertConfig, AlbertForPreTraining, huggingface
from model.layers.heads import IGNORED_LABEL
from pipeline.data.collate import Collator
from pipeline.training.metrics_file import read_records
from tests.pipeline.data import plain_batches
from tests.pipeline.test_pretrain import Job

pytestmark = pytest.mark.slow

RANKS, ACCUMULATED, BATCH, PEAK, SEED, STEPS = 2, 2, 16, 0.01, 0, 30
TOLERANCE = 1e-5
"""Of a loss. The largest difference of the 30 steps was 8e-7; later, rounding separates two runs of any training."""
# E differs from H: with E = H `transformers` trains a projection that this model does not have. Its sentence head also
# has a dropout, which the paper's code does not have.
FIELDS = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "embedding_size": 32,
    "initial_attention": "random",
    "classifier_dropout_prob": 0.0,
}
CONFIG = {
    "train_batch_size": BATCH,
    "train_micro_batch_size_per_gpu": BATCH // RANKS // ACCUMULATED,
    "optimizer": {"type": "Lamb", "params": {"lr": PEAK, "betas": [0.9, 0.999], "eps": 1e-6, "weight_decay": 0.01}},
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 20_000},
}
Losses = list[tuple[float, float]]  # MLM and SOP loss of each step


class LiteralLamb:
    """LAMB without bias correction, one tensor at a time; LayerNorms and biases have no decay and trust ratio 1."""

    def __init__(self, model: nn.Module) -> None:
        self.named = list(model.named_parameters())
        self.m = [torch.zeros_like(weight) for _, weight in self.named]
        self.v = [torch.zeros_like(weight) for _, weight in self.named]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Clips the gradients to a global norm of 1, updates all weights, and drops the gradients."""
        gradients = [weight.grad if weight.grad is not None else torch.zeros_like(weight) for _, weight in self.named]
        norm = math.sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients))
        for (name, weight), gradient, m, v in zip(self.named, gradients, self.m, self.v):
            g = gradient * min(1.0, 1.0 / norm)
            m.copy_(0.9 * m + 0.1 * g)
            v.copy_(0.999 * v + 0.001 * g * g)
            u = m / (v.sqrt() + 1e-6)
            ratio = 1.0
            if not name.endswith("bias") and "layer_norm" not in name.lower() and "layernorm" not in name.lower():
                u = u + 0.01 * weight
                weight_norm, update_norm = float(weight.double().norm()), float(u.double().norm())
                ratio = weight_norm / update_norm if weight_norm > 0 and update_norm > 0 else 1.0
            weight.sub_(rate * ratio * u)
            weight.grad = None


def sums_of(model: nn.Module, collator: Collator, epochs: Sequence[int], rows: Sequence[int]) -> list[Tensor]:
    """MLM loss sum and count, sentence loss sum and count of packed rows, computed on one padded row for each pair."""
    batch = plain_batches.read(collator, epochs, rows)._asdict()
    return sums_of_batch(model, {name: torch.from_numpy(array) for name, array in batch.items()})


def sums_of_batch(model: nn.Module, batch: dict[str, Tensor]) -> list[Tensor]:
    """The same of the packed rows of a batch, by an ALBERT or a BERT of `transformers`."""
    pairs = list(unpack(batch, batch["input_ids"].shape[1]))
    given = {name: torch.stack([pair[name] for pair in pairs]) for name in pairs[0]}
    labels = given.pop("labels")  # (N, S)
    del given["sentence_order_label"]
    order = batch["sentence_labels"]  # (B, P)
    counts = batch["sequence_ids"].amax(dim=1) + 1  # (B,)
    orders = torch.cat([order[row, :count] for row, count in enumerate(counts.tolist())])  # (N,)
    output = model(**given)
    mlm = functional.cross_entropy(
        output[0].flatten(0, 1), labels.flatten(), ignore_index=IGNORED_LABEL, reduction="sum"
    )
    sop = functional.cross_entropy(output[1], orders, ignore_index=IGNORED_LABEL, reduction="sum")
    return [mlm, (labels != IGNORED_LABEL).sum(), sop, (orders != IGNORED_LABEL).sum()]


def train_reference(data: Path, out: Path) -> Losses:
    """Trains the independent implementation, and saves it to `out`."""
    manifest = open_shards(data).manifest
    sizes = {"vocab_size": manifest.vocabulary_size, "max_position_embeddings": manifest.max_seq_length}
    torch.manual_seed(SEED)
    huggingface.save(AlbertForPreTraining(AlbertConfig.preset("albert-tiny", **FIELDS, **sizes)), out)
    model = transformers.AlbertForPreTraining.from_pretrained(out).train()
    optimizer, collator = LiteralLamb(model), open_collator(data)
    losses = []
    for step in range(STEPS):
        positions = range(step * BATCH, (step + 1) * BATCH)
        epochs, rows = zip(*(plain_batches.row_at(position, len(collator.shards), SEED) for position in positions))
        mlm, predictions, sop, pairs = sums_of(model, collator, epochs, rows)
        mlm, sop = mlm / predictions, sop / pairs.clamp(min=1)
        (mlm + sop).backward()
        # The paper's code: a line to 0 over all steps, which the warm-up replaces.
        warmup = round(0.025 * STEPS)
        optimizer.step(PEAK * step / warmup if step < warmup else PEAK * (1.0 - step / STEPS))
        losses.append((mlm.item(), sop.item()))
    model.save_pretrained(out)
    return losses


def train_this(data: Path, folder: Path) -> Losses:
    """Trains with `pipeline.pretrain` in `folder`, with the ranks that a launcher would start forked."""
    (folder / "deepspeed.json").write_text(json.dumps(CONFIG))
    words = ["--model", "albert-tiny", "--model-args", *(f"{name}={value}" for name, value in FIELDS.items())]
    words += ["--data", str(data), "--deepspeed_config", str(folder / "deepspeed.json"), "--precision", "fp32"]
    words += ["--seed", str(SEED), "--steps", str(STEPS), "--log-interval", "1", "--save-interval", str(STEPS)]
    Job(words, folder / "run", RANKS).finish()
    # A batch without a pair that has a partner has no SOP loss.
    return [(record["mlm_loss"], record.get("sop_loss", 0.0)) for record in read_records(folder / "run", "train")]


@torch.no_grad()
def held_out(export: Path, eval_data: Path) -> float:
    """The held-out MLM loss, by `transformers`."""
    model = transformers.AlbertForPreTraining.from_pretrained(export).eval()
    collator = open_collator(eval_data)
    rows = list(range(len(collator.shards)))
    mlm, predictions, _, _ = sums_of(model, collator, [0] * len(rows), rows)
    return float(mlm / predictions)


def test_every_step_has_the_same_losses_and_the_models_learn_and_end_equal(corpus, tmp_path):
    torch.set_num_threads(1)
    ours = train_this(corpus.train, tmp_path)
    theirs = train_reference(corpus.train, tmp_path / "reference")
    assert len(ours) == STEPS
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)
    mlm = [loss for loss, _ in theirs]
    assert sum(mlm[-5:]) < sum(mlm[:5]) - 1.0  # otherwise equal losses would say little
    own, other = (held_out(tmp_path / name, corpus.held_out) for name in ("run/export", "reference"))
    assert own == pytest.approx(other, abs=TOLERANCE)
