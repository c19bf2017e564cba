"""Measures what a small model learns from few tokens, with one setting changed at a time (docs/study.md).

    python -m benchmarks.study.recipe_trials \\
        --documents demo/documents/wikipedia demo/documents/books demo/documents/api --work trials
        [--trials NAME ...] [--seeds 3] [--tokens 600000] [--out benchmarks/results/recipe_trials]

Each trial is a run of `pipeline.pretrain` in one process with one thread. Its settings are `RECIPE` with the change
that `TRIALS` names. The vocabulary and the shards of each length of row are made in --work. Finished trials are not run
again, and an interrupted trial is resumed; so the command can be stopped and started at any time.

All trials have the same number of floating-point operations, so a larger model reads fewer tokens. Time would be no
fair measure on a shared machine: other work changes the processor time of the same run, too. Writes NAME.json and
NAME.md.
"""

import dataclasses
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.shared import report
from common.command_line import Parser, entry_point
from common.errors import UserError
from common.files import atomic
from model import AlbertConfig
from model.inspection.flops import model_flops
from pipeline.analysis.intervals import seeds_interval
from pipeline.data.masking import MaskingSettings
from pipeline.paper.claim_runs import small_model_config
from pipeline.training.flags import positive
from pipeline.training.reporting.metrics_log import read_records

VOCABULARY_SIZE = 2000
EVALUATIONS, EVALUATED_ROWS = 3, 1024
WARMUP = 0.05
"""Part of the steps in which the learning rate rises."""


@dataclass(frozen=True)
class Trial:
    """The settings of a run.

    Attributes:
        varied: what differs from `RECIPE`, for people.
        model: fields of `AlbertConfig` that replace those of albert-tiny.
        rate: peak learning rate.
        optimizer: "AdamW" (with bias correction) or "Lamb".
        length: tokens of a row.
        rows: rows of a batch.
        mask_probability: part of the tokens that is masked.
        flags: further flags of pipeline.pretrain.
    """

    varied: str
    model: Mapping[str, object]
    rate: float
    optimizer: str = "AdamW"
    length: int = 128
    rows: int = 8
    mask_probability: float = 0.15
    flags: tuple[str, ...] = ()

    @property
    def flops(self) -> float:
        """Floating-point operations of training, for each token."""
        sizes: dict[str, Any] = dict(self.model) | {"vocab_size": VOCABULARY_SIZE}
        config = AlbertConfig.preset("albert-tiny", **sizes)
        predictions = MaskingSettings(self.mask_probability).max_predictions(self.length)
        return model_flops(config, self.length, predictions) / self.length


START = {"initial_attention": "neighbours", "embedding_initializer_range": 0.1}
SIZES = {
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "num_attention_heads": 8,
    "intermediate_size": 512,
    "embedding_size": 128,
    "parameter_sharing": "all",
    "initializer_range": 0.02,
}
RECIPE = Trial("nothing: the recipe", SIZES | START, 0.002)


def changed(varied: str, model: Mapping[str, object] | None = None, **settings: Any) -> Trial:
    """`RECIPE` with other fields of the model and other settings."""
    return dataclasses.replace(RECIPE, varied=varied, model={**RECIPE.model, **(model or {})}, **settings)


