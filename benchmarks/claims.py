"""Tests the paper's claims with small models of the same compute, seed by seed (docs/study.md).

    python -m benchmarks.claims --out claims --documents DIR... [--seeds 3]

DIR was made by `python -m data_prep extract`. claims.toml has the claims, and the sides that they compare: a side is
one way to pre-train. The compute of a side is its number of floating-point operations, so a larger model reads fewer
tokens. The same command goes on where it was stopped. At the end it writes OUT/claims.md and OUT/claims.json.
"""

import json
import math
import sys
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.shared import report
from benchmarks.shared.commands import Command, Stage, run
from benchmarks.study.plan import small_model_config
from common.command_line import Parser, entry_point, positive
from common.files import atomic
from common.text import markdown_table
from model import AlbertConfig
from model.counts import model_flops
from pipeline.data.masking import MaskingSettings
from pipeline.training.metrics_file import last_record

PRESET, LENGTH, MASK_PROBABILITY, LEARNING_RATE, CHANCE = "albert-tiny", 128, 0.3, 0.002, 0.5
METRICS = {"mlm_below_unigram": "MLM", "sop_accuracy": "SOP", "nsp_accuracy": "NSP"}
"""The compared metrics, from 0 to 1, and their titles."""
READING = (
    "MLM: % below the unigram entropy of the same held-out tokens. SOP and NSP: % of the held-out pairs. Each value is "
    "the mean over the seeds with its 95 % interval (Student's t). A difference is computed seed by seed: both sides "
    "read the same rows in the same order as far as their batches allow, and are evaluated on the same rows. The sides "
    "of a claim train with the same number of floating-point operations."
)

Results = Mapping[int, Mapping[str, Any]]
"""By seed: the last held-out metrics of a side's runs, and the "tokens" that they read."""


@dataclass(frozen=True)
class Side:
    """One way to pre-train: its `compute` is a multiple of the operations of the side "base"."""

    title: str
    fields: Mapping[str, object] = field(default_factory=dict)
    objective: str = "sop"
    max_ngram: int = 3
    rows: int = 8
    compute: float = 1.0


CONTENT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SIDES = {key: Side(**fields) for key, fields in CONTENT["sides"].items()}


@dataclass(frozen=True)
class Plan:
    """The size of the runs: fields of the model, tokens that "base" reads, pieces, held-out tokens at most."""

    model: Mapping[str, object]
    tokens: int
    vocabulary_size: int
    evaluated_tokens: int

    def row_flops(self, side: Side) -> int:
        """Operations of training on one row of a side."""
        fields: dict[str, Any] = {**self.model, **side.fields}
        fields |= {"vocab_size": self.vocabulary_size, "max_position_embeddings": LENGTH}
        predictions = MaskingSettings(MASK_PROBABILITY).max_predictions(LENGTH)
        return model_flops(AlbertConfig.preset(PRESET, **fields), LENGTH, predictions)

    def steps(self, side: Side) -> int:
        """The steps of a side: as many as its compute allows."""
        flops = side.compute * self.tokens / LENGTH * self.row_flops(SIDES["base"])
        return max(1, round(flops / (side.rows * self.row_flops(side))))


SMALL = Plan(model={"num_hidden_layers": 4}, tokens=800_000, vocabulary_size=2000, evaluated_tokens=2**18)
"""For two cores."""


def stages(keys: Sequence[str], plan: Plan, documents: Sequence[Path], seeds: int, out: Path) -> list[Stage]:
    """The commands of these sides; each stage waits for the stage before it."""
    python = (sys.executable, "-m")
    vocabulary, texts = out / "vocabulary.model", ("--documents", *map(str, documents))
    words = (*python, "data_prep", "vocab", *texts, "--out", str(vocabulary), "--size", str(plan.vocabulary_size))
    shards = []
    for split in ("train", "held_out"):
        made = (*python, "data_prep", "shards", *texts, "--vocab", str(vocabulary), "--split", split)
        made += ("--max-seq-length", str(LENGTH), "--out", str(out / split))
        shards.append(Command(f"shards {split}", made, out / split / "manifest.json"))
    # All sides once, then all again: an interrupted command has whole seeds.
    runs = [pretraining(key, plan, seed, out) for seed in range(seeds) for key in keys]
    return [(Command("vocabulary", words, vocabulary),), tuple(shards), tuple(runs)]


