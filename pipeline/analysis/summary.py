"""The table of one run, and its speed."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.text import quantity
from pipeline.analysis.comparison import TaskRun, read_run
from pipeline.checkpoint.results import RESULTS
from pipeline.data.mixture import names_of
from pipeline.settings.run_settings import PretrainSettings
from pipeline.settings.settings_file import read_settings
from pipeline.training import metrics_file
from pipeline.training.evaluations import parts_of

_OF_HELD_OUT = ("mlm_loss", "mlm_unigram_entropy", "mlm_accuracy", "predictions")
"""What each held-out set has, whatever the objective."""


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


def summarise(directory: Path, export: Path) -> str:
    """A short table of a run. Of pre-training: its last evaluation, its speed, and its files; see `_of_fine_tuning`.

    UserError: the directory holds no run, a fine-tuning run that has not ended, or no evaluation on held-out rows.
    """
    if (directory / RESULTS).exists():
        return _of_fine_tuning(read_run(directory))
    settings = read_settings(directory)
    if not isinstance(settings, PretrainSettings):
        raise UserError(
            f"{directory} is a fine-tuning run that has not ended; its metrics so far are in "
            f"{directory / metrics_file.METRICS}"
        )
    training, evaluations = (metrics_file.read_records(directory, split) for split in ("train", "eval"))
    if not evaluations or (speed := sustained_speed(training)) is None:
        raise UserError(f"{directory} has not been evaluated or has no speed; train it on with --eval-data DIR")

    def last(name: str, records: Sequence[Mapping[str, Any]] = evaluations) -> float:
        return next((record[name] for record in reversed(records) if record.get(name) is not None), math.nan)

    step = max(training[-1]["step"], evaluations[-1]["step"])
    rows = {"steps": f"{step:,} of {settings.steps:,}, {last('tokens', training):,.0f} tokens"}
    newest = {
        key: last(key) for key in dict.fromkeys(key for record in evaluations for key in record if key != "split")
    }
    for name, metrics in parts_of(newest, names_of_held_out(settings)).items():
        metrics_file.check_numbers(directory, metrics, _OF_HELD_OUT)
        rows |= _of_held_out(name or "held-out", metrics, settings.objective)
    rows["training speed"] = f"{speed:,.0f} tokens/s in {settings.engine.precision}"
    rows["time"] = f"{last('seconds', training):.0f} s on {quantity(settings.engine.world_size, 'rank')}"
    rows |= {"run": str(directory), "exported model": str(export)}
    return "\n".join([*_lines(rows), "", "to see the curves:", f"  tensorboard --logdir {directory / 'tensorboard'}"])


def names_of_held_out(settings: PretrainSettings) -> Sequence[str]:
    """The names of the held-out sets of a run, if there are several: their metrics begin with them."""
    directories = settings.flags.eval_data
    return names_of(directories) if len(directories) > 1 else ()


def _of_held_out(name: str, metrics: Mapping[str, float], objective: str) -> dict[str, str]:
    """The rows of one held-out set."""
    loss, entropy = metrics["mlm_loss"], metrics["mlm_unigram_entropy"]
    distance = f"{100 * abs(1 - loss / entropy):.1f} % {'below' if loss <= entropy else 'above'}" if entropy else "?"
    rows = {
        f"{name} MLM loss": f"{loss:.3f} nats, {distance} the unigram entropy {entropy:.3f}",
        f"{name} MLM accuracy": f"{100 * metrics['mlm_accuracy']:.1f} % of {metrics['predictions']:,.0f} tokens",
    }
    for task in (objective, "nsp" if objective == "sop" else "sop"):  # both, as in Table 5 of the paper
        value, low, high = (100 * metrics.get(f"{task}_accuracy{end}", math.nan) for end in ("", "_low", "_high"))
        if not math.isnan(value):
            pairs = metrics.get("pairs", math.nan)
            interval = f"95 % interval {low:.1f} to {high:.1f}"
            rows[f"{name} {task.upper()} accuracy"] = f"{value:.1f} % ({interval}) of {pairs:,.0f} pairs"
    return rows


def _of_fine_tuning(run: TaskRun) -> str:
    """A table of a fine-tuning run that has ended: its metrics, of several seeds their median and spread."""
    results, spread = run.results, run.results.spread or {}
    weights = "random" if results.random_weights else results.init
    rows = {"task": run.task.name, "initial weights": weights}
    if results.seeds:
        rows["seeds"] = f"{len(results.seeds)}: the median, and the lowest and the highest"
    if results.steps:
        rows["steps"] = f"{results.steps:,}, the best is {results.best_step}"
    for split, metrics in run.metrics.items():
        for name, value in metrics.items():
            reach = [f"{end:.4g}" for end in spread.get(split, {}).get(name, ())]
            rows[f"{split} {name}"] = f"{value:.4g}" + (f" ({' to '.join(reach)})" if reach else "")
    rows["run"] = str(run.directory)
    lines = _lines(rows)
    return "\n".join([*lines, "", "with intervals:", f"  python -m pipeline.evaluate compare --runs {run.directory}"])


def _lines(rows: Mapping[str, object]) -> list[str]:
    return [f"{name:<24}{value}" for name, value in rows.items()]
