"""Measures a training step of this model on packed rows beside `transformers.AlbertForPreTraining` on padded pairs.

    python -m benchmarks.train_step --data shards [--jsonl FILE] [--out benchmarks/results/NAME]

Both systems have the same weights, pairs, masks, precision and optimizer, and take turns in one process. Measured are
seconds of forward, backward and update, and tokens per second without padding. The reference reads the pairs as its
users do: one pair a row, padded to the length of the shards' rows, with a loss over all positions. --jsonl names a file
of {"text": ...} lines, to measure texts at their natural length. They are packed with the vocabulary of --data.

TFLOP/s are printed beside those of a large matrix product in the same run.
Writes NAME.json and NAME.md. This measures a processor; `make gpu` (docs/gpu.md) does the same on a GPU.

On a CPU that other programs use, set OMP_WAIT_POLICY=passive. Threads that spin while they wait for each other make
everything several times slower.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.shared import measure, report
from benchmarks.shared.commands import check_packages
from benchmarks.shared.examples import Examples, draw, open_collator
from benchmarks.shared.systems import DTYPES, System, loss_difference, make_systems
from benchmarks.shared.texts import shards_of_lines
from common.command_line import Parser, entry_point
from model import AlbertConfig, AlbertForPreTraining
from model.counts import model_flops
from pipeline.data.collate import Collator

CPU = torch.device("cpu")


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.train_step", description="This model beside transformers: a training step.")
    p.add_argument("--data", required=True, type=Path, metavar="DIR", help="shards (data_prep shards)")
    p.add_argument("--jsonl", type=Path, metavar="FILE", help='texts at natural length, a {"text": ...} a line')
    p.add_argument("--pieces", type=int, default=2000, metavar="N", help="lines of --jsonl to read (2000)")
    p.add_argument("--model", nargs="+", metavar="NAME", default=["albert-base"], help="presets (albert-base)")
    p.add_argument("--precision", nargs="+", choices=tuple(DTYPES), default=["bf16", "fp32"], help="(bf16 fp32)")
    p.add_argument("--micro-batch", nargs="+", type=int, default=[2], metavar="N", help="rows (2)")
    p.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each system (3)")
    p.add_argument("--threads", type=int, metavar="N", help="threads of the CPU (all)")
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args = parser().parse_all(argv)
    torch.set_num_threads(args.threads or report.cores())
    check_packages("transformers")
    with tempfile.TemporaryDirectory() as scratch:
        found, products = [], dict[str, float]()
        for row in _measure_all(args, Path(scratch)):
            found.append(row)
            # After every row, and the best one counts: other load would make it look slow.
            speed = measure.matrix_product_tflops(DTYPES[row["precision"]], CPU)
            products[row["precision"]] = max(speed, products.get(row["precision"], 0.0))
    result = report.describe(CPU) | {"matrix_product_tflops": products, "measurements": found}
    report.publish(args.out, result, report.markdown(result), f"A training step, {result['hardware']['name']}")


def _measure_all(args: argparse.Namespace, scratch: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of the result."""
    collators = {"full rows": open_collator(args.data)}
    if args.jsonl is not None:
        length = collators["full rows"].shape.sequence_length
        shards = shards_of_lines(args.jsonl, args.pieces, args.data / "spiece.model", scratch, length)
        collators["natural length"] = open_collator(shards)
    for name in args.model:
        for precision in args.precision:
            # Dropout is off in both, because the reference has none after the feed-forward layer.
            config = AlbertConfig.preset(
                name,
                vocab_size=len(collators["full rows"].continues_word),
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
            systems = make_systems(config, DTYPES[precision], CPU)
            difference = loss_difference(systems[0], systems[-1], draw(collators["full rows"], 0, 2, CPU))
            for text, collator in collators.items():
                for micro_batch in args.micro_batch:
                    measured = compare(systems, collator, micro_batch, args.rounds, CPU)
                    labels: dict[str, Any] = {
                        "model": name,
                        "precision": precision,
                        "text": text,
                        "micro_batch": micro_batch,
                    }
                    labels["loss_difference"] = difference
                    for row in measured:
                        yield labels | row
            del systems


def compare(
    systems: list[System], collator: Collator, micro_batch: int, rounds: int, device: torch.device
) -> list[dict[str, Any]]:
    """One row of results for each system whose step fits into memory. `speedup` is that over the last system."""
    torch.compiler.reset()  # each size has its own graph, as in a training run
    this, shape = systems[0].model, collator.shape
    assert isinstance(this, AlbertForPreTraining)
    examples = [draw(collator, number, micro_batch, device) for number in range(rounds + 1)]
    fitting = [system for system in systems if _fits(system, examples if device.type == "cuda" else examples[-1:])]
    turns: list[list[float]] = [[] for _ in fitting]
    for number in range(rounds):
        works = [partial(system.step, examples[number]) for system in fitting]
        for seconds, one in zip(turns, measure.alternate(works, number, device)):
            seconds.append(one)
    rows = []
    for system, seconds in zip(fitting, turns):
        speeds = [batch.tokens / second for batch, second in zip(examples, seconds)]
        row: dict[str, Any] = {
            "system": system.name,
            "tokens_per_second": statistics.median(speeds),
            "step_seconds": statistics.median(seconds),
            "pairs_per_row": statistics.mean(batch.pairs for batch in examples) / micro_batch,
            "memory_bytes": _memory(system, examples[0], device),
        }
        if not system.name.startswith("transformers"):
            squares = statistics.mean(float(batch.packed["cu_seqlens"].diff().square().sum()) for batch in examples)
            row["rows_per_second"] = micro_batch / statistics.median(seconds)
            for name, found in (("tflops", None), ("packed_tflops", squares / micro_batch)):
                flops = model_flops(this.config, shape.sequence_length, shape.predictions, found)
                row[name] = row["rows_per_second"] * flops / 1e12
        rows.append(row)
    if len(rows) == len(systems):
        for row, seconds in zip(rows[:-1], turns):
            row["speedup"] = measure.median_ratio(turns[-1], seconds)
            row["memory_ratio"] = row["memory_bytes"] / rows[-1]["memory_bytes"]
    return rows


def _fits(system: System, batches: Sequence[Examples]) -> bool:
    """Makes a step with each batch, which also warms up, compiles and captures. False if memory is too small."""
    try:
        for examples in batches:
            system.step(examples)
        return True
    except torch.OutOfMemoryError:
        pass
    # Outside of the except block: the exception, which holds the step's tensors, is gone only here.
    for weight in (*system.optimizer.weights, *system.optimizer.masters):
        weight.grad = None
    torch.cuda.empty_cache()
    return False


def _memory(system: System, examples: Examples, device: torch.device) -> int:
    """Bytes of one micro-batch: on a GPU the peak of a step, on a CPU what is saved for the backward pass."""
    if device.type == "cuda":
        return measure.peak_bytes(partial(system.step, examples), device)
    inputs = system.micro_batches(examples)[0]
    return measure.saved_bytes(system.model, partial(system.loss, inputs))


if __name__ == "__main__":
    sys.exit(main())