def pretraining(key: str, plan: Plan, seed: int, out: Path) -> Command:
    """The command of one run of a side; its DeepSpeed JSON lies beside it."""
    side, place = SIDES[key], out / "runs" / key / f"seed-{seed}"
    steps = plan.steps(side)
    words = [sys.executable, "-m", "pipeline.pretrain", "--model", PRESET]
    words += ["--model-args", *(f"{name}={value}" for name, value in {**plan.model, **side.fields}.items())]
    words += ["--objective", side.objective, "--mask-probability", f"{MASK_PROBABILITY:g}"]
    words += ["--max-ngram", str(side.max_ngram), "--data", str(out / "train"), "--eval-data", str(out / "held_out")]
    words += ["--eval-batches", str(max(1, plan.evaluated_tokens // (LENGTH * side.rows)))]
    words += ["--deepspeed_config", str(place.parent / "deepspeed.json"), "--output", str(place), "--seed", str(seed)]
    words += ["--steps", str(steps), "--warmup-steps", str(round(0.1 * steps)), "--log-interval", str(-(-steps // 10))]
    words += ["--eval-interval", str(steps), "--save-interval", str(steps)]
    return Command(f"pre-train {key} seed {seed}", tuple(words), place / "done")


def results(runs: Path, seeds: int) -> Results:
    """What the finished runs of a side have measured."""
    measured = {}
    for seed in range(seeds):
        place = runs / f"seed-{seed}"
        trained, evaluated = last_record(place, "train"), last_record(place, "eval")
        if (place / "done").exists() and trained is not None and evaluated is not None:
            measured[seed] = {name: evaluated[name] for name in METRICS if name in evaluated}
            measured[seed]["tokens"] = trained["tokens"]
    return measured


def with_interval(values: Sequence[float], form: str = ".1f") -> str:
    """The mean with half of its 95 % interval; one seed has no interval."""
    if not values:
        return "not run"
    mean, half = report.seeds_interval(values)
    return format(mean, form) + ("" if math.isnan(half) else f" ± {half:.1f}")


def gains(metric: str, first: Results, second: Results | None) -> list[float]:
    """First minus second, or minus chance, in percentage points, of each seed that both sides have."""
    seeds = [seed for seed in first if metric in first[seed] and (second is None or seed in second)]
    return [100 * (first[seed][metric] - (CHANCE if second is None else second[seed][metric])) for seed in seeds]


def verdict(points: Sequence[float]) -> str:
    """What the interval of a difference allows to say."""
    if len(points) < 2:
        return "one seed" if points else ""
    mean, half = report.seeds_interval(points)
    return "no difference shown" if abs(mean) <= half else "higher" if mean > 0 else "lower"


def section(claim: Mapping[str, Any], measured: Mapping[str, Results]) -> str:
    """The tables of one claim."""
    sides, differences = [], []
    for key in claim["sides"]:
        runs = measured[key].values()
        tokens = next((f"{one['tokens'] / 1e6:.2f}" for one in runs), "")
        values = [with_interval([100 * one[metric] for one in runs if metric in one]) for metric in METRICS]
        sides.append([SIDES[key].title, len(runs), tokens, *values])
    for metric, first, *second in claim["differences"]:
        points = gains(metric, measured[first], measured[second[0]] if second else None)
        name = f"{SIDES[first].title} - {SIDES[second[0]].title if second else 'chance'}"
        differences.append([name, METRICS[metric], len(points), with_interval(points, "+.1f"), verdict(points)])
    return "\n\n".join([
        f"## {claim['caption']}",
        textwrap.fill(f"The paper: {claim['paper']}.", 120),
        markdown_table(["side", "seeds", "million tokens", *METRICS.values()], sides, "lrrrrr"),
        markdown_table(["difference", "metric", "seeds", "points", "verdict"], differences, "llrrl"),
    ])  # fmt: skip


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.claims", description="The paper's claims, tested with small models.")
    p.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory of everything that is made")
    p.add_argument("--documents", required=True, nargs="+", type=Path, metavar="DIR", help="made by data_prep extract")
    p.add_argument("--seeds", type=positive, default=3, metavar="N", help="runs of each side (3)")
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args, plan = parser().parse_all(argv), SMALL
    for key, side in SIDES.items():
        (args.out / "runs" / key).mkdir(parents=True, exist_ok=True)
        config = small_model_config(LEARNING_RATE, side.rows, side.rows)
        atomic.write_text(args.out / "runs" / key / "deepspeed.json", json.dumps(config, indent=1) + "\n")
    run(stages(list(SIDES), plan, args.documents, args.seeds, args.out), args.out)
    measured = {key: results(args.out / "runs" / key, args.seeds) for key in SIDES}
    fields = ", ".join(f"{name} {value}" for name, value in plan.model.items())
    base = f"Base: {PRESET} with {fields}; {plan.tokens / 1e6:g} million tokens in rows of {LENGTH}; "
    base += f"vocabulary {plan.vocabulary_size:,}; text: {', '.join(path.name for path in args.documents)}."
    sections = ["# The paper's claims in small", *(textwrap.fill(text, 120) for text in (READING, base))]
    sections += [section(claim, measured) for claim in CONTENT["claims"]]
    report.publish(args.out / "claims", {"format": "claims 2", "sides": measured}, "\n\n".join(sections))


if __name__ == "__main__":
    sys.exit(main())
