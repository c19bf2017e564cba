"""The settings of a fine-tuning run: the task's defaults, the command line and, if given, a DeepSpeed JSON.

The defaults of the paper's tasks are those of Table 14.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.command_line import Parser
from common.errors import UserError
from model.config import AlbertConfig, ExecutionOptions
from pipeline.engine import config as engine_config
from pipeline.engine.machine.hardware import Hardware
from pipeline.finetuning import own_flags
from pipeline.finetuning.earlier_start import InitialModel
from pipeline.tasks.features.span import SpanLimits
from pipeline.tasks.own import record_of
from pipeline.tasks.registry import OWN_TASKS, TASKS
from pipeline.tasks.task import Task, steps_of_epochs
from pipeline.training import recorded_command
from pipeline.training.flags import Defaults, above_zero, add_run_arguments, below_one, check_writable, positive
from pipeline.training.settings import RunSettings

MIN_LENGTH = 16
MAX_SEEDS = 1000
EVALUATIONS, STEPS_BETWEEN = 20, 50
"""Defaults: the most evaluations in a run, and the fewest steps from one to the next."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(RunSettings):
    """The settings of one fine-tuning run, of one seed. `model` has the dropout of fine-tuning.

    A checkpoint is saved at every evaluation, because the best evaluated step is the result of the run.

    Attributes:
        task: what the model learns.
        init: source of the weights and the vocabulary.
        random_weights: take only the architecture and the vocabulary from `init`.
        init_digest: of the weights.
        pretraining: what the settings.json of the pre-training run said when this run began; None if there was none.
        data: directory, or name of a data set.
        data_on_hub: whether `data` is the name of a data set on the hub.
        data_digest: of the examples that training sees: those of train and the dev sets.
        max_length: tokens of the longest sequence.
        limits: of passages, questions and answers (SQuAD).
        command: the words of the command line, see `recorded_command`.
    """

    task: Task
    init: Path
    random_weights: bool
    init_digest: str
    pretraining: dict[str, Any] | None
    data: str
    data_on_hub: bool
    data_digest: str
    max_length: int
    limits: SpanLimits
    command: tuple[str, ...] = ()
    kept_checkpoints: int = 1

    def hyperparameters(self) -> dict[str, Any]:
        """The hyperparameters of Table 14, and the others that decide the result."""
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
        return found | (dataclasses.asdict(self.limits) if self.task.is_extractive else {})

    def identity(self) -> dict[str, Any]:
        """The settings that decide which numbers a run computes. They must not change when the run is resumed."""
        return {
            "task": self.task.name,
            **record_of(self.task),
            "seed": self.seed,
            "deterministic": self.deterministic,
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
        """All settings as plain values, for `settings.json`."""
        return {
            **self.identity(),
            "init": str(self.init),
            "pretraining": self.pretraining,
            "data_directory": self.data,
            recorded_command.KEY: self.command,
            "data_on_hub": self.data_on_hub,
            **self.execution_dict(),
        }


def parser() -> Parser:
    """The command line of `pipeline.finetune`."""
    p = Parser(
        prog="deepspeed --module pipeline.finetune",
        description="Fine-tunes on a task of the paper, or on your own files. The same command again, with the same "
        "--output, resumes the run.",
    )
    p.add_argument(
        "--task", required=True, metavar="TASK", help=f"one of {', '.join(TASKS)}; on own files {', '.join(OWN_TASKS)}"
    )
    p.add_argument("--init", required=True, type=Path, metavar="DIR", help="an export, or the --output of a run")
    p.add_argument(
        "--data", metavar="DIR", help="the task's official files, a directory with train.csv and so on, or a data set"
    )
    own_flags.add_arguments(p)
    p.add_argument("--random-weights", action="store_true", help="take only architecture and vocabulary from --init")
    p.add_argument(
        "--seeds",
        type=positive,
        metavar="N",
        help="make N runs with seeds from --seed on, and report median and spread",
    )
    for flag, kind, what in (
        ("--learning-rate", below_one, "peak of the learning rate, which then decays to 0 (default: Table 14)"),
        ("--batch-size", positive, "examples (windows of SQuAD, questions of RACE) in a step (default: Table 14)"),
        ("--epochs", above_zero, "passes over the training examples, instead of --steps (own files: 3)"),
        ("--micro-batch-size", positive, "examples of a micro-batch on one rank (default: a rank's part of the batch)"),
        ("--max-length", positive, "tokens of the longest sequence (default: Table 14)"),
        ("--dropout", below_one, "dropout inside the encoder (default: Table 14)"),
        ("--classifier-dropout", below_one, "dropout before the classifier (default: 0.1)"),
        ("--weight-decay", below_one, "weight decay of the optimizer (default: 0.01)"),
        ("--doc-stride", positive, "SQuAD: tokens from one window to the next (default: 128)"),
        ("--max-query-length", positive, "SQuAD: tokens of the longest question (default: 64)"),
        ("--max-answer-length", positive, "SQuAD: tokens of the longest answer (default: 30)"),
        ("--patience", positive, "stop after N evaluations without a better one (default: never)"),
    ):
        p.add_argument(flag, type=kind, metavar="N", help=what)
    add_run_arguments(
        p,
        Defaults(
            deepspeed_config="made from Table 14 and the flags, with bf16 on GPUs and fp32 on CPUs",
            steps="Table 14; own files: 3 epochs",
            warmup_steps="the same fraction of the steps as in Table 14; own files: a tenth",
            log_interval="a hundredth of the steps, at most 100",
            eval_interval=f"1/{EVALUATIONS} of the steps, at least {STEPS_BETWEEN} or all",
        ),
    )
    return p


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the command line. Raises UserError for a mistake that shows without reading a file."""
    args = parser().parse_all(recorded_command.with_recorded(argv))
    if args.task in OWN_TASKS:
        own_flags.read(args)
    else:
        if args.task not in TASKS:
            raise UserError(f"there is no task {args.task!r}; choose one of {', '.join((*TASKS, *OWN_TASKS))}")
        own_flags.check_unused(args)
        if args.data is None:
            raise UserError(f"--task {args.task} needs --data, a directory with its files or a data set's name")
    if args.steps is not None and args.epochs is not None:
        raise UserError("--steps and --epochs both say how long to train; drop one")
    if args.seeds is not None and args.seeds > MAX_SEEDS:
        raise UserError(f"--seeds {args.seeds} is more than {MAX_SEEDS}; lower it")
    check_writable(args.output)
    return args


def resolve(
    args: argparse.Namespace,
    task: Task,
    examples: int,
    world_size: int,
    hardware: Hardware,
    initial: InitialModel,
    data_digest: str,
) -> list[FinetuneSettings]:
    """Makes the settings of the run of each seed. Raises UserError for a mistake.

    Args:
        task: what the model learns.
        examples: of its training split.
        initial: the model that is fine-tuned.
        data_digest: see `FinetuneSettings`.
    """
    engine = engine_config.fit(_deepspeed_json(args, task, hardware), world_size, hardware, args.precision)
    defaults = task.hyperparameters
    steps = args.steps or defaults.steps_of(examples, engine.train_batch_size)
    if args.epochs is not None:
        steps = steps_of_epochs(args.epochs, examples, engine.train_batch_size)
    warmup_steps = args.warmup_steps
    if warmup_steps is None:
        warmup_steps = round(steps * defaults.warmup_fraction)
    eval_interval = args.eval_interval or max(steps // EVALUATIONS, min(steps, STEPS_BETWEEN))
    dropout = defaults.dropout if args.dropout is None else args.dropout
    model = dataclasses.replace(
        initial.config,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        classifier_dropout_prob=0.1 if args.classifier_dropout is None else args.classifier_dropout,
    )
    given = {name: getattr(args, name) for name in ("doc_stride", "max_query_length", "max_answer_length")}
    one = FinetuneSettings(
        task=task,
        model=model,
        execution=ExecutionOptions(activation_checkpointing=args.activation_checkpointing),
        init=args.init,
        random_weights=args.random_weights,
        init_digest=initial.digest,
        pretraining=None if args.random_weights else initial.pretraining,
        data=own_flags.read(args).source if args.task in OWN_TASKS else args.data,
        data_on_hub=args.data is not None and not Path(args.data).exists(),
        data_digest=data_digest,
        command=recorded_command.words_of(args, parser()),
        output=args.output,
        engine=engine,
        seed=args.seed,
        deterministic=args.deterministic,
        steps=steps,
        warmup_steps=warmup_steps,
        max_length=_max_length(args.max_length, task, initial.config),
        limits=SpanLimits(**{name: value for name, value in given.items() if value is not None}),
        log_interval=args.log_interval or min(100, max(1, steps // 100)),
        eval_interval=eval_interval,
        save_interval=eval_interval,
        patience=None if args.patience is None else args.patience * eval_interval,
        max_hours=args.max_hours,
        host_timeout=args.host_timeout,
        track=tuple(dict.fromkeys(args.track)),
        all_curves=args.all_curves,
        hang_timeout=args.hang_timeout,
        check_interval=args.check_interval,
        save_mode=args.save_mode,
    )
    if args.seeds is None:
        return [one]
    return [
        dataclasses.replace(one, seed=seed, output=output) for seed, output in enumerate(directories(args), args.seed)
    ]


def directories(args: argparse.Namespace) -> list[Path]:
    """The directory of the run of each seed."""
    if args.seeds is None:
        return [args.output]
    return [args.output / f"seed-{seed}" for seed in range(args.seed, args.seed + args.seeds)]


def _deepspeed_json(args: argparse.Namespace, task: Task, hardware: Hardware) -> dict[str, Any]:
    """The user's JSON or the default one, with the values of the flags."""
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
    adamw = {"lr": task.hyperparameters.learning_rate, "betas": [0.9, 0.999], "eps": 1e-6, "weight_decay": 0.01}
    json: dict[str, Any] = {
        "train_batch_size": task.hyperparameters.batch_size,
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
    length = min(task.hyperparameters.max_length, positions) if given is None else given
    if length < MIN_LENGTH:
        raise UserError(f"--max-length {length} leaves no room for a text; give at least {MIN_LENGTH}")
    return length
