"""The rows of a model card's tables, from the records of a run: recipe, evaluation and cost."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.text import format_duration, quantity
from pipeline.analysis.finished_runs import read_predictions
from pipeline.analysis.summary import sustained_speed
from pipeline.checkpoint.run_records import RESULTS, FinetuneRecord, PretrainRecord, read_record, read_results
from pipeline.data.mixture import names_of
from pipeline.tasks.metrics import Interval, is_share, wilson_interval
from pipeline.tasks.task import Task
from pipeline.training import metrics_file

SENTENCE_LOSSES = {"sop": "sentence order (SOP)", "nsp": "next sentence (NSP)"}

Measured = tuple[str, str, str]
"""A held-out set or split, a metric, and its value."""


def recipe(record: PretrainRecord | FinetuneRecord, examples: Mapping[str, int]) -> dict[str, Any]:
    """How a run was trained, by name; what is None is no row.

    Args:
        examples: of a fine-tuning run, by split.
    """
    if isinstance(record, PretrainRecord):
        sentences = f" and {SENTENCE_LOSSES[record.objective]}" if record.objective in SENTENCE_LOSSES else ""
        rows = {"objective": f"masked tokens (MLM){sentences}", "batch": quantity(record.train_batch_size, "row")}
        rows |= {"steps of the whole run": f"{record.steps:,}"}
        optimizer, scheduler, warmup, more = record.optimizer, record.scheduler, record.warmup_steps, record.masking
    else:
        rows = {"task": record.task}
        rows |= {"examples": ", ".join(f"{split} {count:,}" for split, count in examples.items())} if examples else {}
        more = dict(record.hyperparameters)
        optimizer, scheduler, warmup = (more.pop(name, None) for name in ("optimizer", "scheduler", "warmup_steps"))
        more.pop("learning_rate", None)  # it is the optimizer's
    init = None if record.init is None else f"of the trained model {Path(record.init).name}"
    if isinstance(record, FinetuneRecord) and record.random_weights:
        init = None
    params = dict((optimizer or {}).get("params") or {})
    start = "2.5 % of the steps" if warmup is None else f"{warmup:,} steps"
    return {
        **rows,
        "initial weights": init,
        "optimizer": (optimizer or {}).get("type"),
        "peak learning rate": params.pop("lr", None),
        **params,
        "schedule": (scheduler or {}).get("type", f"linear warm-up over {start}, then linear decay to 0"),
        **{name: value for name, value in more.items() if not isinstance(value, Mapping)},
        "precision": record.precision,
        "DeepSpeed ZeRO stage": (record.deepspeed.get("zero_optimization") or {}).get("stage"),
        "seed": record.seed,
    }


def cost(run: Path, last_step: int, record: PretrainRecord | FinetuneRecord) -> dict[str, str]:
    """Time, speed and machine of a run until `last_step`; the speed is without evaluations and saves.

    Raises:
        UserError: metrics.jsonl cannot be read.
    """
    lines = [line for line in metrics_file.read_records(run, "train") if line["step"] <= last_step]
    last, speed, rows = lines[-1] if lines else {}, sustained_speed(lines), {}
    if "seconds" in last:
        rows["time"] = f"{format_duration(last['seconds'])} until step {last['step']:,}, over all starts"
    if "tokens" in last:
        rows["tokens read"] = f"{last['tokens']:,}"
    if speed:
        rows["training speed"] = f"{speed:,.0f} tokens/s"
    return rows | {"machine (of the last start)": f"{quantity(record.world_size, 'rank')} of {record.device}"}


def evaluation(run: Path, step: int, task: Task | None) -> list[Measured]:
    """What was measured of the model of a step; empty if nothing was.

    The predictions of a fine-tuning run's best step give intervals. Of any other step, and after pre-training, the
    evaluation in metrics.jsonl is known.

    Raises:
        UserError: a record cannot be read.
    """
    evaluated = next((record for record in metrics_file.read_records(run, "eval") if record["step"] == step), {})
    numbers = {name: value for name, value in evaluated.items() if isinstance(value, int | float)}
    if task is None:
        record = read_record(run)
        assert isinstance(record, PretrainRecord)
        first = names_of([Path(given) for given in record.eval_data_directories])[:1]
        prefixes = sorted(name.removesuffix("mlm_loss") for name in numbers if name.endswith("mlm_loss"))
        return [
            (prefix.removesuffix("/") or next(iter(first), "held-out rows"), *row)
            for prefix in prefixes
            for row in _held_out(prefix, numbers, record.objective)
        ]
    results = run / RESULTS
    if results.exists() and (run / "logits").is_dir() and read_results(results).get("best_step") == step:
        splits = read_predictions(run, task).items()
        return [(split, *row) for split, predictions in splits for row in _of_predictions(task, predictions)]
    named = [name for name in task.metrics if name in numbers]
    return [(task.dev_splits[0], name, _metric(task, name, numbers[name])) for name in named]


def _held_out(prefix: str, numbers: Mapping[str, float], objective: str) -> list[tuple[str, str]]:
    """The figures of the held-out set whose metrics begin with `prefix`; of sentences what the model was trained on."""
    figures = {name.removeprefix(prefix): value for name, value in numbers.items() if name.startswith(prefix)}
    entropy = f"; unigram entropy {figures['mlm_unigram_entropy']:.3f}" if "mlm_unigram_entropy" in figures else ""
    rows = [("loss of masked tokens (MLM)", f"{figures['mlm_loss']:.3f} nats{entropy}")]
    if "mlm_accuracy" in figures and (count := int(figures.get("predictions", 0))):
        interval = wilson_interval(figures["mlm_accuracy"] * count, count)
        value = f"{_percent(figures['mlm_accuracy'], interval)} of {quantity(count, 'token')}"
        rows.append(("accuracy of masked tokens (MLM)", value))
    accuracy, low, high = (figures.get(f"{objective}_accuracy{end}") for end in ("", "_low", "_high"))
    if objective in SENTENCE_LOSSES and accuracy is not None and low is not None and high is not None:
        value = f"{_percent(accuracy, (low, high))} of {figures.get('pairs', 0):,} pairs"
        rows.append((f"accuracy of {SENTENCE_LOSSES[objective]}", value))
    return rows


def _of_predictions(task: Task, predictions: Any) -> list[tuple[str, str]]:
    """Each metric of one split with its 95 % interval; empty if the labels are not known."""
    if not predictions.labelled:
        return []
    values, count = task.kind.metrics(task, predictions), quantity(len(predictions), task.kind.noun)
    intervals = {name: task.kind.interval(task, name, predictions) for name in task.metrics}
    return [(name, f"{_metric(task, name, values[name], interval)} of {count}") for name, interval in intervals.items()]


def _metric(task: Task, name: str, value: float, interval: Interval | None = None) -> str:
    """A metric with its interval. Accuracies and F1 are in percent, correlations and errors are not."""
    if is_share(name):
        return _percent(task.in_percent(value) / 100, interval)
    return f"{value:.3f}" + ("" if interval is None else f" (95 % interval {interval[0]:.3f} to {interval[1]:.3f})")


def _percent(value: float, interval: Interval | None) -> str:
    shown = "" if interval is None else f" (95 % interval {100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
    return f"{100 * value:.1f} %{shown}"
