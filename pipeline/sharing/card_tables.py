"""The tables of a model card: model, data, recipe, cost and measured quality of a run, from its records.

A figure that a run did not record is left out. A row is a tuple of cells that are Markdown already.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.normalization import Normalization
from common.text import format_duration, quantity
from model import AlbertConfig
from pipeline.analysis.compared_runs import sustained_speed
from pipeline.analysis.finished_runs import read_predictions
from pipeline.checkpoint.run_records import (
    RESULTS,
    CorpusRecord,
    FinetuneRecord,
    LengthRecord,
    PretrainRecord,
    read_results,
)
from pipeline.tasks.metrics import Interval, is_share, wilson_interval
from pipeline.tasks.task import Task
from pipeline.training import metrics_log, rollback

Row = tuple[str, ...]

OBJECTIVES = {
    "sop": "masked tokens (MLM) and sentence order (SOP)",
    "nsp": "masked tokens (MLM) and next sentence (NSP)",
    "mlm": "masked tokens (MLM)",
}
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~#]")


def plain(text: object) -> str:
    """Text as one line in which no character has a meaning in Markdown."""
    return _SPECIAL.sub(lambda found: "\\" + found[0], " ".join(str(text).split()))


def percent(value: float, low: float | None = None, high: float | None = None) -> str:
    """A fraction in percent, with its 95 % interval."""
    interval = "" if low is None or high is None else f" (95 % interval {100 * low:.1f} to {100 * high:.1f})"
    return f"{100 * value:.1f} %{interval}"


def describe_normalization(normalization: Normalization) -> str:
    """What is done to a text before it is cut into pieces, for people; empty if it keeps its letters."""
    changes = [] if normalization.keep_case else ["is made lower case"]
    return " and ".join([*changes, *([] if normalization.keep_accents else ["loses its accents"])])


def describe_model(config: AlbertConfig, parameters: int, normalization: Normalization) -> list[Row]:
    """The architecture."""
    case = "upper and lower case" if normalization.keep_case else "lower case"
    return [
        ("layers", f"{config.num_hidden_layers}, sharing: {config.parameter_sharing}"),
        ("hidden size", f"{config.hidden_size:,}"),
        ("attention heads", f"{config.num_attention_heads}"),
        ("feed-forward size", f"{config.intermediate_size:,}"),
        ("embedding size", f"{config.embedding_size:,}"),
        ("vocabulary", f"{config.vocab_size:,} SentencePiece pieces, {case}"),
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
            _sources(corpus),
            f"{corpus.documents:,}",
            f"{corpus.tokens:,}",
            f"{corpus.rows:,} of {corpus.max_seq_length:,} positions",
            f"{100 * corpus.weight / whole:.0f} %",
        )
        for corpus in corpora
    ]


def _sources(corpus: CorpusRecord) -> str:
    parts = [
        f"{plain(one.directory)} ({plain(one.source)}, {quantity(one.documents, 'document')}, "
        f"{quantity(one.text_bytes, 'byte')})"
        for one in corpus.sources
    ]
    return "; ".join(parts)


def describe_pretraining(record: PretrainRecord) -> list[Row]:
    """The recipe of a pre-training run."""
    rows: list[Row] = [
        ("objective", OBJECTIVES[record.objective]),
        ("batch", quantity(record.train_batch_size, "row")),
        *_start(record.init),
        ("steps of the whole run", f"{record.steps:,}"),
        *_lengths(record.lengths or []),
        *_optimizer(record.optimizer),
        ("schedule", _schedule(record.scheduler, record.warmup_steps)),
        *_given(record.masking),
    ]
    return rows + _execution(record)


def describe_rollbacks(run: Path) -> list[Row]:
    """What a pre-training run skipped because of spikes; empty if it never went back. Raises UserError."""
    rollbacks = rollback.read(run)
    return [("after spikes of the loss", rollback.describe(rollbacks))] if rollbacks else []


def _start(init: str | None) -> list[Row]:
    """Whose weights the run began with, by the last part of the path."""
    return [] if init is None else [("initial weights", f"of the trained model {plain(Path(init).name)}")]


def _lengths(lengths: Sequence[LengthRecord]) -> list[Row]:
    """The lengths of a run whose length was changed."""
    if len(lengths) < 2:
        return []
    first, *later = lengths
    changes = (f"from step {one.from_step:,} on {one.steps:,}" for one in later)
    return [("length of the schedule", ", ".join([quantity(first.steps, "step"), *changes]))]


def describe_finetuning(record: FinetuneRecord, examples: Mapping[str, Any]) -> list[Row]:
    """The recipe of a fine-tuning run, whose splits have so many examples; empty if that is not known."""
    given = dict(record.hyperparameters or {})
    scheduler, warmup = given.pop("scheduler", None), given.pop("warmup_steps", None)
    rows = _optimizer(given.pop("optimizer", None))
    if record.hyperparameters:
        rows.append(("schedule", _schedule(scheduler, warmup)))
    rows += [
        (plain(name.replace("_", " ")), _value(value))
        for name, value in given.items()
        if name != "learning_rate" and value is not None and not isinstance(value, Mapping | list)
    ]
    counts = ", ".join(f"{plain(split)} {count:,}" for split, count in examples.items() if isinstance(count, int))
    return [("task", plain(record.task)), *([("examples", counts)] if counts else []), *rows, *_execution(record)]


def _optimizer(optimizer: Any) -> list[Row]:
    if not isinstance(optimizer, Mapping) or "type" not in optimizer:
        return []
    params = optimizer.get("params")
    return [("optimizer", plain(optimizer["type"])), *_given(params if isinstance(params, Mapping) else None)]


def _given(values: Mapping[str, Any] | None) -> list[Row]:
    """A row for each value of a block of settings."""
    named = {"peak learning rate" if name == "lr" else name: value for name, value in (values or {}).items()}
    return [(plain(name.replace("_", " ")), _value(value)) for name, value in named.items()]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return plain(", ".join(map(str, value)) if isinstance(value, list) else value)


def _schedule(scheduler: Any, warmup_steps: Any) -> str:
    if isinstance(scheduler, Mapping) and "type" in scheduler:
        return plain(scheduler["type"])
    warmup = "2.5 % of the steps" if warmup_steps is None else f"{_value(warmup_steps)} steps"
    return f"linear warm-up over {warmup}, then linear decay to 0"


def _execution(record: PretrainRecord | FinetuneRecord) -> list[Row]:
    """Precision, ZeRO stage and seed, of the last start of the run."""
    rows: list[Row] = [] if record.precision is None else [("precision", plain(record.precision))]
    zero = (record.deepspeed or {}).get("zero_optimization")
    if isinstance(zero, Mapping) and isinstance(zero.get("stage"), int):
        rows.append(("DeepSpeed ZeRO stage", f"{zero['stage']}"))
    return rows + ([] if record.seed is None else [("seed", f"{record.seed}")])


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


_SENTENCE_TASKS = (("sop", "sentence order (SOP)"), ("nsp", "next sentence (NSP)"))


def describe_evaluation(run: Path, step: int) -> list[Row]:
    """What the evaluation after `step` measured: (held-out set, figure, value); empty if that step was not evaluated.

    Raises:
        UserError: metrics.jsonl cannot be read.
    """
    record = next((one for one in metrics_log.read_records(run, "eval") if one["step"] == step), None)
    if record is None:
        return []
    sets = {key.rpartition("/")[0] for key in record if key.endswith("mlm_loss")}
    rows: list[Row] = []
    for name in sorted(sets):
        prefix = f"{name}/" if name else ""
        values = {key.removeprefix(prefix): value for key, value in record.items() if key.startswith(prefix)}
        rows += [(plain(name) or "first", figure, value) for figure, value in _of_one_set(values)]
    return rows


def _of_one_set(record: Mapping[str, Any]) -> list[Row]:
    """The figures of the record of one held-out set. A value that is not a number is left out."""
    found = {name: value for name, value in record.items() if isinstance(value, int | float)}
    rows: list[Row] = []
    if "mlm_loss" in found:
        entropy = found.get("mlm_unigram_entropy")
        beside = "" if entropy is None else f"; unigram entropy {entropy:.3f}"
        rows.append(("loss of masked tokens (MLM)", f"{found['mlm_loss']:.3f} nats{beside}"))
    if "mlm_accuracy" in found and found.get("predictions", 0) > 0:
        count = found["predictions"]
        shown = percent(found["mlm_accuracy"], *wilson_interval(found["mlm_accuracy"] * count, count))
        rows.append(("accuracy of masked tokens (MLM)", f"{shown} of {quantity(count, 'token')}"))
    for task, name in _SENTENCE_TASKS:
        if f"{task}_accuracy" not in found or "pairs" not in found:
            continue
        bounds = found.get(f"{task}_accuracy_low"), found.get(f"{task}_accuracy_high")
        rows.append(
            (f"accuracy of {name}", f"{percent(found[f'{task}_accuracy'], *bounds)} of {found['pairs']:,} pairs")
        )
    return rows


def describe_task_evaluation(run: Path, step: int, task: Task) -> list[Row]:
    """What was measured of a fine-tuned model: (split, metric, value).

    The predictions of the run's best step give intervals. Of any other step, only the evaluation in metrics.jsonl is
    known. Empty if neither is there.

    Raises:
        UserError: a record cannot be read.
    """
    results = run / RESULTS
    if results.exists() and (run / "logits").is_dir() and read_results(results).get("best_step") == step:
        return [
            (plain(split), plain(metric), value)
            for split, predictions in read_predictions(run, task).items()
            for metric, value in _of_predictions(task, predictions)
        ]
    record = next((one for one in metrics_log.read_records(run, "eval") if one["step"] == step), {})
    names = [name for name in task.metrics if isinstance(record.get(name), int | float)]
    return [(task.dev_splits[0], name, _shown(task, name, record[name])) for name in names]


def _of_predictions(task: Task, predictions: Any) -> list[tuple[str, str]]:
    """Each metric of one split with its 95 % interval; empty if the labels are not known."""
    kind = task.kind
    if not kind.is_labelled(predictions):
        return []
    values, count = kind.metrics(task, predictions), quantity(kind.count(predictions), kind.noun)
    return [
        (name, f"{_shown(task, name, values[name], kind.interval(task, name, predictions))} of {count}")
        for name in task.metrics
    ]


def _shown(task: Task, name: str, value: float, interval: Interval | None = None) -> str:
    """A metric with its interval. Accuracies and F1 are in percent, correlations and errors are not."""
    if is_share(name):
        return percent(task.in_percent(value) / 100, *(interval or (None, None)))
    return f"{value:.3f}" + ("" if interval is None else f" (95 % interval {interval[0]:.3f} to {interval[1]:.3f})")
