"""The settings of a pre-training run: command line, DeepSpeed JSON and data manifest made into one checked object."""

import argparse
import dataclasses
import difflib
import hashlib
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from data_prep.command_line import Parser
from data_prep.errors import UserError
from data_prep.shards import Manifest, open_shards
from model.config import ACTIVATION_CHECKPOINTING, ATTENTION_KERNELS, PRESETS, AlbertConfig, Implementation
from pipeline import engine_config, order
from pipeline.batches import Objective
from pipeline.engine_config import EngineConfig, Hardware

PAPER_BATCH, PAPER_STEPS = 4096, 125_000
GPU_KERNELS = ("cudnn", "flash", "flex")


@dataclass(frozen=True)
class Settings:
    """Everything that a pre-training run is told.

    Attributes:
        model: architecture; its vocabulary and positions are those of the data.
        implementation: how it runs; never changes what it computes.
        data: directories of the training shards, one for each corpus.
        shares: samples of each corpus in a block of `sum(shares)`; see pipeline/order.py.
        eval_data: directories of held-out shards, evaluated apart.
        output: the run's directory.
        engine: the DeepSpeed JSON, fitted to the ranks there are.
        data_digests: sha256 of each corpus's manifest.
        objective: the sentence loss: sop, nsp, or mlm for none.
        seed: of initial weights, order, masks, sentence order and dropout.
        steps: optimizer steps of the whole run.
        warmup_steps: None for the default of the schedule.
        log_interval: steps from one logged line to the next.
        save_interval: steps from one checkpoint to the next.
        eval_interval: steps from one evaluation to the next.
        eval_batches: micro-batches a rank in an evaluation; None for all held-out rows.
        max_hours: wall-clock limit over all starts of the run; None for none.
        host_timeout: seconds after which a host that does not answer is lost.
    """

    model: AlbertConfig
    implementation: Implementation
    data: tuple[Path, ...]
    shares: tuple[int, ...]
    eval_data: tuple[Path, ...]
    output: Path
    engine: EngineConfig
    data_digests: tuple[str, ...]
    objective: Objective
    seed: int
    steps: int
    warmup_steps: int | None
    log_interval: int
    save_interval: int
    eval_interval: int
    eval_batches: int | None
    max_hours: float | None
    host_timeout: float

    def identity(self) -> dict[str, Any]:
        """What must stay as it is when a run is resumed: all that decides which numbers it computes.

        Ranks, micro-batch, ZeRO stage, precision, intervals and the place of the data may change.
        """
        json = self.engine.json
        return {
            "model": self.model.to_dict(),
            "objective": self.objective,
            "seed": self.seed,
            "steps": self.steps,
            "warmup_steps": self.warmup_steps,
            "max_hours": self.max_hours,
            "train_batch_size": self.engine.train_batch_size,
            "optimizer": json["optimizer"],
            "scheduler": json.get("scheduler"),
            "gradient_clipping": json.get("gradient_clipping"),
            "data": self.data_digests[0] if len(self.data) == 1 else list(zip(self.data_digests, self.shares)),
        }

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values, for the run's `settings.json`."""
        return {
            **self.identity(),
            "data_directories": [str(directory) for directory in self.data],
            "eval_data_directories": [str(directory) for directory in self.eval_data],
            "implementation": dataclasses.asdict(self.implementation),
            "precision": self.engine.precision,
            "world_size": self.engine.world_size,
            "deepspeed": self.engine.json,
            "log_interval": self.log_interval,
            "save_interval": self.save_interval,
            "eval_interval": self.eval_interval,
            "eval_batches": self.eval_batches,
        }


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_READERS: dict[Any, Callable[[str], Any]] = {int: int, float: float, bool | None: _truth}