_RANDOM = {"initial_attention": "random"}
TRIALS: dict[str, Trial] = {
    "recipe": RECIPE,
    "paper-start": changed(
        "paper's start: random attention, word embeddings 0.02", _RANDOM | {"embedding_initializer_range": 0.02}
    ),
    "random-attention": changed("attention starts random", _RANDOM),
    "words-0.02": changed("word embeddings start at 0.02", {"embedding_initializer_range": 0.02}),
    "words-0.05": changed("word embeddings start at 0.05", {"embedding_initializer_range": 0.05}),
    "matrices-0.06": changed("matrices start at 0.06", {"initializer_range": 0.06}),
    "rate-0.001": changed("AdamW 1e-3", rate=0.001),
    "rate-0.004": changed("AdamW 4e-3", rate=0.004),
    "lamb": changed("LAMB 1e-2", rate=0.01, optimizer="Lamb"),
    "batch-32": changed("batch of 32 rows", rows=32),
    "lamb-batch-32": changed("LAMB 1e-2, batch of 32 rows", rate=0.01, optimizer="Lamb", rows=32),
    "layers-1": changed("1 layer", {"num_hidden_layers": 1}),
    "layers-4": changed("4 layers", {"num_hidden_layers": 4}),
    "unshared": changed("layers share nothing", {"parameter_sharing": "none"}),
    "width-256": changed("width 256", {"hidden_size": 256, "intermediate_size": 1024}),
    "embedding-64": changed("embeddings of 64", {"embedding_size": 64}),
    "masks-0.3": changed("30 % of the tokens masked", mask_probability=0.3),
    "single-masks": changed("single words masked", flags=("--max-ngram", "1")),
    "dropout": changed("dropout 0.1", {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}),
    "rows-32": changed("rows of 32 tokens", length=32, rows=32),
    "rows-64": changed("rows of 64 tokens", length=64, rows=16),
    "no-sentence-loss": changed("no sentence loss", flags=("--objective", "mlm")),
}


@dataclass(frozen=True)
class Result:
    """What one run of a trial learned.

    Attributes:
        name, seed: of the trial.
        tokens: read in training.
        cpu_seconds: of the whole process, its start and its evaluations included.
        curve: the held-out metrics of each evaluation, with its "tokens".
    """

    name: str
    seed: int
    tokens: int
    cpu_seconds: float
    curve: list[dict[str, Any]] = field(default_factory=list)


def tokens_of(trial: Trial, tokens: int) -> int:
    """How many tokens a trial reads with the operations with which the recipe reads `tokens`, in thousands."""
    return max(1, round(tokens * RECIPE.flops / trial.flops / 1000)) * 1000


def prepare(documents: Sequence[Path], work: Path, length: int) -> Path:
    """Makes the vocabulary and the shards of rows of `length` tokens, unless they exist. Returns their directory."""
    named = [str(directory) for directory in documents]
    vocabulary = work / "vocabulary.model"
    if not vocabulary.exists():
        _data_prep("vocab", "--documents", *named, "--out", str(vocabulary), "--size", str(VOCABULARY_SIZE))
    shards = work / "shards" / str(length)
    for split in ("train", "held_out"):
        if (shards / split / "manifest.json").exists():  # written last
            continue
        words = ["--documents", *named, "--split", split, "--vocab", str(vocabulary)]
        _data_prep("shards", *words, "--max-seq-length", str(length), "--out", str(shards / split))
    return shards


def _data_prep(*words: str) -> None:
    _run([sys.executable, "-m", "data_prep", *words])


