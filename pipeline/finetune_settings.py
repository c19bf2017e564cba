"""The settings of a fine-tuning run: Table 14 of the paper, the command line and, if there is one, a DeepSpeed JSON."""

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.command_line import Parser
from data_prep.errors import UserError
from model.config import AlbertConfig, Implementation
from pipeline import engine_config
from pipeline.engine_config import EngineConfig, Hardware
from pipeline.schedule import Schedule, from_config
from pipeline.settings import check_writable, host_timeout, hours, natural, positive
from pipeline.tasks.span_features import SpanLimits
from pipeline.tasks.task import TASKS, Task, find_task

SHORTEST_LENGTH = 16
EVALUATIONS = 20
"""How often a run is evaluated where nothing else is said."""


@dataclass(frozen=True)
class FinetuneSettings:
    """Everything that one fine-tuning run, of one seed, is told.

    Attributes:
        task: what is learnt.
        model: architecture, with the dropout of fine-tuning.
        implementation: how it runs; never changes what it computes.
        init: where the weights and the vocabulary come from.
        random_weights: only the architecture and the vocabulary come from there.
        init_digest: of the weights there.
        data: directory, or name of a data set.
        data_digest: of the examples there.
        output: the run's directory.
        engine: the DeepSpeed JSON, fitted to the ranks there are.
        seed: of the head's initial weights, order and dropout.
        steps, warmup_steps: optimizer steps.
        max_length: tokens of the longest sequence.
        limits: of passages and answers (SQuAD).
        log_interval: steps from one logged line to the next.
        eval_interval: steps from one evaluation, and checkpoint, to the next.
        patience: steps without a better evaluation after which training ends; None: it never ends for that.
        max_hours: wall-clock limit over all starts of the run; None for none.
    """

    task: Task
    model: AlbertConfig
    implementation: Implementation
    init: Path
    random_weights: bool
    init_digest: str
    data: str
    data_digest: str
    output: Path
    engine: EngineConfig
    seed: int
    steps: int
    warmup_steps: int
    max_length: int
    limits: SpanLimits
    log_interval: int
    eval_interval: int
    patience: int | None
    max_hours: float | None

    @property
    def save_interval(self) -> int:
        """Every evaluation has its checkpoint: the best of them is the run's result."""
        return self.eval_interval

    def schedule(self) -> Schedule:
        """The learning rate of each step. Raises UserError for a warm-up longer than the run."""
        return from_config(self.engine.json.get("scheduler"), self.engine.learning_rate, self.warmup_steps, self.steps)

    def hyperparameters(self) -> dict[str, Any]:
        """What Table 14 lists, and what else decides the outcome."""
        json = self.engine.json
        found: dict[str, Any] = {
            "learning_rate": self.engine.learning_rate,
            "train_batch_size": self.engine.train_batch_size,
            "dropout": self.model.hidden_dropout_prob,
            "classifier_dropout": self.model.classifier_dropout_prob,
            "steps": self.steps,
            "warmup_steps": self.warmup_steps,
            "max_length": self.max_length,
            "optimizer": json["optimizer"],
            "scheduler": json.get("scheduler"),
            "gradient_clipping": json.get("gradient_clipping"),
        }
        return found | (dataclasses.asdict(self.limits) if self.task.name.startswith("squad") else {})

    def identity(self) -> dict[str, Any]:
        """What must stay as it is when a run is resumed: all that decides which numbers it computes."""
        return {
            "task": self.task.name,
            "seed": self.seed,
            "model": self.model.to_dict(),
            "hyperparameters": self.hyperparameters(),
            "random_weights": self.random_weights,
            "init_weights": self.init_digest,
            "data": self.data_digest,
            "eval_interval": self.eval_interval,
            "patience": self.patience,
            "max_hours": self.max_hours,
        }

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values, for the run's `settings.json`."""
        return {
            **self.identity(),
            "init": str(self.init),
            "data_directory": self.data,
            "implementation": dataclasses.asdict(self.implementation),
            "precision": self.engine.precision,
            "world_size": self.engine.world_size,
            "deepspeed": self.engine.json,
            "log_interval": self.log_interval,
        }


