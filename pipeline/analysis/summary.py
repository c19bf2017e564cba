"""The table of one run, its speed, and a picture of its curves."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import UserError
from common.files.atomic import replacing
from common.files.places import check_directory
from common.text import printable, quantity
from pipeline.analysis.comparison import TaskRun, read_run
from pipeline.checkpoint.run_directory import RESULTS
from pipeline.data.mixture import names_of
from pipeline.settings.run_settings import PretrainSettings
from pipeline.settings.settings_file import read_settings
from pipeline.training import metrics_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DISTANCE = re.compile(r"loss$|distil_")  # from the teacher
_OF_HELD_OUT = ("mlm_loss", "mlm_unigram_entropy", "mlm_accuracy", "predictions")
"""What each held-out set has, whatever the objective."""
SIZE, DOTS_PER_INCH = (10, 4), 100
_MARK = "albert-pretraining curves"  # stands in each picture, in the field Software: only such a file is replaced


def sustained_speed(training: Sequence[Mapping[str, Any]]) -> float | None:
    """Tokens a second of all training of a run, evaluations and saves left out; None if unknown.

    The speed of each record is that of its interval. A mean of speeds would count a short interval like a long one.
    """
    first = tokens = seconds = 0.0
    for number, record in enumerate(training):
        so_far, speed = record.get("tokens"), record.get("tokens_per_second")
        if so_far and number == 0:  # what was read before it is of the run that a branch has left
            first = tokens = so_far - (record.get("interval_tokens") or so_far)
        if so_far and speed and so_far > tokens:
            seconds += (so_far - tokens) / speed
            tokens = so_far
    return (tokens - first) / seconds if seconds else None


def summarise(directory: Path, export: Path, curves: Path | None = None) -> str:
    """A short table of a run, which names the exported model, and the picture of the curves if there is one.

    Raises UserError: the directory holds no run, or one of fine-tuning that has not ended, or has logged no speed.
    """
    if (directory / RESULTS).exists():
        return _of_fine_tuning(read_run(directory))
    settings = read_settings(directory)
    if not isinstance(settings, PretrainSettings):
        so_far = directory / metrics_file.METRICS
        raise UserError(f"{directory} is a fine-tuning run that has not ended; its metrics so far are in {so_far}")
    records = metrics_file.read_records(directory, "train", "eval", "save")
    training, evaluations = ([one for one in records if one["split"] == split] for split in ("train", "eval"))
    if (speed := sustained_speed(training)) is None:
        raise UserError(f"{directory} has no speed yet; give more --steps")

    def last(name: str, records: Sequence[Mapping[str, Any]] = evaluations) -> float:
        return next((record[name] for record in reversed(records) if record.get(name) is not None), math.nan)

    step = max(one["step"] for one in records)  # a save is logged after later steps
    logged = f" by step {training[-1]['step']:,}" * (training[-1]["step"] < step)
    rows = {"steps": f"{step:,} of {settings.steps:,}, {last('tokens', training):,.0f} tokens{logged}"}
    if not evaluations:
        rows["training loss"] = f"{last('loss', training):.3f} (not evaluated yet, or no --eval-data)"
    elif evaluations[-1]["step"] < step:
        rows["evaluated at step"] = f"{evaluations[-1]['step']:,}"
    newest = {key: last(key) for key in dict.fromkeys(key for one in evaluations for key in one if key != "split")}
    for name, metrics in metrics_file.parts_of(newest, names_of_held_out(settings)).items() if newest else ():
        if settings.distilled is not None:
            rows |= {f"{name or 'held-out'} {key}": f"{metrics[key]:.4f}" for key in metrics if _DISTANCE.match(key)}
            continue
        metrics_file.check_numbers(directory, metrics, _OF_HELD_OUT)
        rows |= _of_held_out(name or "held-out", metrics, settings.objective)
    rows["training speed"] = f"{speed:,.0f} tokens/s in {settings.engine.precision}"
    rows["time"] = f"{last('seconds', training):.0f} s on {quantity(settings.engine.world_size, 'rank')}"
    rows |= {"run": str(directory)} | ({"exported model": str(export)} if export.is_dir() else {})
    rows |= {} if curves is None else {"curves": str(curves)}
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
    for task in sorted(("nsp", "sop"), key=lambda task: task != objective):  # both, as in Table 5 of the paper
        value, low, high = (100 * metrics.get(f"{task}_accuracy{end}", math.nan) for end in ("", "_low", "_high"))
        if not math.isnan(value):
            pairs = metrics.get("pairs", math.nan)
            interval = f"95 % interval {low:.1f} to {high:.1f}" + ", not trained" * (task != objective)
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
    for split, metrics in results.scores.items():
        for name, value in metrics.items():
            reach = [f"{end:.4g}" for end in spread.get(split, {}).get(name, ())]
            rows[f"{split} {name}"] = f"{value:.4g}" + (f" ({' to '.join(reach)})" if reach else "")
    rows["run"] = str(run.directory)
    return "\n".join([*_lines(rows), "", f"with intervals: python -m pipeline.evaluate compare --runs {run.directory}"])


def _lines(rows: Mapping[str, object]) -> list[str]:
    width = max(24, *(len(name) + 2 for name in rows))
    return [f"{printable(name):<{width}}{printable(value)}" for name, value in rows.items()]


def draw_curves(run: Path, file: Path) -> None:
    """Writes `curves_of` a run as a PNG. Raises UserError: see there, or `file` exists and is no such picture."""
    check_directory(file.parent, "--curves")
    if not file.parent.is_dir():
        raise UserError(f"--curves {file}: there is no directory {file.parent}; make it")
    if os.path.lexists(file) and not (file.is_file() and _MARK.encode() in file.read_bytes()[:1000]):
        raise UserError(f"--curves {file} exists and is no picture of this command; choose another name")
    figure = curves_of(run)
    with replacing(file) as temporary:
        figure.savefig(temporary, dpi=DOTS_PER_INCH, format="png", metadata={"Software": _MARK})


def curves_of(run: Path) -> "Figure":
    """The MLM loss, and the accuracy of the sentence task with its 95 % interval, over the steps.

    Raises UserError: the directory holds no pre-training run, or no record of training.
    """
    os.environ["MPLBACKEND"] = "agg"  # no display is needed; one that matplotlib does not know is an error
    from matplotlib.figure import Figure  # half a second that a table need not wait

    settings = read_settings(run)
    training, evaluations = (metrics_file.read_records(run, split) for split in ("train", "eval"))
    if not isinstance(settings, PretrainSettings) or settings.distilled is not None or not training:
        raise UserError(f"{run} has no curves: it has no MLM loss, or has logged no step; see TensorBoard")
    figure = Figure(figsize=SIZE, layout="constrained")
    losses, accuracies = figure.subplots(1, 2)
    losses.plot(*_points(training, "mlm_loss"), label="training")
    losses.set(xlabel="steps", ylabel="MLM loss (nats)")
    for number, name in enumerate((names_of_held_out(settings) or ("",)) if evaluations else ()):
        prefix, held_out = f"{name}/" * (number > 0), f"held out{name and f', {name}'}"
        (line,) = losses.plot(*_points(evaluations, f"{prefix}mlm_loss"), marker="o", label=held_out)
        color = line.get_color()
        if entropies := _points(evaluations, f"{prefix}mlm_unigram_entropy")[1]:
            entropy = f"the unigram entropy{name and ' of each'}" if number == 0 else None
            losses.axhline(entropies[-1], linestyle="--", color=color, alpha=0.5, label=entropy)
        key = f"{prefix}{settings.objective}_accuracy"
        steps, middle, low, high = _points(evaluations, key, f"{key}_low", f"{key}_high")
        reach = [[at - end for at, end in zip(middle, low)], [end - at for at, end in zip(middle, high)]]
        interval = f"{held_out}, with its 95 % interval"
        accuracies.errorbar(steps, middle, yerr=reach, marker="o", capsize=3, color=color, label=interval)
    accuracies.plot(*_points(training, f"{settings.objective}_accuracy"), alpha=0.3, label="training")
    accuracies.axhline(0.5, linestyle="--", color="gray", label="chance")
    accuracies.set(xlabel="steps", ylabel=f"{settings.objective.upper()} accuracy")
    for axes in (losses, accuracies):
        axes.grid(alpha=0.3)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize="small")  # above: it hides no point
    return figure


def _points(records: list[dict[str, float]], *names: str) -> list[list[float]]:
    """The steps, and the values by name, of the records that have all these numbers."""
    having = [record for record in records if all(record.get(name) is not None for name in names)]
    return [[record[name] for record in having] for name in ("step", *names)]
