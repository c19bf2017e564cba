"""Trains the same model with this system and with an independent implementation, and compares the losses of each step.

    python -m benchmarks.study.independent_run --data shards/train --eval-data shards/held_out [--steps 500]
        [--precision fp32] [--out benchmarks/results/independent_run]

This system: `pipeline.pretrain` on two ranks, ZeRO stage 2, two accumulated micro-batches, packed rows. The other:
`transformers.AlbertForPreTraining` in one process in fp32, one padded row for each pair, and LAMB, its schedule and the
clipping written out here. Both start from the same weights and read the same pairs with the same masks. In fp32 the
losses must agree within 1e-3 in the first 200 steps; later, rounding separates two runs of any training.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.shared import report
from benchmarks.shared.examples import open_collator, unpack
from common.command_line import Parser, entry_point
from common.errors import UserError
from data_prep.format.shards import open_shards
from model import AlbertConfig, AlbertForPreTraining, huggingface
from model.layers.heads import IGNORED_LABEL
from pipeline.data import sampler
from pipeline.data.collate import Collator
from pipeline.data.prefetch import to_device
from pipeline.distributed.ports import reserve_port
from pipeline.training.flags import positive
from pipeline.training.reporting.metrics_log import read_records

RANKS, ACCUMULATED, BATCH, PEAK, SEED = 2, 2, 16, 0.01, 0
CLOSE_STEPS, TOLERANCE = 200, 1e-3
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


def rate_at(step: int, warmup: int, steps: int) -> float:
    """The learning rate of the paper's code: a line to 0 over all steps, which the warm-up replaces."""
    return PEAK * step / warmup if step < warmup else PEAK * (1.0 - step / steps)


def config_of(data: Path) -> AlbertConfig:
    """The architecture that both implementations train on the shards in `data`."""
    manifest = open_shards(data).manifest
    sizes = {"vocab_size": manifest.vocabulary_size, "max_position_embeddings": manifest.max_seq_length}
    return AlbertConfig.preset("albert-tiny", **FIELDS, **sizes)


def sums_of(model: nn.Module, collator: Collator, epochs: Sequence[int], rows: Sequence[int]) -> list[Tensor]:
    """MLM loss sum and count, sentence loss sum and count of packed rows, computed on one padded row for each pair."""
    batch = to_device(collator.read(epochs, rows), "cpu")
    pairs = list(unpack(batch, collator.shape.sequence_length))
    given = {name: torch.stack([pair[name] for pair in pairs]) for name in pairs[0]}
    labels = given.pop("labels")  # (N, S)
    del given["sentence_order_label"]
    order = batch["sentence_labels"]  # (B, P)
    counts = batch["sequence_ids"].amax(dim=1) + 1  # (B,)
    orders = torch.cat([order[row, :count] for row, count in enumerate(counts.tolist())])  # (N,)
    output = model(**given)
    mlm = functional.cross_entropy(
        output.prediction_logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED_LABEL, reduction="sum"
    )
    sop = functional.cross_entropy(output.sop_logits, orders, ignore_index=IGNORED_LABEL, reduction="sum")
    return [mlm, (labels != IGNORED_LABEL).sum(), sop, (orders != IGNORED_LABEL).sum()]


def train_reference(data: Path, steps: int, out: Path) -> list[tuple[float, float]]:
    """Trains the independent implementation, saves it to `out`, and returns (MLM, SOP) loss of each step."""
    torch.manual_seed(SEED)
    huggingface.save(AlbertForPreTraining(config_of(data)), out)
    model = transformers.AlbertForPreTraining.from_pretrained(out).train()
    optimizer, collator = LiteralLamb(model), open_collator(data)
    losses = []
    for step in range(steps):
        positions = np.arange(step * BATCH, (step + 1) * BATCH)
        epochs, rows = sampler.rows_at(positions, len(collator.shards), SEED)
        mlm, predictions, sop, pairs = sums_of(model, collator, epochs.tolist(), rows.tolist())
        mlm, sop = mlm / predictions, sop / pairs.clamp(min=1)
        (mlm + sop).backward()
        optimizer.step(rate_at(step, round(0.025 * steps), steps))
        losses.append((mlm.item(), sop.item()))
    model.save_pretrained(out)
    return losses


