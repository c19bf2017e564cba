"""Measures fine-tuning on SST-2 beside `transformers.Trainer`.

    python -m benchmarks.finetune --init EXPORT --sst2 GLUE [--out benchmarks/results/NAME]

These are examples per second of training, without start-up and evaluation. The systems take turns, each in its own
process. Writes NAME.json and NAME.md.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.shared import report
from common.command_line import Parser, entry_point
from common.errors import UserError
from common.text import markdown_table
from pipeline.checkpoint.initial_weights import read_initial_weights
from pipeline.tasks.files import reading
from pipeline.tasks.kinds.texts import TextExample
from pipeline.tasks.registry import find_task

REFERENCES = ("longest", "max_length")
BATCH = 32


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.finetune", description="Fine-tuning beside transformers.Trainer.")
    p.add_argument("--init", required=True, type=Path, metavar="DIR", help="an exported model")
    p.add_argument("--sst2", required=True, metavar="DIR", help="GLUE, or its SST-2")
    p.add_argument("--steps", type=int, default=60, metavar="N", help="steps of a turn (60)")
    p.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each system (3)")
    p.add_argument("--threads", type=int, default=report.cores(), metavar="N", help="threads of the CPU (all)")
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args = parser().parse_all(argv)
    torch.set_num_threads(args.threads)
    config = read_initial_weights(args.init).config
    result: dict[str, Any] = report.describe(torch.device("cuda" if torch.cuda.is_available() else "cpu")) | {
        "format": "finetune 2",
        "model": f"{config.num_hidden_layers} layers, hidden size {config.hidden_size}",
        "sst2": throughput(args),
    }
    report.publish(args.out, result, markdown(result))


def throughput(args: argparse.Namespace) -> dict[str, Any]:
    """Examples per second of each system in each round, and the median ratio over the rounds."""
    speeds: dict[str, list[float]] = {name: [] for name in ("this", *REFERENCES)}
    for number in range(args.rounds):
        order = list(speeds) if number % 2 == 0 else list(reversed(speeds))
        for name in order:
            speeds[name].append(_this(args) if name == "this" else _reference(args, name))
    ratios = {
        name: statistics.median(ours / theirs for ours, theirs in zip(speeds["this"], speeds[name]))
        for name in REFERENCES
    }
    return {"batch": BATCH, "steps": args.steps, "examples_per_second": speeds, "times_as_fast": ratios}


def _this(args: argparse.Namespace) -> float:
    """Examples per second of pipeline.finetune in the last three quarters of the steps, from the run's metrics."""
    interval = max(1, args.steps // 4)
    with tempfile.TemporaryDirectory() as scratch:
        _run(
            args, "-m", "pipeline.finetune", "--task", "sst2", "--init", args.init, "--data", args.sst2,
            "--output", f"{scratch}/run", "--steps", 4 * interval, "--log-interval", interval,
            "--eval-interval", 4 * interval, "--max-length", _max_length(args), "--precision", "fp32",
        )  # fmt: skip
        lines = (Path(scratch) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [record for record in map(json.loads, lines) if record["split"] == "train"]
    return statistics.harmonic_mean([record["rows_per_second"] for record in records[1:]])


def _reference(args: argparse.Namespace, padding: str) -> float:
    """Examples per second of transformers.Trainer with one kind of padding, in a process of its own."""
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(
            train_reference, args.init, args.sst2, padding, _max_length(args), args.steps, args.threads
        ).result()


class Clock(transformers.TrainerCallback):
    """Records when each step has ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *arguments: Any, **more: Any) -> None:
        """Called by the trainer."""
        self.times.append(time.perf_counter())


def train_reference(init: Path, data: str, padding: str, max_length: int, steps: int, threads: int) -> float:
    """Fine-tunes with `transformers.Trainer`, as its users do. Returns examples per second of the last three quarters.

    Weights, tokens, batch, learning rate and precision (fp32) are those of `pipeline.finetune`.

    Args:
        padding: "longest" of the batch, or "max_length" as in the library's example script.
    """
    torch.set_num_threads(threads)
    transformers.utils.logging.set_verbosity_error()
    read = reading.read(find_task("sst2"), data)["train"][: steps * BATCH * 4]
    examples = [example for example in read if isinstance(example, TextExample)]  # all: SST-2 has no others
    tokenizer = transformers.AutoTokenizer.from_pretrained(init)
    padded = {"padding": "max_length"} if padding == "max_length" else {}
    encoded = tokenizer([example.first for example in examples], truncation=True, max_length=max_length, **padded)
    rows = [
        {"input_ids": ids, "token_type_ids": types, "attention_mask": mask, "labels": example.label}
        for ids, types, mask, example in zip(
            encoded["input_ids"], encoded["token_type_ids"], encoded["attention_mask"], examples
        )
    ]
    clock = Clock()
    with tempfile.TemporaryDirectory() as scratch:
        settings = transformers.TrainingArguments(
            output_dir=scratch,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            learning_rate=1e-5,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        )
        transformers.Trainer(
            model=transformers.AutoModelForSequenceClassification.from_pretrained(init, num_labels=2),
            args=settings,
            train_dataset=rows,
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            callbacks=[clock],
        ).train()
    first = steps // 4
    return BATCH * (steps - 1 - first) / (clock.times[-1] - clock.times[first])


def _max_length(args: argparse.Namespace) -> int:
    """The length of the library's example script, or fewer if the model has fewer positions."""
    return min(128, read_initial_weights(args.init).config.max_position_embeddings)


def _run(args: argparse.Namespace, *words: object) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
    found = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, check=False, env=environment
    )
    if found.returncode:
        raise UserError(f"{' '.join(map(str, words))} failed: {found.stderr[-2000:]}")
    return found.stdout


def markdown(result: dict[str, Any]) -> str:
    """The results as Markdown."""
    hardware, versions = result["hardware"], result["versions"]
    sst2 = result["sst2"]
    lines = [
        f"{hardware['name']}, {hardware.get('threads', 0)} threads; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f"; {result['date']}; {result['model']}",
        "",
    ]
    labels = {
        "this": "this project",
        "longest": "Trainer, padded to the batch's longest",
        "max_length": "Trainer, padded to the longest sequence allowed",
    }
    factors = {"this": ""} | {name: f"{factor:.2f}" for name, factor in sst2["times_as_fast"].items()}
    rows = [
        (labels[name], ", ".join(f"{speed:,.0f}" for speed in speeds), factors[name])
        for name, speeds in sst2["examples_per_second"].items()
    ]
    header = ("SST-2, batch 32, fp32", "examples/s, each round", "this is faster by")
    return "\n".join([*lines, markdown_table(header, rows, "llr")])


if __name__ == "__main__":
    sys.exit(main())
