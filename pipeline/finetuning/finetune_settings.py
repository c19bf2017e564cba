"""Finds out the settings of a fine-tuning run, from the task's defaults, the flags, and a DeepSpeed JSON.

The defaults of the paper's tasks are those of Table 14.
"""

import dataclasses
from pathlib import Path
from typing import Any

from common.errors import UserError
from model.config import AlbertConfig, ExecutionOptions
from pipeline.checkpoint.initial_weights import InitialModel, find_initial_model, record_of
from pipeline.engine import deepspeed_config
from pipeline.engine.hardware import Hardware
from pipeline.finetuning.fine_tuning import Examples, FineTuning, digest
from pipeline.settings.finetune_flags import EVALUATIONS, STEPS_BETWEEN, FinetuneFlags, seed_directories
from pipeline.settings.run_settings import FinetuneSettings
from pipeline.tasks import own_tasks
from pipeline.tasks.files import reading
from pipeline.tasks.registry import find_task
from pipeline.tasks.task import SpanLimits, Task, steps_of_epochs
from pipeline.training import schedule

MIN_LENGTH = 16
TABLE_WIDTH = 768  # the hidden size of the smallest model of Table 14
MAX_RATE = 2e-4
"""The highest default of the learning rate: the best for albert-tiny in benchmarks/results/tiny_tasks.md."""


def make_tasks(flags: FinetuneFlags, world_size: int, hardware: Hardware) -> list[FineTuning]:
    """The run of each seed of a command line. Reads files and writes none. Raises UserError for a mistake."""
    if flags.is_own_task:
        task, splits = own_tasks.read(flags.own_data())
    else:
        task = find_task(flags.task_word)
        splits = reading.read(task, flags.data or "")
    if "train" not in splits:
        raise UserError(f"--data {flags.data} holds no training examples of {task.name}; it has {', '.join(splits)}")
    initial = find_initial_model(flags.init, flags.outputs())
    assert initial is not None, "--init is required"
    trained_on = {split: examples for split, examples in splits.items() if split in ("train", *task.dev_splits)}
    runs = resolve(flags, task, len(splits["train"]), world_size, hardware, initial, digest(trained_on))
    _check_form(flags)
    data = Examples(splits, digest(splits))
    return [FineTuning(settings, initial.vocabulary, initial, task, data, flags) for settings in runs]


def _check_form(flags: FinetuneFlags) -> None:
    """Raises UserError if --output holds a run of one seed and --seeds is given, or the other way round."""
    if (flags.output / "settings.json").exists() and flags.seeds is not None:
        raise UserError(f"{flags.output} holds a run of one seed; leave --seeds out, or choose another --output")
    if seed_directories(flags.output, "settings.json") and flags.seeds is None:
        raise UserError(f"{flags.output} holds runs of several seeds; give --seeds, or choose another --output")


def resolve(
    flags: FinetuneFlags,
    task: Task,
    examples: int,
    world_size: int,
    hardware: Hardware,
    initial: InitialModel,
    data_digest: str,
) -> list[FinetuneSettings]:
    """Makes the settings of the run of each seed; `examples` is their number in the training split. UserError."""
    rate, reason = _learning_rate(flags, task, initial.config)
    config = _deepspeed_json(flags, task, hardware, rate)
    engine = deepspeed_config.fit(config, world_size, hardware, flags.precision)
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
    names = [field.name for field in dataclasses.fields(SpanLimits)]
    limits = {name: value for name in names if (value := getattr(flags, name, None)) is not None}
    if limits and not task.kind.uses_span_limits:
        raise UserError(f"--{min(limits).replace('_', '-')} is for questions with answers, not {task.name}; drop it")
    scheduler, warmup_steps = engine.json.get("scheduler", {}), flags.warmup_steps
    if warmup_steps is None and "warmup_num_steps" not in scheduler.get("params", {}):
        warmup_steps = round(steps * defaults.warmup_fraction)
    settings = FinetuneSettings(
        flags=flags,
        model=model,
        execution=ExecutionOptions(activation_checkpointing=flags.activation_checkpointing),
        engine=engine,
        steps=steps,
        warmup_steps=schedule.warmup_length(scheduler, warmup_steps, steps),
        log_interval=flags.log_interval or min(100, max(1, steps // 100)),
        eval_interval=interval,
        save_interval=interval,
        task=task.name,
        own_task=own_tasks.record_of(task),
        data_digest=data_digest,
        max_length=_max_length(flags.max_length, task, initial.config),
        limits=SpanLimits(**limits) if task.kind.uses_span_limits else None,
        pretraining=None if flags.random_weights else initial.pretraining,
        rate_note=reason,
        data_on_hub=flags.data is not None and not Path(flags.data).exists(),
        **record_of(initial),
    )
    schedule.of_run(settings)
    return [
        dataclasses.replace(settings, flags=dataclasses.replace(flags, seed=seed, output=output))
        for seed, output in enumerate(flags.outputs(), flags.seed)
    ]


def _learning_rate(flags: FinetuneFlags, task: Task, config: AlbertConfig) -> tuple[float, str]:
    """The peak of the learning rate without a JSON, and the reason for people; "" for the user's or the table's.

    The table has the rates of wide models. A smaller model needs a higher one: here by the square of the width.
    """
    table = task.hyperparameters.learning_rate
    if flags.deepspeed_config is not None or flags.learning_rate is not None or config.hidden_size >= TABLE_WIDTH:
        return flags.learning_rate or table, ""
    rate = min(MAX_RATE, float(f"{table * (TABLE_WIDTH / config.hidden_size) ** 2:.1g}"))
    of_table = "Table 14" if task.columns is None else "own files"
    return rate, f" ({table:g} of {of_table} suits a width from {TABLE_WIDTH} on; this model has {config.hidden_size})"


def _deepspeed_json(flags: FinetuneFlags, task: Task, hardware: Hardware, rate: float) -> dict[str, Any]:
    """The user's JSON, or Table 14 and AdamW without bias correction as in the paper's code; and the flags' values."""
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
        json = deepspeed_config.load(flags.deepspeed_config)
    if flags.batch_size is not None or flags.micro_batch_size is not None:
        json.pop("gradient_accumulation_steps", None)
    scheduler = json.get("scheduler", {})
    if flags.learning_rate is not None and scheduler.get("type") in schedule.WITH_PEAK:
        scheduler.get("params", {}).pop("warmup_max_lr", None)
    sizes = {"train_batch_size": flags.batch_size, "train_micro_batch_size_per_gpu": flags.micro_batch_size}
    rates = {"lr": flags.learning_rate, "weight_decay": flags.weight_decay}
    for block, given in ((json, sizes), (json["optimizer"].setdefault("params", {}), rates)):
        block |= {name: value for name, value in given.items() if value is not None}
    return json


def _max_length(given: int | None, task: Task, config: AlbertConfig) -> int:
    positions = config.max_position_embeddings
    if given is not None and given > positions:
        raise UserError(f"--max-length {given} is more than the {positions} positions of the model; lower it")
    length = min(task.hyperparameters.max_length, positions) if given is None else given
    if length < MIN_LENGTH:
        raise UserError(f"--max-length {length} leaves no room for a text; give at least {MIN_LENGTH}")
    return length