def train_this(
    data: Path, eval_data: Path, steps: int, precision: str, folder: Path
) -> tuple[list[tuple[float, float]], Path]:
    """Trains with `pipeline.pretrain`. Returns (MLM, SOP) loss of each step, and the export."""
    config = {
        "train_batch_size": BATCH,
        "train_micro_batch_size_per_gpu": BATCH // RANKS // ACCUMULATED,
        "optimizer": {
            "type": "Lamb",
            "params": {"lr": PEAK, "betas": [0.9, 0.999], "eps": 1e-6, "weight_decay": 0.01},
        },
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 20_000},
    }
    (folder / "deepspeed.json").write_text(json.dumps(config))
    # Another job on this machine may use DeepSpeed's usual port.
    words = ["deepspeed", "--quiet", "--num_accelerators", str(RANKS), "--master_port", str(reserve_port())]
    words += ["--module", "pipeline.pretrain"]
    words += ["--model", "albert-tiny", "--model-args", *(f"{name}={value}" for name, value in FIELDS.items())]
    words += ["--data", str(data), "--eval-data", str(eval_data), "--output", str(folder / "run")]
    words += ["--deepspeed_config", str(folder / "deepspeed.json"), "--precision", precision, "--seed", str(SEED)]
    words += ["--steps", str(steps), "--log-interval", "1", "--eval-interval", str(steps)]
    words += ["--save-interval", str(steps)]
    result = subprocess.run(
        words, env=os.environ | {"DS_ACCELERATOR": "cpu"}, capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise UserError(f"pipeline.pretrain ended with status {result.returncode}: {result.stderr.strip()[-300:]}")
    # A batch without a pair that has a partner has no SOP loss.
    found = [(record["mlm_loss"], record.get("sop_loss", 0.0)) for record in read_records(folder / "run", "train")]
    return found, folder / "run" / "export"


@torch.no_grad()
def held_out(export: Path, eval_data: Path) -> list[float]:
    """The held-out MLM loss of each row, by `transformers`."""
    model = transformers.AlbertForPreTraining.from_pretrained(export).eval()
    collator = open_collator(eval_data)
    losses = []
    for row in range(len(collator.shards)):
        mlm, predictions, _, _ = sums_of(model, collator, [0], [row])
        losses.append(float(mlm / predictions.clamp(min=1)))
    return losses


@dataclass(frozen=True)
class Outcome:
    """How far two trainings differ.

    Attributes:
        close: largest difference of a loss in the first `CLOSE_STEPS` steps.
        later: mean difference (this minus the other) of the MLM loss of the steps after them, and half its 95 %
            interval; None if there are none.
        held_out: mean difference of the held-out MLM losses of the rows, and half its 95 % interval.
    """

    steps: int
    precision: str
    close: float
    later: tuple[float, float] | None
    held_out: tuple[float, float]
    losses: list[tuple[float, float]]
    reference: list[tuple[float, float]]


def mean_difference(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """The mean of `first` - `second` and half its 95 % interval (normal)."""
    differences = np.subtract(first, second)
    return float(differences.mean()), float(1.96 * differences.std(ddof=1) / math.sqrt(len(differences)))


def compare(data: Path, eval_data: Path, steps: int, precision: str, folder: Path) -> Outcome:
    """Runs both trainings in `folder` and compares them."""
    ours, export = train_this(data, eval_data, steps, precision, folder)
    theirs = train_reference(data, steps, folder / "reference")
    close = np.abs(np.subtract(ours, theirs))[:CLOSE_STEPS].max()
    later = None
    if steps > CLOSE_STEPS + 1:
        later = mean_difference(*([mlm for mlm, _ in losses[CLOSE_STEPS:]] for losses in (ours, theirs)))
    difference = mean_difference(held_out(export, eval_data), held_out(folder / "reference", eval_data))
    return Outcome(steps, precision, float(close), later, difference, ours, theirs)


def markdown(outcome: Outcome) -> str:
    """The outcome as a short page."""
    lines = [
        f"{outcome.steps} steps, this system in {outcome.precision}, the other in fp32.",
        "",
        "| what | difference |",
        "|---|---|",
        f"| largest difference of a loss in the first {min(outcome.steps, CLOSE_STEPS)} steps | {outcome.close:.1e} |",
    ]
    if outcome.later is not None:
        lines.append(f"| mean difference of the later MLM losses | {outcome.later[0]:+.5f} ± {outcome.later[1]:.5f} |")
    lines.append(f"| held-out MLM loss | {outcome.held_out[0]:+.5f} ± {outcome.held_out[1]:.5f} |")
    return "\n".join(lines)


def parser() -> Parser:
    """The command line."""
    p = Parser(
        prog="python -m benchmarks.study.independent_run", description="The same training by two implementations."
    )
    p.add_argument("--data", required=True, type=Path, metavar="DIR", help="training shards")
    p.add_argument("--eval-data", required=True, type=Path, metavar="DIR", help="held-out shards")
    p.add_argument("--steps", type=positive, default=500, metavar="N", help="steps of the run (500)")
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of this system (fp32)")
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    return p


@entry_point
def main(argv: Sequence[str]) -> int:
    """Runs the command line. Returns 1 if the two differ in fp32 by more than `TOLERANCE` in the first steps."""
    args = parser().parse_all(argv)
    with tempfile.TemporaryDirectory(prefix="independent_run_") as scratch:
        outcome = compare(args.data, args.eval_data, args.steps, args.precision, Path(scratch))
    record: dict[str, Any] = report.describe(torch.device("cpu")) | {"format": "independent_run 1"}
    report.publish(args.out, record | vars(outcome), markdown(outcome))
    return int(args.precision == "fp32" and outcome.close > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