def parser() -> Parser:
    """The command line of `pipeline.pretrain`."""
    p = Parser(
        prog="deepspeed --module pipeline.pretrain",
        description="Pre-trains ALBERT. Started again with the same --output, it resumes.",
    )
    p.add_argument("--model", required=True, metavar="NAME", help=f"a preset: {', '.join(PRESETS)}")
    p.add_argument(
        "--model-args",
        nargs="+",
        action="extend",
        default=[],
        metavar="FIELD=VALUE",
        help="fields of AlbertConfig to replace, e.g. parameter_sharing=attention embedding_size=64",
    )
    p.add_argument(
        "--data",
        required=True,
        nargs="+",
        metavar="DIR[:WEIGHT]",
        help="shards to train on (data_prep shards); of several corpora, each with its share of the samples",
    )
    p.add_argument(
        "--eval-data",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="shards of held-out documents; several are evaluated apart, and the first decides the best checkpoint",
    )
    p.add_argument("--output", required=True, type=Path, metavar="RUN", help="directory of the run")
    p.add_argument("--deepspeed_config", required=True, type=Path, metavar="JSON", help="e.g. ds_configs/base.json")
    p.add_argument("--steps", type=positive, metavar="N", help="default: the paper's 125,000 at a batch of 4096")
    p.add_argument("--warmup-steps", type=natural, metavar="N", help="default: 2.5 %% of the steps")
    p.add_argument("--objective", choices=("sop", "nsp", "mlm"), help="default: sop (ALBERT), nsp (BERT presets)")
    p.add_argument("--seed", type=natural, default=0, metavar="N")
    p.add_argument("--log-interval", type=positive, default=10, metavar="N", help="steps (10)")
    p.add_argument("--save-interval", type=positive, default=5000, metavar="N", help="steps (5000)")
    p.add_argument("--eval-interval", type=positive, default=1000, metavar="N", help="steps (1000)")
    p.add_argument("--eval-batches", type=positive, metavar="N", help="micro-batches a rank (default: all rows)")
    p.add_argument(
        "--precision",
        choices=("auto", "config", "fp16", "bf16", "fp32"),
        default="auto",
        help="auto: the JSON's where the hardware has it, else the nearest; config: the JSON's or an error",
    )
    p.add_argument("--max-hours", type=hours, metavar="H", help="end schedule and run within H hours (Table 6)")
    p.add_argument("--activation-checkpointing", choices=ACTIVATION_CHECKPOINTING, default="none")
    p.add_argument("--attention", choices=ATTENTION_KERNELS, default="auto", help="auto: the fastest for the device")
    p.add_argument("--compile", action="store_true", help="torch.compile the layer; pays on GPUs")
    p.add_argument(
        "--host-timeout",
        type=host_timeout,
        default=30.0,
        metavar="SECONDS",
        help="a host that does not answer for so long is lost, and the job ends (30)",
    )
    p.add_argument("--local_rank", type=int, default=0, help=argparse.SUPPRESS)  # the launcher adds it
    return p


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the command line. Raises UserError for an unknown flag, naming the nearest one that exists."""
    return parser().parse_all(argv)


def resolve(args: argparse.Namespace, world_size: int, hardware: Hardware) -> Settings:
    """Makes `Settings` of a parsed command line. Reads files and writes none; raises UserError for what cannot work."""
    config = engine_config.load(args.deepspeed_config)
    directories, weights = parse_corpora(args.data)
    sets = [open_shards(directory) for directory in directories]
    shares = order.whole_shares(weights or [Fraction(len(shards)) for shards in sets])
    fields = parse_fields(args.model_args)
    model = _model(args.model, fields, args.objective, sets[0].manifest)
    engine = engine_config.fit(config, world_size, hardware, args.precision)
    rows = sum(len(shards) for shards in sets)
    named = " ".join(str(directory) for directory in directories)
    if rows < world_size:
        raise UserError(f"{named} holds {rows} rows, fewer than the {world_size} ranks; use fewer ranks or more text")
    for directory, shards, share in zip(directories, sets, shares):
        wanted = -(-engine.train_batch_size * share // sum(shares))
        if len(shards) < wanted:
            part = "one batch" if len(sets) == 1 else "its share of one batch,"
            raise UserError(
                f"{directory} holds {len(shards)} rows, fewer than {part} of {wanted}; "
                f"lower train_batch_size{' or its weight' * (len(sets) > 1)} or add text"
            )
    for directory, shards in zip(directories[1:], sets[1:]):
        _agree(sets[0].manifest, directories[0], shards.manifest, directory)
        if shards.manifest.max_seq_length != sets[0].manifest.max_seq_length:
            raise UserError(
                f"{directory} has rows of {shards.manifest.max_seq_length} tokens, {directories[0]} of "
                f"{sets[0].manifest.max_seq_length}; make its shards again with the same --max-seq-length"
            )
    for directory in args.eval_data:
        _agree(sets[0].manifest, directories[0], open_shards(directory).manifest, directory)
    check_writable(args.output)
    return Settings(
        model=model,
        implementation=_implementation(args, model, engine, hardware),
        data=directories,
        shares=shares,
        eval_data=tuple(args.eval_data),
        output=args.output,
        engine=engine,
        data_digests=tuple(
            hashlib.sha256((directory / "manifest.json").read_bytes()).hexdigest() for directory in directories
        ),
        objective=model.sentence_head or "mlm",  # type: ignore[arg-type]
        seed=args.seed,
        steps=args.steps or max(1, round(PAPER_STEPS * PAPER_BATCH / engine.train_batch_size)),
        warmup_steps=args.warmup_steps,
        log_interval=args.log_interval,
        save_interval=args.save_interval,
        eval_interval=args.eval_interval,
        eval_batches=args.eval_batches,
        max_hours=args.max_hours,
        host_timeout=args.host_timeout,
    )


def parse_corpora(arguments: Sequence[str]) -> tuple[tuple[Path, ...], list[Fraction]]:
    """`["wikipedia:3", "books:1"]` as directories and weights; no weights where none is given.

    A directory whose name ends in a colon and a number is taken as it stands where it exists.
    """
    directories: list[Path] = []
    weights: list[Fraction] = []
    for argument in arguments:
        name, colon, number = argument.rpartition(":")
        if not colon or Path(argument).is_dir():
            directories.append(Path(argument))
            continue
        try:
            weight = Fraction(number)
        except (ValueError, ZeroDivisionError):
            raise UserError(f"--data {argument}: {number!r} is no weight; give DIR:WEIGHT, as in {name}:0.5") from None
        if weight <= 0:
            raise UserError(f"--data {argument}: a weight is above 0; leave the directory out if it is not wanted")
        directories.append(Path(name))
        weights.append(weight)
    if weights and len(weights) < len(directories):
        raise UserError("--data: some directories have a weight and others none; give each one, or none of them")
    if len({directory.resolve() for directory in directories}) < len(directories):
        raise UserError("--data names a directory twice; name it once, with the weight of both")
    return tuple(directories), weights


def parse_fields(pairs: Sequence[str]) -> dict[str, Any]:
    """`["embedding_size=64", ...]` as typed fields of AlbertConfig."""
    types = {field.name: field.type for field in dataclasses.fields(AlbertConfig)}
    fields: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"--model-args {pair!r}: FIELD=VALUE is wanted, e.g. embedding_size=64")
        if name not in types:
            near = difflib.get_close_matches(name, list(types), n=1)
            raise UserError(
                f"--model-args: AlbertConfig has no field {name!r}"
                + (f" (did you mean {near[0]!r}?)" if near else f"; it has {', '.join(types)}")
            )
        if name in fields:
            raise UserError(f"--model-args gives {name} twice; keep one")
        if name == "sentence_head":
            raise UserError("--model-args sentence_head: the objective decides it; use --objective {sop,nsp,mlm}")
        try:
            fields[name] = _READERS.get(types[name], str)(text)
        except ValueError:
            wanted = "true or false" if types[name] == bool | None else "a number"
            raise UserError(f"--model-args {pair!r}: {wanted} is wanted") from None
    return fields


def _model(name: str, fields: dict[str, Any], objective: str | None, manifest: Manifest) -> AlbertConfig:
    for field, of_data in (
        ("vocab_size", manifest.vocabulary_size),
        ("max_position_embeddings", manifest.max_seq_length),
    ):
        given = fields.setdefault(field, of_data)
        if field == "vocab_size" and given != of_data:
            raise UserError(
                f"the model's vocab_size {given} is not the {of_data} of the data's vocabulary; leave it out"
            )
        if given < of_data:
            raise UserError(f"{field} {given} is less than the data's {of_data}; leave it out or make new shards")
    if fields.get("type_vocab_size", 2) < 2:
        raise UserError("type_vocab_size is less than 2, and a pair has two segments; leave it out")
    if objective is not None:
        fields["sentence_head"] = None if objective == "mlm" else objective
    try:
        return AlbertConfig.preset(name, **fields)
    except ValueError as error:
        raise UserError(str(error)) from None


def _implementation(
    args: argparse.Namespace, model: AlbertConfig, engine: EngineConfig, hardware: Hardware
) -> Implementation:
    if args.attention in GPU_KERNELS and hardware.name == "CPU":
        raise UserError(f"--attention {args.attention} needs a GPU; leave it out")
    if args.attention in ("cudnn", "flash") and engine.precision == "fp32":
        raise UserError(f"--attention {args.attention} computes in 16 bits only; train in them, or leave it out")
    try:
        implementation = Implementation(args.activation_checkpointing, compile=args.compile, attention=args.attention)
        implementation.check(model)
    except ValueError as error:
        raise UserError(str(error)) from None
    return implementation


def _agree(first: Manifest, first_path: Path, second: Manifest, second_path: Path) -> None:
    if first.vocabulary_sha256 != second.vocabulary_sha256:
        raise UserError(
            f"{second_path} was made with another vocabulary ({second.vocabulary_sha256[:12]}) than {first_path} "
            f"({first.vocabulary_sha256[:12]}); make its shards again with --vocab {first_path / 'spiece.model'}"
        )
    if second.max_seq_length > first.max_seq_length:
        raise UserError(
            f"{second_path} has rows of {second.max_seq_length} tokens, {first_path} of {first.max_seq_length}; "
            f"make its shards again with --max-seq-length {first.max_seq_length}"
        )


def check_writable(output: Path) -> None:
    """Raises UserError unless `output` is a directory, or can become one, that this process may write to."""
    if output == Path():
        raise UserError("--output is empty or the current directory; name a directory for the run")
    place = output
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise UserError(f"--output {output}: {place} is not a directory; choose another place")
    try:
        # Trying tells what permission bits do not: read-only mounts, quotas, and that root may write anywhere.
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise UserError(
            f"--output {output}: cannot write to {place} ({error.strerror}); choose another place"
        ) from None


def positive(text: str) -> int:
    """Reads a whole number of at least 1 from the command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def natural(text: str) -> int:
    """Reads a whole number of at least 0 from the command line."""
    value = int(text)
    if not 0 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 2**63 - 1")
    return value


def hours(text: str) -> float:
    """Reads a number of hours above 0 from the command line."""
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text} is not a number of hours above 0")
    return value


def host_timeout(text: str) -> float:
    """Reads --host-timeout: seconds, 3 to 3600."""
    value = float(text)
    if not 3 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 3 and 3600 seconds")
    return value


# argparse names a converter in its message: "invalid positive whole number value: 'x'".
positive.__name__ = "positive whole number"
natural.__name__ = "whole number"
hours.__name__ = "number of hours"
host_timeout.__name__ = "number of seconds"