def parser() -> Parser:
    """The command line of `pipeline.finetune`."""
    p = Parser(
        prog="deepspeed --module pipeline.finetune",
        description="Fine-tunes on a task of the paper. Started again with the same --output, it resumes.",
    )
    p.add_argument("--task", required=True, metavar="TASK", help=", ".join(TASKS))
    p.add_argument("--init", required=True, type=Path, metavar="DIR", help="an export, or the --output of a run")
    p.add_argument("--data", required=True, metavar="DIR", help="the task's official files, or a data set's name")
    p.add_argument("--output", required=True, type=Path, metavar="RUN", help="directory of the run")
    p.add_argument("--random-weights", action="store_true", help="take only architecture and vocabulary from --init")
    p.add_argument("--deepspeed_config", type=Path, metavar="JSON", help="default: made of Table 14 and these flags")
    for flag, kind, what in (
        ("--learning-rate", _below_one, "peak; decays linearly to 0"),
        ("--batch-size", positive, "examples (windows of SQuAD, questions of RACE) in a step"),
        ("--micro-batch-size", positive, "of those, at once on one rank (default: all of its share)"),
        ("--steps", positive, "optimizer steps"),
        ("--warmup-steps", natural, "steps (default: Table 14's share of the steps)"),
        ("--max-length", positive, "tokens of the longest sequence"),
        ("--dropout", _below_one, "inside the encoder"),
        ("--classifier-dropout", _below_one, "before the classifier (0.1)"),
        ("--weight-decay", _below_one, "(0.01)"),
        ("--doc-stride", positive, "SQuAD: tokens from one window to the next (128)"),
        ("--max-query-length", positive, "SQuAD: tokens of the question (64)"),
        ("--max-answer-length", positive, "SQuAD: tokens of the answer (30)"),
        ("--log-interval", positive, "steps (a hundredth of them, at most 100)"),
        ("--eval-interval", positive, f"steps (a {EVALUATIONS}th of them)"),
        ("--patience", positive, "end after N evaluations without a better one"),
    ):
        p.add_argument(flag, type=kind, metavar="N", help=what)
    p.add_argument("--seed", type=natural, default=0, metavar="N")
    p.add_argument("--seeds", type=positive, metavar="N", help="N runs, from --seed on: their median and spread")
    p.add_argument(
        "--precision",
        choices=("auto", "config", "fp16", "bf16", "fp32"),
        default="auto",
        help="auto: bf16 on GPUs, fp32 on processors, or the JSON's where the hardware has it",
    )
    p.add_argument("--max-hours", type=hours, metavar="H", help="end schedule and run within H hours")
    p.add_argument(
        "--host-timeout",
        type=host_timeout,
        default=30.0,
        metavar="SECONDS",
        help="a host that does not answer for so long is lost, and the job ends (30)",
    )
    p.add_argument("--activation-checkpointing", choices=("none", "layer", "ffn"), default="none")
    p.add_argument("--local_rank", type=int, default=0, help=argparse.SUPPRESS)  # the launcher adds it
    return p


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the command line. Raises UserError for a mistake that shows without reading a file."""
    args = parser().parse_all(argv)
    find_task(args.task)
    check_writable(args.output)
    return args


def seeds_of(args: argparse.Namespace) -> list[int]:
    """The seeds to run."""
    return [args.seed + number for number in range(args.seeds or 1)]


def resolve(
    args: argparse.Namespace,
    world_size: int,
    hardware: Hardware,
    config: AlbertConfig,
    init_digest: str,
    data_digest: str,
    seed: int,
) -> FinetuneSettings:
    """Makes the settings of one seed's run. Raises UserError for what cannot work.

    Args:
        config: of the model that is fine-tuned.
        init_digest, data_digest: of its weights and of the examples.
    """
    task = find_task(args.task)
    json = _deepspeed_json(args, task, hardware)
    engine = engine_config.fit(json, world_size, hardware, args.precision)
    steps = args.steps or task.steps
    warmup_steps = round(steps * task.warmup_steps / task.steps) if args.warmup_steps is None else args.warmup_steps
    eval_interval = args.eval_interval or max(1, steps // EVALUATIONS)
    dropout = task.dropout if args.dropout is None else args.dropout
    model = dataclasses.replace(
        config,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        classifier_dropout_prob=0.1 if args.classifier_dropout is None else args.classifier_dropout,
    )
    given = {name: getattr(args, name) for name in ("doc_stride", "max_query_length", "max_answer_length")}
    settings = FinetuneSettings(
        task=task,
        model=model,
        implementation=Implementation(activation_checkpointing=args.activation_checkpointing),
        init=args.init,
        random_weights=args.random_weights,
        init_digest=init_digest,
        data=args.data,
        data_digest=data_digest,
        output=args.output if args.seeds is None else args.output / f"seed-{seed}",
        engine=engine,
        seed=seed,
        steps=steps,
        warmup_steps=warmup_steps,
        max_length=_max_length(args.max_length, task, config),
        limits=SpanLimits(**{name: value for name, value in given.items() if value is not None}),
        log_interval=args.log_interval or min(100, max(1, steps // 100)),
        eval_interval=eval_interval,
        patience=None if args.patience is None else args.patience * eval_interval,
        max_hours=args.max_hours,
    )
    settings.schedule()  # refuses what does not fit
    return settings


def _deepspeed_json(args: argparse.Namespace, task: Task, hardware: Hardware) -> dict[str, Any]:
    """The user's JSON or the default one, with what the flags replace in it."""
    if args.deepspeed_config is not None:
        json = engine_config.load(args.deepspeed_config)
    else:
        json = default_json(task, on_gpu=hardware.name != "CPU")
    if args.batch_size is not None or args.micro_batch_size is not None:
        json.pop("gradient_accumulation_steps", None)
        json.pop("train_micro_batch_size_per_gpu", None)
    if args.batch_size is not None:
        json["train_batch_size"] = args.batch_size
    if args.micro_batch_size is not None:
        json["train_micro_batch_size_per_gpu"] = args.micro_batch_size
    params = json["optimizer"].setdefault("params", {})
    if args.learning_rate is not None:
        params["lr"] = args.learning_rate
    if args.weight_decay is not None:
        params["weight_decay"] = args.weight_decay
    return json


def default_json(task: Task, on_gpu: bool) -> dict[str, Any]:
    """Table 14 as a DeepSpeed JSON, with the optimizer of the paper's code: AdamW without bias correction."""
    adamw = {"lr": task.learning_rate, "betas": [0.9, 0.999], "eps": 1e-6, "weight_decay": 0.01}
    json: dict[str, Any] = {
        "train_batch_size": task.batch_size,
        "optimizer": {"type": "AdamW", "params": {**adamw, "bias_correction": False}},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 0},
    }
    if on_gpu:
        json |= {"bf16": {"enabled": True}, "zero_optimization": {"stage": 1, "reduce_bucket_size": 12_000_000}}
    return json


def _max_length(given: int | None, task: Task, config: AlbertConfig) -> int:
    positions = config.max_position_embeddings
    if given is not None and given > positions:
        raise UserError(f"--max-length {given} is more than the {positions} positions of the model; lower it")
    length = min(task.max_length, positions) if given is None else given
    if length < SHORTEST_LENGTH:
        raise UserError(f"--max-length {length} leaves no room for a text; give at least {SHORTEST_LENGTH}")
    return length


def _below_one(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 0 and below 1")
    return value


_below_one.__name__ = "number"  # argparse names a converter in its message