def _run(words: Sequence[str]) -> None:
    """Runs a command with one thread and shows its output. UserError: it failed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    if status := subprocess.run(words, env=environment, check=False).returncode:
        raise UserError(f"{' '.join(words[2:5])} ended with status {status}; its message is above")


def _beside(output: Path, suffix: str) -> Path:
    """A file beside a run; the name of the run may have a dot."""
    return output.with_name(output.name + suffix)


def command(trial: Trial, shards: Path, output: Path, seed: int, tokens: int) -> tuple[list[str], dict[str, Any]]:
    """The command of one run, and the DeepSpeed JSON that it reads from `output`.json."""
    interval = max(1, round(tokens / (trial.rows * trial.length * EVALUATIONS)))
    steps = EVALUATIONS * interval
    config = small_model_config(trial.optimizer, trial.rate, trial.rows, trial.rows)
    words = [sys.executable, "-m", "pipeline.pretrain", "--model", "albert-tiny"]
    words += ["--model-args", *(f"{name}={value}" for name, value in trial.model.items())]
    words += ["--data", str(shards / "train"), "--eval-data", str(shards / "held_out")]
    words += ["--deepspeed_config", str(_beside(output, ".json")), "--output", str(output)]
    words += ["--steps", str(steps), "--warmup-steps", str(round(WARMUP * steps)), "--seed", str(seed)]
    words += ["--eval-batches", str(-(-EVALUATED_ROWS // trial.rows))]
    words += ["--eval-interval", str(interval), "--save-interval", str(steps), "--log-interval", str(interval)]
    words += ["--mask-probability", f"{trial.mask_probability:g}"]
    return [*words, *trial.flags], config


def run_trial(name: str, trial: Trial, shards: Path, work: Path, seed: int, tokens: int) -> Result:
    """Runs one trial, or reads the result of an earlier run of it."""
    output = work / f"{tokens}" / f"{name}-seed-{seed}"
    done = _beside(output, ".result.json")
    if done.exists():
        return Result(**json.loads(done.read_text(encoding="utf-8")))
    output.parent.mkdir(parents=True, exist_ok=True)
    words, config = command(trial, shards, output, seed, tokens)
    atomic.write_text(_beside(output, ".json"), json.dumps(config, indent=1) + "\n")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    reached = {record["step"]: record["tokens"] for record in read_records(output, "train")}
    curve = [{**record, "tokens": reached[record["step"]]} for record in read_records(output, "eval")]
    for record in curve:
        record.pop("guesses", None)
    result = Result(name, seed, curve[-1]["tokens"], seconds, curve)
    atomic.write_text(done, json.dumps(dataclasses.asdict(result), indent=1) + "\n")
    return result


def _shown(values: Sequence[float]) -> str:
    mean, half = seeds_interval(values)
    return f"{100 * mean:.1f}" if math.isnan(half) else f"{100 * mean:.1f} ± {100 * half:.1f}"


def markdown(results: Sequence[Result], tokens: int) -> str:
    """The table: one row for each trial, with the mean over its seeds and the 95 % interval of that mean."""
    legend = (
        "The MLM columns say how far, in %, the loss is below the unigram entropy of the same held-out tokens: after "
        "a third, two thirds and all of the training. The SOP column has the accuracy, in %, on the held-out pairs at "
        "the end. Every trial reads as many tokens (in millions) as it can with the floating-point operations with "
        f"which the recipe reads {tokens / 1e6:g} million."
    )
    lines = [
        *textwrap.wrap(legend, 120),
        "",
        "| changed | seeds | tokens | MLM at 1/3 | at 2/3 | at the end | SOP | CPU seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    by_name: dict[str, list[Result]] = {}
    for result in results:
        by_name.setdefault(result.name, []).append(result)
    for name, runs in by_name.items():
        below = [_shown([run.curve[point]["mlm_below_unigram"] for run in runs]) for point in range(EVALUATIONS)]
        accuracies = [run.curve[-1].get("sop_accuracy") for run in runs]
        sop = _shown([value for value in accuracies if value is not None]) if None not in accuracies else ""
        seconds = statistics.fmean(run.cpu_seconds for run in runs)
        read = f"{statistics.fmean(run.tokens for run in runs) / 1e6:.2f}"
        lines.append(f"| {TRIALS[name].varied} | {len(runs)} | {read} | {' | '.join(below)} | {sop} | {seconds:.0f} |")
    return "\n".join(lines)


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.study.recipe_trials", description="Trials of settings for small models.")
    p.add_argument("--documents", required=True, nargs="+", type=Path, metavar="DIR", help="made by data_prep extract")
    p.add_argument("--work", required=True, type=Path, metavar="DIR", help="directory of shards and runs")
    p.add_argument("--trials", nargs="+", choices=TRIALS, default=list(TRIALS), metavar="NAME", help="which (all)")
    p.add_argument("--seeds", type=positive, default=3, metavar="N", help="runs of each trial (3)")
    p.add_argument("--tokens", type=positive, default=600_000, metavar="N", help="tokens of the recipe's runs (600000)")
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args = parser().parse_all(argv)
    results = []
    for seed in range(args.seeds):  # all trials once, then all again: an interrupted command has whole columns
        for name in args.trials:
            trial = TRIALS[name]
            shards, tokens = prepare(args.documents, args.work, trial.length), tokens_of(trial, args.tokens)
            results.append(run_trial(name, trial, shards, args.work, seed, tokens))
    found = report.describe(torch.device("cpu")) | {"format": "recipe_trials 1", "tokens": args.tokens}
    results.sort(key=lambda result: list(TRIALS).index(result.name))
    found["results"] = [dataclasses.asdict(result) for result in results]
    report.publish(args.out, found, markdown(results, args.tokens))


if __name__ == "__main__":
    sys.exit(main())
