"""The paper's claims in small: settings that are pre-trained with the same compute, and compared seed by seed.

A claim compares sides. A side is one way to pre-train the small model of a plan. Sides that several claims compare are
run once. The compute of a side is its number of floating-point operations, so a larger model reads fewer tokens.
paper.toml lists the claims and their sides. The commands that make them write below ROOT:

ROOT/claims.json               the text and the plan; another start with others is refused
ROOT/corpus                    the documents of the sample, if none were given; the vocabulary; shards by length
ROOT/runs/SIDE/seed-N          a run, and beside it its DeepSpeed JSON
ROOT/claims                    the page
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import PREFIX
from common.errors import UserError
from common.files import atomic
from model import AlbertConfig
from pipeline.data.masking import MaskingSettings
from pipeline.paper.experiments import Command, Stage
from pipeline.paper.printed_tables import PAPER
from pipeline.training.metrics_log import last_record

PRESET = "albert-tiny"
MASK_PROBABILITY = 0.3
LEARNING_RATE = 0.002
"""The peak, of AdamW, for all sides."""
CHANCE = 0.5
METRICS = {"mlm_below_unigram": "MLM", "sop_accuracy": "SOP", "nsp_accuracy": "NSP"}
"""The compared metrics, from 0 to 1, and their titles."""
SAMPLE = ("wikipedia", "books", "api")
SETTINGS = "claims.json"
DEEPSPEED = "deepspeed.json"


@dataclass(frozen=True)
class Side:
    """One way to pre-train.

    Attributes:
        title: for people.
        fields: of `AlbertConfig`, which replace those of the plan's model.
        objective: "sop" or "nsp".
        max_ngram: words of the longest masked n-gram.
        rows: of a batch.
        length: tokens of a row.
        compute: operations of a run, as a multiple of those of `BASE`.
    """

    title: str
    fields: Mapping[str, object] = field(default_factory=dict)
    objective: str = "sop"
    max_ngram: int = 3
    rows: int = 8
    length: int = 128
    compute: float = 1.0


@dataclass(frozen=True)
class Difference:
    """A difference that a claim is about: a metric of `first` minus that of `second`, or minus chance (None)."""

    metric: str
    first: str
    second: str | None = None


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        name: on the command line: of the paper's table, or "masks".
        caption: what is compared.
        paper: what the paper says.
        sides: keys of `SIDES`.
        differences: what is compared, in the order of the page.
    """

    name: str
    caption: str
    paper: str
    sides: Sequence[str]
    differences: Sequence[Difference]


SIDES = {key: Side(**fields) for key, fields in PAPER["sides"].items()}
BASE = SIDES["base"]
"""What most sides are compared with. Its run defines the compute."""
CLAIMS = {
    claim["name"]: Claim(**claim | {"differences": [Difference(*one) for one in claim["differences"]]})
    for claim in PAPER["claims"]
}


