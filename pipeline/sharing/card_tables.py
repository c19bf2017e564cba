"""The tables of a model card: model, data, recipe, cost and measured quality of a run, from its records.

A figure that a run did not record is left out. A row is a tuple of cells that are Markdown already.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.text import format_duration, quantity
from pipeline.analysis.finished_runs import read_predictions
from pipeline.analysis.summary import sustained_speed
from pipeline.checkpoint.run_records import (
    RESULTS,
    FinetuneRecord,
    PretrainRecord,
    read_record,
    read_results,
)
from pipeline.data.mixture import names_of
from pipeline.tasks.metrics import Interval, is_share, wilson_interval
from pipeline.tasks.task import Task
from pipeline.training import metrics_file

Row = tuple[str, ...]

SENTENCE_LOSSES = {"sop": "sentence order (SOP)", "nsp": "next sentence (NSP)"}
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~#]")


def plain(text: object) -> str:
    """Text as one line in which no character has a meaning in Markdown."""
    return _SPECIAL.sub(lambda found: "\\" + found[0], " ".join(str(text).split()))


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
    return _rows(
        {
            "objective": f"masked tokens (MLM){sentences}",
            "batch": quantity(record.train_batch_size, "row"),
            "initial weights": _initial_weights(record.init),
            "steps of the whole run": record.steps,
            **_optimization(record.optimizer, record.scheduler, record.warmup_steps),
            **(record.masking or {}),
            **_execution(record),
        }
    )


def describe_finetuning(run: Path, record: FinetuneRecord) -> list[Row]:
    """The recipe of a fine-tuning run."""
    counts = (read_results(run / RESULTS).get("examples") if (run / RESULTS).exists() else None) or {}
    examples = ", ".join(f"{split} {count:,}" for split, count in counts.items() if isinstance(count, int))
    given = dict(record.hyperparameters or {})
    optimization = [given.pop(name, None) for name in ("optimizer", "scheduler", "warmup_steps")]
    given.pop("learning_rate", None)  # it is the optimizer's
    return _rows(
        {
            "task": record.task,
            "initial weights": None if record.random_weights else _initial_weights(record.init),
            "examples": examples or None,
            **(_optimization(*optimization) if record.hyperparameters else {}),
            **{name: value for name, value in given.items() if not isinstance(value, Mapping | list)},
            **_execution(record),
        }
    )


def _initial_weights(init: str | None) -> str | None:
    return None if init is None else f"of the trained model {Path(init).name}"


def _optimization(optimizer: Any, scheduler: Any, warmup_steps: Any) -> dict[str, Any]:
    warmup = "2.5 % of the steps" if warmup_steps is None else f"{warmup_steps:,} steps"
    schedule = f"linear warm-up over {warmup}, then linear decay to 0"
    if isinstance(scheduler, Mapping) and "type" in scheduler:
        schedule = str(scheduler["type"])
    if not isinstance(optimizer, Mapping) or "type" not in optimizer:
        return {"schedule": schedule}
    params = dict(optimizer.get("params") or {})
    return {
        "optimizer": optimizer["type"],
        "peak learning rate": params.pop("lr", None),
        **params,
        "schedule": schedule,
    }


def _execution(record: PretrainRecord | FinetuneRecord) -> dict[str, Any]:
    """Precision, ZeRO stage and seed, of the last start of the run."""
    zero = (record.deepspeed or {}).get("zero_optimization") or {}
    seed = None if record.seed is None else str(record.seed)
    return {"precision": record.precision, "DeepSpeed ZeRO stage": zero.get("stage"), "seed": seed}


def _rows(values: Mapping[str, Any]) -> list[Row]:
    """A row for each value that is not None."""
    return [(plain(name.replace("_", " ")), _value(value)) for name, value in values.items() if value is not None]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return plain(", ".join(map(str, value)) if isinstance(value, list) else value)


def describe_cost(run: Path, last_step: int, record: PretrainRecord | FinetuneRecord) -> list[Row]:
    """Time, speed and machine of a run until `last_step`.

    The speed is that of the whole training until then, without evaluations and saves.

    Raises:
        UserError: metrics.jsonl cannot be read.
    """
    lines = [line for line in metrics_file.read_records(run, "train") if line["step"] <= last_step]
    last, speed, ranks = lines[-1] if lines else {}, sustained_speed(lines), record.world_size
    seconds, device = last.get("seconds"), f" of {record.device}" if record.device else ""
    return _rows(
        {
            "time": seconds and f"{format_duration(seconds)} until step {last['step']:,}, over all starts",
            "tokens read": last.get("tokens"),
            "training speed": speed and f"{speed:,.0f} tokens/s",
            "machine (of the last start)": ranks and f"{quantity(ranks, 'rank')}{device}",
        }
    )


def describe_evaluation(run: Path, step: int, task: Task | None) -> list[Row]:
    """What was measured of the model of a step: (held-out set or split, metric, value); empty if nothing was.

    The predictions of a fine-tuning run's best step give intervals. Of any other step, and after pre-training, the
    evaluation in metrics.jsonl is known.

    Raises:
        UserError: a record cannot be read.
    """
    record = next((one for one in metrics_file.read_records(run, "eval") if one["step"] == step), {})
    numbers = {name: value for name, value in record.items() if isinstance(value, int | float)}
    if task is None:
        settings = read_record(run)
        assert isinstance(settings, PretrainRecord)
        first = names_of([Path(given) for given in settings.eval_data_directories or ()])[:1]
        prefixes = sorted(name.removesuffix("mlm_loss") for name in numbers if name.endswith("mlm_loss"))
        return [
            (plain(prefix.removesuffix("/") or next(iter(first), "held-out rows")), *row)
            for prefix in prefixes
            for row in _of_held_out_set(prefix, numbers, settings.objective)
        ]
    results = run / RESULTS
    if results.exists() and (run / "logits").is_dir() and read_results(results).get("best_step") == step:
        return [row for split, found in read_predictions(run, task).items() for row in _of_split(task, split, found)]
    names = [name for name in task.metrics if name in numbers]
    return [(task.dev_splits[0], name, _shown(task, name, numbers[name])) for name in names]


def _of_held_out_set(prefix: str, numbers: Mapping[str, float], objective: str) -> list[Row]:
    """The figures of the held-out set whose metrics begin with `prefix`; of sentences what the model was trained on."""
    figures = {name.removeprefix(prefix): value for name, value in numbers.items() if name.startswith(prefix)}
    entropy = f"; unigram entropy {figures['mlm_unigram_entropy']:.3f}" if "mlm_unigram_entropy" in figures else ""
    rows: list[Row] = [("loss of masked tokens (MLM)", f"{figures['mlm_loss']:.3f} nats{entropy}")]
    if "mlm_accuracy" in figures and (count := int(figures.get("predictions", 0))):
        interval = wilson_interval(figures["mlm_accuracy"] * count, count)
        value = f"{_percent(figures['mlm_accuracy'], interval)} of {quantity(count, 'token')}"
        rows.append(("accuracy of masked tokens (MLM)", value))
    accuracy, low, high = (figures.get(f"{objective}_accuracy{end}") for end in ("", "_low", "_high"))
    if accuracy is not None and "pairs" in figures:
        bounds = None if low is None or high is None else (low, high)
        value = f"{_percent(accuracy, bounds)} of {figures['pairs']:,} pairs"
        rows.append((f"accuracy of {SENTENCE_LOSSES[objective]}", value))
    return rows


def _of_split(task: Task, split: str, predictions: Any) -> list[Row]:
    """Each metric of one split with its 95 % interval; empty if the labels are not known."""
    kind = task.kind
    if not predictions.labelled:
        return []
    values, count = kind.metrics(task, predictions), quantity(len(predictions), kind.noun)
    intervals = {name: kind.interval(task, name, predictions) for name in task.metrics}
    shown = {name: f"{_shown(task, name, values[name], intervals[name])} of {count}" for name in intervals}
    return [(plain(split), plain(name), value) for name, value in shown.items()]


def _shown(task: Task, name: str, value: float, interval: Interval | None = None) -> str:
    """A metric with its interval. Accuracies and F1 are in percent, correlations and errors are not."""
    if is_share(name):
        return _percent(task.in_percent(value) / 100, interval)
    return f"{value:.3f}" + ("" if interval is None else f" (95 % interval {interval[0]:.3f} to {interval[1]:.3f})")


def _percent(value: float, interval: Interval | None) -> str:
    """A fraction in percent, with its 95 % interval."""
    shown = "" if interval is None else f" (95 % interval {100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
    return f"{100 * value:.1f} %{shown}"
