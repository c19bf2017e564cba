"""Measures fine-tuning on SST-2 beside `transformers.Trainer`, and the time of a SQuAD evaluation outside the model.

    python -m benchmarks.finetune --init EXPORT --sst2 GLUE --squad DIR [--out benchmarks/results/NAME]

SST-2: examples per second of training, without start-up and evaluation. The systems take turns, each in its own
process. SQuAD: the seconds of one evaluation of --questions: reading the file, making features, packing, the model,
finding spans, and writing answers. Writes NAME.json and NAME.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.shared import report
from common.command_line import Parser, entry_point
from common.errors import UserError
from pipeline.checkpoint.initial_weights import fill, read_initial_weights
from pipeline.finetuning.heads import has_head_of, make_model
from pipeline.finetuning.prediction import predict
from pipeline.tasks.features.span import SpanFeatures, SpanLimits
from pipeline.tasks.files import reading
from pipeline.tasks.predictions import save_answers
from pipeline.tasks.registry import find_task

REFERENCES = ("longest", "max_length")


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.finetune", description="Fine-tuning beside transformers.Trainer.")
    p.add_argument("--init", required=True, type=Path, metavar="DIR", help="an exported model")
    p.add_argument("--sst2", metavar="DIR", help="GLUE, or its SST-2")
    p.add_argument("--squad", metavar="DIR", help="a directory with a dev set of SQuAD 2.0")
    p.add_argument("--steps", type=int, default=60, metavar="N", help="steps of a turn (60)")
    p.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each system (3)")
    p.add_argument("--questions", type=int, default=5000, metavar="N", help="questions of SQuAD (5000)")
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of the evaluation (fp32)")
    p.add_argument("--threads", type=int, default=report.cores(), metavar="N", help="threads of the CPU (all)")
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args = parser().parse_all(argv)
    torch.set_num_threads(args.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = read_initial_weights(args.init).config
    result: dict[str, Any] = report.describe(device) | {
        "format": "finetune 1",
        "model": f"{config.num_hidden_layers} layers, hidden size {config.hidden_size}",
    }
    if args.sst2 is not None:
        result["sst2"] = throughput(args)
    if args.squad is not None:
        result["squad"] = evaluation(args, device)
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
    return {"batch": 32, "steps": args.steps, "examples_per_second": speeds, "times_as_fast": ratios}


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
    """Examples per second of transformers.Trainer with one kind of padding."""
    printed = _run(
        args, "-m", "benchmarks.shared.trainer_reference", "--init", args.init, "--data", args.sst2,
        "--steps", args.steps, "--padding", padding, "--max-length", _max_length(args), "--threads", args.threads,
    )  # fmt: skip
    return float(json.loads(printed.splitlines()[-1])["examples_per_second"])


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


class Timed(nn.Module):
    """A model that adds up the seconds of its forward passes, with the device's work."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.model, self.device, self.seconds = model, device, 0.0

    def forward(self, **inputs: Any) -> Any:
        """The model's output."""
        start = time.perf_counter()
        output = self.model(**inputs)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds += time.perf_counter() - start
        return output


class Alone:
    """A single rank without a process group, in place of `pipeline.distributed.control.ControlGroup`."""

    rank, world_size = 0, 1

    def gather(self, value: Any) -> list[Any]:
        """The only value."""
        return [value]


def evaluation(args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Seconds of an evaluation, from the file to the answers on disk, and the part of them outside the model."""
    task, initial = find_task("squad2"), read_initial_weights(args.init)
    model = make_model(task, initial.config)
    fill(model, initial, lambda name: has_head_of(initial, task))
    timed = Timed(model.to(device, torch.bfloat16 if args.precision == "bf16" else torch.float32), device)
    start = time.perf_counter()
    questions: Any = reading.read(task, args.squad)["dev"][: args.questions]
    max_length = min(task.hyperparameters.max_length, initial.config.max_position_embeddings)
    features = SpanFeatures(initial.vocabulary, questions, max_length, SpanLimits())
    prepared = time.perf_counter()
    control: Any = Alone()
    answers: Any = predict(timed, features, control, device)
    with tempfile.TemporaryDirectory() as scratch:
        save_answers(Path(scratch) / "dev.json", answers)
    end = time.perf_counter()
    return {
        "questions": len(questions),
        "windows": len(features.lengths),
        "tokens": int(features.lengths.sum()),
        "max_length": max_length,
        "precision": args.precision,
        "seconds": end - start,
        "features_seconds": prepared - start,
        "model_seconds": timed.seconds,
        "outside_share": 1.0 - timed.seconds / (end - start),
    }


def markdown(result: dict[str, Any]) -> str:
    """The results as Markdown."""
    hardware, versions = result["hardware"], result["versions"]
    lines = [
        f"{hardware['name']}, {hardware.get('threads', 0)} threads; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f"; {result['date']}; {result['model']}",
    ]
    if "sst2" in result:
        sst2 = result["sst2"]
        lines += ["", "| SST-2, batch 32, fp32 | examples/s, each round | this is faster by |", "|---|---|---:|"]
        for name, speeds in sst2["examples_per_second"].items():
            label = {"this": "this project", "longest": "Trainer, padded to the batch's longest"}.get(
                name, "Trainer, padded to the longest sequence allowed"
            )
            factor = f"{sst2['times_as_fast'][name]:.2f}" if name in sst2["times_as_fast"] else ""
            lines.append(f"| {label} | {', '.join(f'{speed:,.0f}' for speed in speeds)} | {factor} |")
    if "squad" in result:
        squad = result["squad"]
        lines += [
            "",
            f"SQuAD 2.0: {squad['questions']:,} questions in {squad['windows']:,} windows of up to "
            f"{squad['max_length']} tokens, {squad['precision']}: {squad['seconds']:.1f} s from the file to answers "
            f"on disk, {squad['model_seconds']:.1f} s in the model, {100 * squad['outside_share']:.1f} % outside "
            f"(features: {squad['features_seconds']:.1f} s).",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
