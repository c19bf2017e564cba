"""The commands that make the paper's claims in small, and the results of their runs.

ROOT/claims.json               the text and the plan; another start with others is refused
ROOT/corpus                    the documents of the sample, if none were given; the vocabulary; shards by length
ROOT/runs/SIDE/RATE/seed-N     a run, and beside it its DeepSpeed JSON
ROOT/claims                    the page
"""

import dataclasses
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import atomic
from pipeline.paper.claims import MASK_PROBABILITY, PRESET, RATE_SEED, SIDES, Claim, Plan, Side, best_rate, sides_of
from pipeline.paper.experiments import Command, Corpus, Stage
from pipeline.paper.runner import is_done
from pipeline.training.reporting.metrics_log import last_record

SAMPLE = ("wikipedia", "books", "api")
WARMUP = 0.1
"""Part of the steps in which the learning rate rises."""
MAX_MICRO_BATCH = 64
CORE_FLOPS, START_SECONDS = 4.6e10, 20.0
"""Operations a second of one core, and seconds of a run besides: batches of 8 rows on an AMD EPYC with other work."""
SETTINGS = "claims.json"


@dataclass(frozen=True)
class Setting:
    """Where claims are made.

    Attributes:
        root: directory of everything that is made.
        documents: made by `data_prep extract`; empty for the sample.
        plan: the size of the runs.
        seeds: runs of each side.
        python: the words before the module of a command.
    """

    root: Path
    documents: tuple[Path, ...]
    plan: Plan
    seeds: int
    python: tuple[str, ...]

    @property
    def corpus(self) -> Corpus:
        """The corpus below `root`."""
        return Corpus(self.root / "corpus", self.python)


@dataclass(frozen=True)
class Run:
    """One run of a side."""

    key: str
    rate: float
    seed: int

    @property
    def side(self) -> Side:
        """What it trains."""
        return SIDES[self.key]

    def directory(self, root: Path) -> Path:
        """Its --output."""
        return root / "runs" / self.key / f"{self.rate:g}" / f"seed-{self.seed}"

    def config_file(self, root: Path) -> Path:
        """Its DeepSpeed JSON."""
        return self.directory(root).parent / "deepspeed.json"

    def result(self, root: Path) -> dict[str, Any] | None:
        """Its held-out metrics at the end, with the "tokens" that it read. None: it has not ended."""
        directory = self.directory(root)
        if not (directory / "done").exists():
            return None
        trained, found = last_record(directory, "train"), last_record(directory, "eval")
        return None if trained is None or found is None else {**found, "tokens": trained["tokens"]}


def candidates(key: str) -> list[Run]:
    """The runs that choose the learning rate of a side; none if there is one rate."""
    rates = SIDES[key].rates
    return [Run(key, rate, RATE_SEED) for rate in rates] if len(rates) > 1 else []


def chosen_rate(key: str, root: Path) -> float | None:
    """The learning rate of a side. None: its candidates have not all ended."""
    losses = {}
    for run in candidates(key):
        result = run.result(root)
        if result is None:
            return None
        losses[run.rate] = math.inf if result["mlm_loss"] is None else float(result["mlm_loss"])
    return best_rate(losses) if losses else SIDES[key].rates[0]


def stages(claims: Sequence[Claim], setting: Setting) -> tuple[list[Stage], bool]:
    """The commands that can be named now, and whether they are all.

    The runs of a side with several candidates can be named when these have ended: call this again after running them.
    """
    keys, root = sides_of(claims), setting.root
    rates = {key: chosen_rate(key, root) for key in keys}
    runs = [
        Run(key, rate, seed)  # all sides once, then all again: an interrupted command has whole seeds
        for seed in range(setting.seeds)
        for key, rate in rates.items()
        if rate is not None
    ]
    choice = [run for key in keys for run in candidates(key)]
    complete = None not in rates.values()
    found = _corpus_stages(setting, {SIDES[key].length for key in keys})
    found.append(tuple(_command(run, setting) for run in (*runs, *choice)))
    return found, complete


def _corpus_stages(setting: Setting, lengths: set[int]) -> list[Stage]:
    corpus, plan = setting.corpus, setting.plan
    made = [] if setting.documents else corpus.sample_stages(SAMPLE)
    documents = setting.documents or [corpus.documents(source) for source in SAMPLE]
    sets = [
        corpus.shards(f"{split}-{length}", split, documents, length)
        for length in sorted(lengths)
        for split in ("train", "held_out")
    ]
    return [*made, (corpus.vocabulary(documents, plan.vocabulary_size),), tuple(sets)]


