"""The commands that make the paper's claims in small, and the results of their runs.

ROOT/claims.json               the text and the plan; another start with others is refused
ROOT/corpus                    the documents of the sample, if none were given; the vocabulary; shards by length
ROOT/runs/SIDE/seed-N          a run, and beside it its DeepSpeed JSON
ROOT/claims                    the page
"""

import dataclasses
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import atomic
from pipeline.paper.claims import LEARNING_RATE, MASK_PROBABILITY, PRESET, SIDES, Claim, Plan, Side, sides_of
from pipeline.paper.experiments import Command, Corpus, Stage
from pipeline.paper.runner import is_done
from pipeline.training.metrics_log import last_record

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
    seed: int

    @property
    def side(self) -> Side:
        """What it trains."""
        return SIDES[self.key]

    def directory(self, root: Path) -> Path:
        """Its --output."""
        return root / "runs" / self.key / f"seed-{self.seed}"

    def result(self, root: Path) -> dict[str, Any] | None:
        """Its held-out metrics at the end, with the "tokens" that it read. None: it has not ended."""
        directory = self.directory(root)
        if not (directory / "done").exists():
            return None
        trained, evaluated = last_record(directory, "train"), last_record(directory, "eval")
        return None if trained is None or evaluated is None else {**evaluated, "tokens": trained["tokens"]}


def config_file(key: str, root: Path) -> Path:
    """The DeepSpeed JSON of a side."""
    return root / "runs" / key / "deepspeed.json"


def planned_runs(claims: Sequence[Claim], setting: Setting) -> list[Run]:
    """All sides once, then all again: an interrupted command has whole seeds."""
    return [Run(key, seed) for seed in range(setting.seeds) for key in sides_of(claims)]


def stages(claims: Sequence[Claim], setting: Setting) -> list[Stage]:
    """The commands of the claims; each stage waits for the stage before it."""
    made = _corpus_stages(setting, {SIDES[key].length for key in sides_of(claims)})
    return [*made, tuple(_command(run, setting) for run in planned_runs(claims, setting))]


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
    words += ["--deepspeed_config", str(config_file(run.key, setting.root)), "--output", str(out)]
    words += ["--seed", str(run.seed)]
    words += ["--steps", str(steps), "--warmup-steps", str(round(WARMUP * steps))]
    words += ["--eval-interval", str(steps), "--save-interval", str(steps), "--log-interval", str(max(1, steps // 10))]
    return Command(f"pre-train {run.key} seed {run.seed}", tuple(words), out / "done")


def dry_run(claims: Sequence[Claim], setting: Setting) -> str:
    """The commands for a shell, each below a comment with its name, and the time of all runs."""
    lines = []
    for command in (command for stage in stages(claims, setting) for command in stage):
        lines += [f"# {command.name}{', done' if is_done(command) else ''}", shlex.join(command.argv), ""]
    plan = setting.plan
    left = [
        plan.steps(run.side) * run.side.rows * plan.row_flops(run.side) / CORE_FLOPS + START_SECONDS
        for run in planned_runs(claims, setting)
        if run.result(setting.root) is None
    ]
    return "\n".join([*lines, f"# {len(left)} runs left, about {sum(left) / 60:,.0f} minutes of one core"])


def small_model_config(rate: float, rows: int, micro_batch: int) -> dict[str, Any]:
    """The DeepSpeed JSON of a small model in bf16, trained by AdamW.

    Args:
        rate: peak learning rate.
        rows: of a batch.
        micro_batch: rows of a micro-batch on each rank.
    """
    return {
        "train_batch_size": rows,
        "train_micro_batch_size_per_gpu": micro_batch,
        "optimizer": {
            "type": "AdamW",
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
        rows = SIDES[key].rows
        config = small_model_config(LEARNING_RATE, rows, min(rows, MAX_MICRO_BATCH))
        path = config_file(key, setting.root)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(path, json.dumps(config, indent=1) + "\n")


def _settings_of(side: Side) -> dict[str, Any]:
    """What a side's runs depend on."""
    return {name: value for name, value in dataclasses.asdict(side).items() if name != "title"}


def results(key: str, root: Path) -> dict[int, dict[str, Any]]:
    """The results of the finished runs of a side, by seed."""
    numbers = (path.name.removeprefix("seed-") for path in (root / "runs" / key).glob("seed-*"))
    seeds = sorted(int(number) for number in numbers if number.isdecimal())  # others are copies of a run
    return {seed: result for seed in seeds if (result := Run(key, seed).result(root)) is not None}
