"""The settings of a fine-tuning run: the task's defaults, the flags, and a DeepSpeed JSON.

The defaults of the paper's tasks are those of Table 14.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from model.config import AlbertConfig, ExecutionOptions
from pipeline.checkpoint.run_records import FinetuneRecord, PretrainRecord
from pipeline.engine import deepspeed_config as engine_config
from pipeline.engine.hardware import Hardware
from pipeline.run.initial_model import InitialModel, record_of
from pipeline.settings.finetune_flags import EVALUATIONS, STEPS_BETWEEN, FinetuneFlags
from pipeline.tasks import own_tasks
from pipeline.tasks.task import SpanLimits, Task, steps_of_epochs
from pipeline.training.run_settings import RunSettings

MIN_LENGTH = 16
TABLE_WIDTH = 768
"""The hidden size of the smallest model of Table 14."""
MAX_RATE = 2e-4
"""The highest default of the learning rate: the best for albert-tiny in benchmarks/results/tiny_tasks.md."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(RunSettings):
    """The settings of one fine-tuning run, of one seed. `model` has the dropout of fine-tuning.

    A checkpoint is saved at every evaluation, because the best evaluated step is the result of the run.

    Attributes:
        flags: of the command line, with the seed and the directory of this run.
        task: what the model learns.
        origin: the fields of the record that tell the initial model.
        pretraining: the record of the pre-training run when this run began; None if there was none.
        rate_reason: why the learning rate is not that of the table; "" if it is, or the user chose it.
        data_digest: of the examples that training sees: those of train and the dev sets.
        max_length: tokens of the longest sequence.
        limits: of passages, questions and answers (SQuAD).
    """

    flags: FinetuneFlags
    task: Task
    origin: dict[str, Any]
    pretraining: PretrainRecord | None
    rate_reason: str
    data_digest: str
    max_length: int
    limits: SpanLimits
    kept_checkpoints: int = 1

    def hyperparameters(self) -> dict[str, Any]:
        """The hyperparameters of Table 14, and the others that decide the result."""
        hyperparameters: dict[str, Any] = {
            **self.optimization(),
            "learning_rate": self.engine.learning_rate,
            "dropout": self.model.hidden_dropout_prob,
            "classifier_dropout": self.model.classifier_dropout_prob,
            "steps": self.steps,
            "warmup_steps": self.warmup_steps,
            "eval_interval": self.eval_interval,
            "max_length": self.max_length,
        }
        return hyperparameters | (dataclasses.asdict(self.limits) if self.task.kind.uses_span_limits else {})

    def record(self) -> FinetuneRecord:
        """What settings.json holds."""
        flags = self.flags
        return FinetuneRecord(
            **self.common_record(),
            **self.origin,
            data=self.data_digest,
            task=self.task.name,
            own_task=own_tasks.record_of(self.task).get(own_tasks.RECORD),
            random_weights=flags.random_weights,
            hyperparameters=self.hyperparameters(),
            pretraining=self.pretraining,
            data_directory=flags.data or flags.own_data().source,
            data_on_hub=flags.data is not None and not Path(flags.data).exists(),
        )


