"""The table of one run, and the speed of a run."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.text import quantity
from pipeline.analysis.finished_runs import TaskRun, read_run
from pipeline.checkpoint.run_records import RESULTS, PretrainRecord, read_record
from pipeline.training import metrics_file


def sustained_speed(training: Sequence[Mapping[str, Any]]) -> float | None:
    """Tokens a second of all training since the first record, evaluations and saves left out; None if unknown.

    The speed of each record is that of its interval. A mean of speeds would count a short interval like a long one.
    """
    tokens = seconds = 0.0
    for record in training:
        so_far, speed = record.get("tokens"), record.get("tokens_per_second")
        if so_far and speed and so_far > tokens:
            seconds += (so_far - tokens) / speed
            tokens = so_far
    return tokens / seconds if seconds else None


def summarise(directory: Path, export: Path, curves: Path | None = None) -> str:
    """A short table of a run. Of pre-training: its last evaluation, its speed, and its files; see `_of_fine_tuning`.

    Args:
        export: where the exported model is.
        curves: where a picture of the curves is, if there is one.
    Raises:
        UserError: the directory holds no run, a fine-tuning run that has not ended, or a run without an evaluation on
            held-out rows.
    """
    if (directory / RESULTS).exists():
        return _of_fine_tuning(read_run(directory))
    record = read_record(directory)
    if not isinstance(record, PretrainRecord):
        raise UserError(
            f"{directory} is a fine-tuning run that has not ended; its metrics so far are in "
            f"{directory / metrics_file.METRICS}"
        )
    training, evaluations = (metrics_file.read_records(directory, split) for split in ("train", "eval"))
    if not evaluations or (speed := sustained_speed(training)) is None:
        raise UserError(f"{directory} has not been evaluated or has no speed; train it on with --eval-data DIR")

    def last(name: str, records: Sequence[Mapping[str, Any]] = evaluations) -> float:
        return next((record[name] for record in reversed(records) if record.get(name) is not None), math.nan)

    objective, step = record.objective, max(training[-1]["step"], evaluations[-1]["step"])
    loss, entropy = last("mlm_loss"), last("mlm_unigram_entropy")
    distance = f"{100 * abs(1 - loss / entropy):.1f} % {'below' if loss <= entropy else 'above'}" if entropy else "?"
    rows = {
        "steps": f"{step:,} of {record.steps:,}, {last('tokens', training):,.0f} tokens",
        "held-out MLM loss": f"{loss:.3f} nats, {distance} the unigram entropy {entropy:.3f}",
        "held-out MLM accuracy": f"{100 * last('mlm_accuracy'):.1f} % of {last('predictions'):,.0f} tokens",
    }
    if not math.isnan(last(f"{objective}_accuracy")):
        value, low, high = (100 * last(f"{objective}_accuracy{end}") for end in ("", "_low", "_high"))
        rows[f"held-out {objective.upper()} accuracy"] = (
            f"{value:.1f} % (95 % interval {low:.1f} to {high:.1f}) of {last('pairs'):,.0f} pairs"
        )
    rows["training speed"] = f"{speed:,.0f} tokens/s in {record.precision}"
    rows["time"] = f"{last('seconds', training):.0f} s on {quantity(record.world_size, 'rank')}"
    rows |= {"run": str(directory), "exported model": str(export)}
    rows |= {} if curves is None else {"curves": str(curves)}
    return "\n".join([*_lines(rows), "", "to see the curves:", f"  tensorboard --logdir {directory / 'tensorboard'}"])


def _of_fine_tuning(run: TaskRun) -> str:
    """A table of a fine-tuning run that has ended: its metrics, of several seeds their median and spread."""
    results, spread = run.results, run.results.get("spread") or {}
    weights = "random" if results.get("random_weights") else results.get("init")
    rows = {"task": run.task.name, "initial weights": weights}
    if seeds := results.get("seeds"):
        rows["seeds"] = f"{len(seeds)}: the median, and the lowest and the highest"
    if steps := results.get("steps"):
        rows["steps"] = f"{steps:,}, the best is {results.get('best_step')}"
    for split, metrics in run.metrics.items():
        for name, value in metrics.items():
            reach = [f"{end:.4g}" for end in spread.get(split, {}).get(name, ())]
            rows[f"{split} {name}"] = f"{value:.4g}" + (f" ({' to '.join(reach)})" if reach else "")
    rows["run"] = str(run.directory)
    lines = _lines(rows)
    return "\n".join([*lines, "", "with intervals:", f"  python -m pipeline.evaluate compare --runs {run.directory}"])


def _lines(rows: Mapping[str, object]) -> list[str]:
    return [f"{name:<24}{value}" for name, value in rows.items()]