def _command(run: Run, setting: Setting) -> Command:
    side, plan, out = run.side, setting.plan, run.directory(setting.root)
    steps = plan.steps(side)
    shards = {split: setting.corpus.shards_at(f"{split}-{side.length}") for split in ("train", "held_out")}
    fields = plan.model_fields(side)
    words = [*setting.python, "pipeline.pretrain", "--model", PRESET]
    words += ["--model-args", *(f"{name}={value}" for name, value in fields.items())]
    words += ["--objective", side.objective, "--mask-probability", f"{MASK_PROBABILITY:g}"]
    words += ["--max-ngram", str(side.max_ngram), "--data", str(shards["train"])]
    words += ["--eval-data", str(shards["held_out"]), "--eval-batches", str(plan.eval_batches(side))]
    words += ["--deepspeed_config", str(run.config_file(setting.root)), "--output", str(out), "--seed", str(run.seed)]
    words += ["--steps", str(steps), "--warmup-steps", str(round(WARMUP * steps))]
    words += ["--eval-interval", str(steps), "--save-interval", str(steps), "--log-interval", str(max(1, steps // 10))]
    return Command(f"pre-train {run.key} {run.rate:g} seed {run.seed}", tuple(words), out / "done")


def dry_run(claims: Sequence[Claim], setting: Setting) -> str:
    """The commands that can be named now, for a shell, each below a comment with its name, and the time of all runs."""
    planned, complete = stages(claims, setting)
    lines = []
    for command in (command for stage in planned for command in stage):
        done = ", done" if is_done(command) else ""
        lines += ["", f"# {command.name}{done}", shlex.join(command.argv)]
    left = [
        setting.plan.steps(run.side) * run.side.rows * setting.plan.row_flops(run.side) / CORE_FLOPS + START_SECONDS
        for key in sides_of(claims)
        for run in (*candidates(key), *(Run(key, chosen_rate(key, setting.root) or 0, n) for n in range(setting.seeds)))
        if run.result(setting.root) is None
    ]
    if not complete:
        lines += ["", "# more runs follow when these have chosen the learning rates"]
    return "\n".join([*lines, "", f"# {len(left)} runs left, about {sum(left) / 60:,.0f} minutes of one core"]).lstrip()


def small_model_config(optimizer: str, rate: float, rows: int, micro_batch: int) -> dict[str, Any]:
    """The DeepSpeed JSON of a small model in bf16.

    Args:
        optimizer: "AdamW" or "Lamb".
        rate: peak learning rate.
        rows: of a batch.
        micro_batch: rows of a micro-batch on each rank.
    """
    return {
        "train_batch_size": rows,
        "train_micro_batch_size_per_gpu": micro_batch,
        "optimizer": {
            "type": optimizer,
            "params": {"lr": rate, "betas": [0.9, 0.98], "eps": 1e-6, "weight_decay": 0.01},
        },
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1, "reduce_bucket_size": 2_000_000, "allgather_bucket_size": 2_000_000},
        "zero_allow_untested_optimizer": True,
    }


def prepare(claims: Sequence[Claim], setting: Setting) -> None:
    """Writes the DeepSpeed JSONs, and what the claims are made with.

    Raises UserError if `root` was made from other documents or with another plan.
    """
    setting.root.mkdir(parents=True, exist_ok=True)
    sides = {key: _settings_of(side) for key, side in SIDES.items()}
    plan = dataclasses.asdict(setting.plan) | {"sides": sides}
    record = {"documents": [str(path.resolve()) for path in setting.documents], **plan}
    path, text = setting.root / SETTINGS, json.dumps(record, indent=1) + "\n"
    if path.exists() and path.read_bytes() != text.encode():
        raise UserError(f"{setting.root} has runs of other documents or of another plan; choose another --out")
    atomic.write_text(path, text)
    for key in sides_of(claims):
        side = SIDES[key]
        for rate in side.rates:
            config = small_model_config(side.optimizer, rate, side.rows, min(side.rows, MAX_MICRO_BATCH))
            path = Run(key, rate, RATE_SEED).config_file(setting.root)
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_text(path, json.dumps(config, indent=1) + "\n")


def _settings_of(side: Side) -> dict[str, Any]:
    """What a side's runs depend on."""
    return {name: value for name, value in dataclasses.asdict(side).items() if name != "title"}


def results(key: str, root: Path) -> tuple[float | None, Mapping[int, dict[str, Any]]]:
    """The learning rate of a side, and the results of its finished runs by seed. Without a rate there are none."""
    rate = chosen_rate(key, root)
    if rate is None:
        return None, {}
    home = Run(key, rate, 0).directory(root).parent
    numbers = (path.name.removeprefix("seed-") for path in home.glob("seed-*"))
    seeds = sorted(int(number) for number in numbers if number.isdecimal())  # others are copies of a run
    found = {seed: Run(key, rate, seed).result(root) for seed in seeds if seed != RATE_SEED}
    return rate, {seed: result for seed, result in found.items() if result is not None}