def resolve(
    flags: FinetuneFlags,
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
    rate, reason = _learning_rate(flags, task, initial.config)
    config = _deepspeed_json(flags, task, hardware, rate)
    engine = engine_config.fit(config, world_size, hardware, flags.precision)
    defaults = task.hyperparameters
    steps = flags.steps or defaults.steps
    if flags.epochs is not None or steps is None:
        steps = steps_of_epochs(flags.epochs or defaults.epochs, examples, engine.train_batch_size)
    interval = flags.eval_interval or max(steps // EVALUATIONS, min(steps, STEPS_BETWEEN))
    dropout = defaults.dropout if flags.dropout is None else flags.dropout
    model = dataclasses.replace(
        initial.config,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        classifier_dropout_prob=flags.classifier_dropout,
    )
    limits = {field.name: getattr(flags, field.name, None) for field in dataclasses.fields(SpanLimits)}
    settings = FinetuneSettings(
        flags=flags,
        task=task,
        model=model,
        execution=ExecutionOptions(activation_checkpointing=flags.activation_checkpointing),
        engine=engine,
        origin=record_of(initial),
        pretraining=None if flags.random_weights else initial.pretraining,
        rate_reason=reason,
        data_digest=data_digest,
        max_length=_max_length(flags.max_length, task, initial.config),
        limits=SpanLimits(**{name: value for name, value in limits.items() if value is not None}),
        steps=steps,
        warmup_steps=round(steps * defaults.warmup_fraction) if flags.warmup_steps is None else flags.warmup_steps,
        log_interval=flags.log_interval or min(100, max(1, steps // 100)),
        eval_interval=interval,
        save_interval=interval,
    )
    return [
        dataclasses.replace(settings, flags=dataclasses.replace(flags, seed=seed, output=output))
        for seed, output in enumerate(flags.outputs(), flags.seed)
    ]


def _learning_rate(flags: FinetuneFlags, task: Task, config: AlbertConfig) -> tuple[float, str]:
    """The peak of the learning rate without a JSON, and the reason for people; "" for the user's or the table's.

    The table has the rates of wide models. A smaller model needs a higher one: here by the square of the width.
    """
    if flags.deepspeed_config is not None or flags.learning_rate is not None:
        return flags.learning_rate or task.hyperparameters.learning_rate, ""
    table = task.hyperparameters.learning_rate
    if config.hidden_size >= TABLE_WIDTH:
        return table, ""
    rate = min(MAX_RATE, float(f"{table * (TABLE_WIDTH / config.hidden_size) ** 2:.1g}"))
    of_table = "Table 14" if task.columns is None else "own files"
    return rate, f" ({table:g} of {of_table} suits a width from {TABLE_WIDTH} on; this model has {config.hidden_size})"


def _deepspeed_json(flags: FinetuneFlags, task: Task, hardware: Hardware, rate: float) -> dict[str, Any]:
    """The user's JSON with the values of the flags; without one, Table 14 and the optimizer of the paper's code.

    That is AdamW without bias correction.
    """
    default = task.hyperparameters
    adamw = {"lr": rate, "betas": [0.9, 0.999], "eps": 1e-6, "weight_decay": 0.01}
    json: dict[str, Any] = {
        "train_batch_size": default.batch_size,
        "optimizer": {"type": "AdamW", "params": {**adamw, "bias_correction": False}},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 0},
    }
    if hardware.name != "CPU":
        json |= {"bf16": {"enabled": True}, "zero_optimization": {"stage": 1, "reduce_bucket_size": 12_000_000}}
    if flags.deepspeed_config is not None:
        json = engine_config.load(flags.deepspeed_config)
    if flags.batch_size is not None or flags.micro_batch_size is not None:
        json.pop("gradient_accumulation_steps", None)
        json.pop("train_micro_batch_size_per_gpu", None)
    params = json["optimizer"].setdefault("params", {})
    for block, name, value in (
        (json, "train_batch_size", flags.batch_size),
        (json, "train_micro_batch_size_per_gpu", flags.micro_batch_size),
        (params, "lr", flags.learning_rate),
        (params, "weight_decay", flags.weight_decay),
    ):
        if value is not None:
            block[name] = value
    return json


def _max_length(given: int | None, task: Task, config: AlbertConfig) -> int:
    positions = config.max_position_embeddings
    if given is not None and given > positions:
        raise UserError(f"--max-length {given} is more than the {positions} positions of the model; lower it")
    length = min(task.hyperparameters.max_length, positions) if given is None else given
    if length < MIN_LENGTH:
        raise UserError(f"--max-length {length} leaves no room for a text; give at least {MIN_LENGTH}")
    return length
