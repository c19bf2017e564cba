"""The tables of a model card: model, data, recipe, cost and measured quality of a run, from its records.

A figure that a run did not record is left out. A row is a tuple of cells that are Markdown already.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.normalization import Normalization
from common.text import format_duration, quantity
from model import AlbertConfig
from pipeline.analysis.compared_runs import sustained_speed
from pipeline.analysis.finished_runs import read_predictions
from pipeline.checkpoint.run_records import RESULTS, FinetuneRecord, PretrainRecord, read_results
from pipeline.tasks.metrics import Interval, is_share, wilson_interval
from pipeline.tasks.task import Task
from pipeline.training import metrics_log

Row = tuple[str, ...]

SENTENCE_LOSSES = {"sop": "sentence order (SOP)", "nsp": "next sentence (NSP)"}
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~#]")


def plain(text: object) -> str:
    """Text as one line in which no character has a meaning in Markdown."""
    return _SPECIAL.sub(lambda found: "\\" + found[0], " ".join(str(text).split()))


def describe_model(config: AlbertConfig, parameters: int, normalization: Normalization) -> list[Row]:
    """The architecture."""
    kind = "WordPiece" if normalization.of_bert else "SentencePiece"
    case = "upper and lower case" if normalization.keep_case else "lower case"
    accents = "with accents" if normalization.keep_accents else "no accents"
    return [
        ("layers", f"{config.num_hidden_layers}, sharing: {config.parameter_sharing}"),
        ("hidden size", f"{config.hidden_size:,}"),
        ("attention heads", f"{config.num_attention_heads}"),
        ("feed-forward size", f"{config.intermediate_size:,}"),
        ("embedding size", f"{config.embedding_size:,}"),
        ("vocabulary", f"{config.vocab_size:,} {kind} pieces, {case}, {accents}"),
        ("positions", f"{config.max_position_embeddings:,}"),
        ("parameters", f"{parameters:,}"),
    ]


def describe_corpora(record: PretrainRecord) -> list[Row]:
    """Each corpus: (name, sources, documents, tokens, rows, share); empty for a run that did not record them."""
    corpora = record.corpora or []
    whole = sum(corpus.weight for corpus in corpora)
    return [
        (
            plain(corpus.name),
            "; ".join(
                f"{plain(one.directory)} ({plain(one.source)}, {quantity(one.documents, 'document')}, "
                f"{quantity(one.text_bytes, 'byte')})"
                for one in corpus.sources
            ),
            f"{corpus.documents:,}",
            f"{corpus.tokens:,}",
            f"{corpus.rows:,} of {corpus.max_seq_length:,} positions",
            f"{100 * corpus.weight / whole:.0f} %",
        )
        for corpus in corpora
    ]


def describe_pretraining(record: PretrainRecord) -> list[Row]:
    """The recipe of a pre-training run."""
    sentences = f" and {SENTENCE_LOSSES[record.objective]}" if record.objective in SENTENCE_LOSSES else ""
    return [
        ("objective", f"masked tokens (MLM){sentences}"),
        ("batch", quantity(record.train_batch_size, "row")),
        *_initial_weights(record.init),
        ("steps of the whole run", f"{record.steps:,}"),
        *_optimization(record.optimizer, record.scheduler, record.warmup_steps),
        *_rows(record.masking or {}),
        *_execution(record),
    ]


def describe_finetuning(run: Path, record: FinetuneRecord) -> list[Row]:
    """The recipe of a fine-tuning run."""
    counts = (read_results(run / RESULTS).get("examples") if (run / RESULTS).exists() else None) or {}
    examples = ", ".join(f"{plain(split)} {count:,}" for split, count in counts.items() if isinstance(count, int))
    given = dict(record.hyperparameters or {})
    optimizer, scheduler, warmup = (given.pop(name, None) for name in ("optimizer", "scheduler", "warmup_steps"))
    given.pop("learning_rate", None)  # it is the optimizer's
    return [
        ("task", plain(record.task)),
        *_initial_weights(None if record.random_weights else record.init),
        *([("examples", examples)] if examples else []),
        *(_optimization(optimizer, scheduler, warmup) if record.hyperparameters else []),
        *_rows({name: value for name, value in given.items() if not isinstance(value, Mapping | list | None)}),
        *_execution(record),
    ]


def _initial_weights(init: str | None) -> list[Row]:
    return [] if init is None else [("initial weights", f"of the trained model {plain(Path(init).name)}")]


def _optimization(optimizer: Any, scheduler: Any, warmup_steps: Any) -> list[Row]:
    rows: list[Row] = []
    if isinstance(optimizer, Mapping) and "type" in optimizer:
        params = optimizer.get("params") or {}
        rows = [("optimizer", plain(optimizer["type"]))]
        rows += _rows({"peak learning rate" if name == "lr" else name: value for name, value in params.items()})
    if isinstance(scheduler, Mapping) and "type" in scheduler:
        return [*rows, ("schedule", plain(scheduler["type"]))]
    warmup = "2.5 % of the steps" if warmup_steps is None else f"{warmup_steps:,} steps"
    return [*rows, ("schedule", f"linear warm-up over {warmup}, then linear decay to 0")]


def _rows(values: Mapping[str, Any]) -> list[Row]:
    """A row for each value of a block of settings."""
    return [(plain(name.replace("_", " ")), _value(value)) for name, value in values.items()]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return plain(", ".join(map(str, value)) if isinstance(value, list) else value)


def _execution(record: PretrainRecord | FinetuneRecord) -> list[Row]:
    """Precision, ZeRO stage and seed, of the last start of the run."""
    zero = (record.deepspeed or {}).get("zero_optimization") or {}
    found = {"precision": record.precision, "DeepSpeed ZeRO stage": zero.get("stage"), "seed": record.seed}
    return [(name, plain(value)) for name, value in found.items() if value is not None]


def describe_cost(run: Path, last_step: int, record: PretrainRecord | FinetuneRecord) -> list[Row]:
    """Time, speed and machine of a run until `last_step`.

    The speed is that of the whole training until then, without evaluations and saves.

    Raises:
        UserError: metrics.jsonl cannot be read.
    """
    lines = [line for line in metrics_log.read_records(run, "train") if line["step"] <= last_step]
    rows: list[Row] = []
    if lines and lines[-1].get("seconds") is not None:
        time, step = format_duration(lines[-1]["seconds"]), lines[-1]["step"]
        rows.append(("time", f"{time} until step {step:,}, over all starts"))
    if lines and lines[-1].get("tokens") is not None:
        rows.append(("tokens read", f"{lines[-1]['tokens']:,}"))
    if (speed := sustained_speed(lines)) is not None:
        rows.append(("training speed", f"{speed:,.0f} tokens/s"))
    if record.world_size is not None:
        device = "" if record.device is None else f" of {plain(record.device)}"
        rows.append(("machine (of the last start)", f"{quantity(record.world_size, 'rank')}{device}"))
    return rows


def describe_evaluation(run: Path, step: int, task: Task | None) -> list[Row]:
    """What was measured of the model of a step: (held-out set or split, metric, value); empty if nothing was.

    The predictions of a fine-tuning run's best step give intervals. Of any other step, and after pre-training, the
    evaluation in metrics.jsonl is known.

    Raises:
        UserError: a record cannot be read.
    """
    results = run / RESULTS
    is_predicted = task is not None and results.exists() and (run / "logits").is_dir()
    if is_predicted and read_results(results).get("best_step") == step:
        assert task is not None
        return [row for split, found in read_predictions(run, task).items() for row in _scores(task, split, found)]
    record = next((one for one in metrics_log.read_records(run, "eval") if one["step"] == step), {})
    numbers = {name: value for name, value in record.items() if isinstance(value, int | float)}
    if task is not None:
        names = [name for name in task.metrics if name in numbers]
        return [(task.dev_splits[0], name, _shown(task, name, numbers[name])) for name in names]
    rows: list[Row] = []
    for prefix in sorted({name.removesuffix("mlm_loss") for name in numbers if name.endswith("mlm_loss")}):
        of_set = {name.removeprefix(prefix): numbers[name] for name in numbers if name.startswith(prefix)}
        rows += [(plain(prefix.removesuffix("/")) or "first", *row) for row in _losses(of_set)]
    return rows


def _losses(found: Mapping[str, float]) -> list[Row]:
    """The figures of one held-out set."""
    rows: list[Row] = []
    if "mlm_loss" in found:
        entropy = found.get("mlm_unigram_entropy")
        beside = "" if entropy is None else f"; unigram entropy {entropy:.3f}"
        rows.append(("loss of masked tokens (MLM)", f"{found['mlm_loss']:.3f} nats{beside}"))
    if "mlm_accuracy" in found and (count := int(found.get("predictions", 0))):
        interval = wilson_interval(found["mlm_accuracy"] * count, count)
        value = f"{_percent(found['mlm_accuracy'], interval)} of {quantity(count, 'token')}"
        rows.append(("accuracy of masked tokens (MLM)", value))
    for loss, name in SENTENCE_LOSSES.items():
        bounds = [found[f"{loss}_accuracy_{end}"] for end in ("low", "high") if f"{loss}_accuracy_{end}" in found]
        if f"{loss}_accuracy" in found and "pairs" in found:
            value = _percent(found[f"{loss}_accuracy"], (bounds[0], bounds[1]) if len(bounds) == 2 else None)
            rows.append((f"accuracy of {name}", f"{value} of {found['pairs']:,} pairs"))
    return rows


def _scores(task: Task, split: str, predictions: Any) -> list[Row]:
    """Each metric of one split with its 95 % interval; empty if the labels are not known."""
    kind = task.kind
    if not kind.is_labelled(predictions):
        return []
    values, count = kind.metrics(task, predictions), quantity(kind.count(predictions), kind.noun)
    return [
        (
            plain(split),
            plain(name),
            f"{_shown(task, name, values[name], kind.interval(task, name, predictions))} of {count}",
        )
        for name in task.metrics
    ]


def _shown(task: Task, name: str, value: float, interval: Interval | None = None) -> str:
    """A metric with its interval. Accuracies and F1 are in percent, correlations and errors are not."""
    if is_share(name):
        return _percent(task.in_percent(value) / 100, interval)
    return f"{value:.3f}" + ("" if interval is None else f" (95 % interval {interval[0]:.3f} to {interval[1]:.3f})")


def _percent(value: float, interval: Interval | None) -> str:
    """A fraction in percent, with its 95 % interval."""
    shown = "" if interval is None else f" (95 % interval {100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
    return f"{100 * value:.1f} %{shown}"
