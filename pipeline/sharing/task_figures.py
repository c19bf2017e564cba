"""The measured quality of a fine-tuned model, as rows of a table, from its predictions or from metrics.jsonl."""

from pathlib import Path

from common.progress import quantity
from pipeline.analysis import intervals
from pipeline.analysis.finished_runs import read_predictions
from pipeline.checkpoint.run_records import RESULTS, read_results
from pipeline.sharing.markdown import percent, plain
from pipeline.tasks import scoring, tagging_metrics
from pipeline.tasks.predictions import Logits, Predictions, TagLogits
from pipeline.tasks.task import Task
from pipeline.training.reporting import metrics_log

Row = tuple[str, ...]


def of_task(run: Path, step: int, task: Task) -> list[Row]:
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
            for split, predictions in read_predictions(run)
            for metric, value in _of_predictions(task, predictions)
        ]
    record = next((one for one in metrics_log.read_records(run, "eval") if one["step"] == step), {})
    names = [name for name in task.metrics if isinstance(record.get(name), int | float)]
    return [(task.dev_splits[0], name, _shown(task, name, record[name])) for name in names]


def _of_predictions(task: Task, predictions: Predictions) -> list[tuple[str, str]]:
    """Each metric of one split with its 95 % interval; empty if the labels are not known."""
    values = {name: value for name, value in scoring.metrics_of(task, predictions).items() if name in task.metrics}
    if not values:
        return []
    if isinstance(predictions, Logits):
        assert predictions.labels is not None
        found = intervals.of_metrics(task, predictions.predictions(), predictions.labels)
        count = quantity(len(predictions.labels), "example")
        return [(name, f"{_shown(task, name, value, found.get(name))} of {count}") for name, value in values.items()]
    if isinstance(predictions, TagLogits):
        of_first = intervals.ratio_interval(
            *tagging_metrics.parts_of_score(task, predictions, predictions.predictions())
        )
        count = quantity(len(predictions.ids), "text")
        return [
            (name, f"{_shown(task, name, value, of_first if name == task.metrics[0] else None)} of {count}")
            for name, value in values.items()
        ]
    low, high = intervals.mean_interval(scoring.question_f1(predictions))
    of_f1, count = (100 * low, 100 * high), quantity(len(predictions), "question")
    return [
        (name, f"{_shown(task, name, value, of_f1 if name == 'f1' else None)} of {count}")
        for name, value in values.items()
    ]


def _shown(task: Task, name: str, value: float, interval: intervals.Interval | None = None) -> str:
    """A metric with its interval. Accuracies and F1 are in percent, correlations and errors are not."""
    scale = 1.0 if task.is_extractive else 100.0
    if name in ("pearson", "spearman", "matthews", "rmse"):
        bounds = "" if interval is None else f" (95 % interval {interval[0]:.3f} to {interval[1]:.3f})"
        return f"{value:.3f}{bounds}"
    low, high = (None, None) if interval is None else interval
    return percent(value * scale / 100, *(None if bound is None else bound * scale / 100 for bound in (low, high)))
