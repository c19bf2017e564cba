"""One picture of a pre-training run: losses and sentence order over the steps."""

import os
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from common.errors import UserError
from common.files.atomic import replacing
from common.files.places import check_directory
from pipeline.checkpoint.run_records import PretrainRecord, read_record
from pipeline.training import metrics_file

matplotlib.use("Agg")  # no display is needed
SIZE, DOTS_PER_INCH = (10, 4), 100
_MARK = "albert-pretraining curves"
"""Stands in each picture, in the field Software: only such a file is replaced."""


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


def curves_of(run: Path) -> Figure:
    """The MLM loss, and the accuracy of the sentence task with its 95 % interval, over the steps.

    Raises:
        UserError: the directory holds no pre-training run, or no record of training.
    """
    record = read_record(run)
    training, evaluations = (metrics_file.read_records(run, split) for split in ("train", "eval"))
    if not isinstance(record, PretrainRecord) or not training:
        raise UserError(f"{run} has no curves: it is no pre-training run, or has logged no step")
    figure = Figure(figsize=SIZE, layout="constrained")
    losses, accuracies = figure.subplots(1, 2)
    losses.plot(*_points(training, "mlm_loss"), label="training")
    losses.plot(*_points(evaluations, "mlm_loss"), marker="o", label="held out")
    if entropies := _points(evaluations, "mlm_unigram_entropy")[1]:
        losses.axhline(entropies[-1], linestyle="--", color="gray", label="unigram entropy")
    losses.set(xlabel="steps", ylabel="MLM loss (nats)")
    name = f"{record.objective}_accuracy"
    steps, middle = _points(evaluations, name)
    low, high = (_points(evaluations, f"{name}_{end}")[1] for end in ("low", "high"))
    reach = [[at - end for at, end in zip(middle, low)], [end - at for at, end in zip(middle, high)]]
    accuracies.errorbar(steps, middle, yerr=reach, marker="o", capsize=3, label="held out, with its 95 % interval")
    accuracies.axhline(0.5, linestyle="--", color="gray", label="chance")
    accuracies.set(xlabel="steps", ylabel=f"{record.objective.upper()} accuracy")
    for axes in (losses, accuracies):
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def _points(records: list[dict[str, float]], name: str) -> tuple[list[float], list[float]]:
    """The steps and the values of the records that have this number."""
    having = [record for record in records if record.get(name) is not None]
    return [record["step"] for record in having], [record[name] for record in having]