@dataclass(frozen=True)
class Plan:
    """The size of the claims' runs.

    Attributes:
        model: fields of `AlbertConfig` that replace those of albert-tiny.
        tokens: that `BASE` reads.
        vocabulary_size: pieces.
        evaluated_tokens: held-out tokens of the evaluation at the end, at most.
    """

    model: Mapping[str, object]
    tokens: int
    vocabulary_size: int
    evaluated_tokens: int

    def model_fields(self, side: Side) -> dict[str, object]:
        """The fields that replace those of albert-tiny."""
        return {**self.model, **side.fields}

    def row_flops(self, side: Side) -> int:
        """Operations of training on one row of a side."""
        from model.counts import model_flops  # it imports torch, which takes seconds

        fields: dict[str, Any] = self.model_fields(side)
        fields |= {"vocab_size": self.vocabulary_size, "max_position_embeddings": side.length}
        predictions = MaskingSettings(MASK_PROBABILITY).max_predictions(side.length)
        return model_flops(AlbertConfig.preset(PRESET, **fields), side.length, predictions)

    def steps(self, side: Side) -> int:
        """The steps of a side: as many as its compute allows."""
        flops = side.compute * self.tokens / BASE.length * self.row_flops(BASE)
        return max(1, round(flops / (side.rows * self.row_flops(side))))

    def eval_batches(self, side: Side) -> int:
        """Batches of the evaluation."""
        return max(1, self.evaluated_tokens // (side.length * side.rows))


SMALL = Plan(model={"num_hidden_layers": 4}, tokens=800_000, vocabulary_size=2000, evaluated_tokens=2**18)
"""For two cores: docs/study.md has the time that it takes."""


def find_claims(name: str) -> list[Claim]:
    """The claim called `name`, or all of them for "claims". Raises UserError for an unknown name."""
    if name == "claims":
        return list(CLAIMS.values())
    if name in CLAIMS:
        return [CLAIMS[name]]
    raise UserError(f"scale small has no table {name!r}; choose one of {', '.join(CLAIMS)}, claims, or --scale paper")


def sides_of(claims: Sequence[Claim]) -> list[str]:
    """The keys of all sides that the claims compare, each once."""
    return list(dict.fromkeys(key for claim in claims for key in claim.sides))


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


def run_directory(root: Path, key: str, seed: int) -> Path:
    """The --output of one run of a side."""
    return root / "runs" / key / f"seed-{seed}"


def stages(claims: Sequence[Claim], setting: Setting) -> list[Stage]:
    """The commands of the claims; each stage waits for the stage before it."""
    home, keys = setting.root / "corpus", sides_of(claims)
    prepare = (*setting.python, f"{PREFIX}data_prep")
    found: list[Stage] = []
    documents = setting.documents
    if not documents:
        sample, documents = home / "sample", tuple(home / "documents" / source for source in SAMPLE)
        found.append((Command("sample", (*prepare, "sample", "--out", str(sample)), documents[0] / "documents.json"),))
        found.append(tuple(_extract(prepare, sample / out.name, out) for out in documents))
    vocabulary, texts = home / "vocabulary.model", ("--documents", *map(str, documents))
    words = (*prepare, "vocab", *texts, "--out", str(vocabulary), "--size", str(setting.plan.vocabulary_size))
    found.append((Command("vocabulary", words, vocabulary),))
    sets = []
    for length in sorted({SIDES[key].length for key in keys}):
        for split in ("train", "held_out"):
            out = home / "shards" / f"{split}-{length}"
            words = (*prepare, "shards", *texts, "--vocab", str(vocabulary), "--out", str(out), "--split", split)
            sets.append(Command(f"shards {out.name}", (*words, "--max-seq-length", str(length)), out / "manifest.json"))
    # All sides once, then all again: an interrupted command has whole seeds.
    runs = tuple(_pretraining(key, seed, setting) for seed in range(setting.seeds) for key in keys)
    return [*found, tuple(sets), runs]


def _extract(prepare: tuple[str, ...], text: Path, out: Path) -> Command:
    """The command that makes documents of one source of the sample."""
    kind = ("jsonl", "--id-field", "id", "--title-field", "title") if out.name == "api" else (out.name,)
    words = (*prepare, "extract", "--source", *kind, "--input", str(text), "--out", str(out), "--held-out", "0.05")
    return Command(f"extract {out.name}", words, out / "documents.json")


def _pretraining(key: str, seed: int, setting: Setting) -> Command:
    """The command of one run of a side."""
    side, plan, out = SIDES[key], setting.plan, run_directory(setting.root, key, seed)
    steps, shards = plan.steps(side), setting.root / "corpus" / "shards"
    words = [*setting.python, f"{PREFIX}pipeline.pretrain", "--model", PRESET]
    words += ["--model-args", *(f"{name}={value}" for name, value in plan.model_fields(side).items())]
    words += ["--objective", side.objective, "--mask-probability", f"{MASK_PROBABILITY:g}"]
    words += ["--max-ngram", str(side.max_ngram), "--data", str(shards / f"train-{side.length}")]
    words += ["--eval-data", str(shards / f"held_out-{side.length}"), "--eval-batches", str(plan.eval_batches(side))]
    words += ["--deepspeed_config", str(out.parent / DEEPSPEED), "--output", str(out), "--seed", str(seed)]
    words += ["--steps", str(steps), "--warmup-steps", str(round(0.1 * steps))]
    words += ["--eval-interval", str(steps), "--save-interval", str(steps), "--log-interval", str(max(1, steps // 10))]
    return Command(f"pre-train {key} seed {seed}", tuple(words), out / "done")


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
    sides = {key: dataclasses.asdict(side) for key, side in SIDES.items()}
    for side in sides.values():
        del side["title"]  # a run does not depend on it
    record = {"documents": [str(path.resolve()) for path in setting.documents], **dataclasses.asdict(setting.plan)}
    path, text = setting.root / SETTINGS, json.dumps(record | {"sides": sides}, indent=1) + "\n"
    if path.exists() and path.read_bytes() != text.encode():
        raise UserError(f"{setting.root} has runs of other documents or of another plan; choose another --out")
    atomic.write_text(path, text)
    for key in sides_of(claims):
        rows = SIDES[key].rows
        path = setting.root / "runs" / key / DEEPSPEED
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(path, json.dumps(small_model_config(LEARNING_RATE, rows, min(rows, 64)), indent=1) + "\n")


def results(key: str, root: Path) -> dict[int, dict[str, Any]]:
    """Of each finished run of a side, by seed: its last held-out metrics, and the "tokens" that it read."""
    numbers = (path.parent.name.removeprefix("seed-") for path in (root / "runs" / key).glob("seed-*/done"))
    found = {}
    for seed in sorted(int(number) for number in numbers if number.isdecimal()):  # others are copies of a run
        directory = run_directory(root, key, seed)
        trained, evaluated = last_record(directory, "train"), last_record(directory, "eval")
        if trained is not None and evaluated is not None:
            found[seed] = {**evaluated, "tokens": trained["tokens"]}
    return found
