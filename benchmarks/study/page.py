"""The study's page: what pre-training learned, and every task beside random weights and the majority class."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from benchmarks.study.finetune import Job
from common.files.atomic import replacing
from common.text import markdown_table
from pipeline.analysis.comparison import difference_of, estimate_of
from pipeline.analysis.finished_runs import member_directories, read_predictions
from pipeline.tasks.metrics import Interval
from pipeline.training.metrics_file import read_records

matplotlib.use("Agg")  # no display is needed

RESAMPLES = 1000

Curves = dict[str, list[dict[str, float]]]
"""By corpus, the points of its held-out curve: tokens, seconds, MLM below unigram and SOP accuracy in percent."""


class Record(TypedDict):
    """study.json: everything that the page shows.

    Attributes:
        facts: about the whole, for people.
        seeds: fine-tuning runs of each model on each task.
        tasks: the fields of a `TaskResult` each.
        left_out: names of the tasks that there was no time for.
    """

    format: str
    facts: dict[str, str]
    seeds: int
    curves: Curves
    tasks: list[dict[str, Any]]
    left_out: list[str]


@dataclass(frozen=True)
class TaskResult:
    """A task's first metric on its first dev set, in percent: means over the seeds.

    Attributes:
        settings: of fine-tuning, for people.
        gain: 95 % bootstrap interval of the mean gain over the seeds, in points. Examples and seeds are drawn.
    """

    task: str
    metric: str
    examples: int
    settings: str
    majority: float
    random: float
    trained: float
    gain: Interval

    @property
    def gain_in_words(self) -> str:
        """The gain and its interval, in points."""
        return f"{self.trained - self.random:+.1f} ({self.gain[0]:+.1f} to {self.gain[1]:+.1f})"

    @property
    def verdict(self) -> str:
        """The conclusion that the interval allows."""
        if self.gain[0] > 0:
            return "pre-training helps"
        return "pre-training hurts" if self.gain[1] < 0 else "no difference shown"


def result_of(trained: Job, random: Job) -> TaskResult:
    """Compares the seeds of both starts, seed by seed.

    Each resample draws seeds, and examples that are the same for both starts and for all seeds. So the interval covers
    other dev sets and other runs.
    """
    task = trained.task
    split = task.dev_splits[0]
    seeds = [member_directories(job.out) for job in (trained, random)]
    runs = [[read_predictions(seed, task)[split] for seed in of_start] for of_start in seeds]
    pairs = [difference_of(task, ours, theirs) for ours, theirs in zip(*runs, strict=True)]
    count = pairs[0][1]
    rng = np.random.default_rng(0)
    gains = []
    for _ in range(RESAMPLES):
        rows, drawn = rng.integers(0, count, count), rng.integers(0, len(pairs), len(pairs))
        gains.append(statistics.fmean(pairs[seed][0](rows) for seed in drawn))
    low, high = np.percentile(gains, (2.5, 97.5))
    estimates = [[estimate_of(task, one) for one in of_start] for of_start in runs]
    values = [statistics.fmean(one.value for one in of_start if one is not None) for of_start in estimates]
    first = estimates[0][0]
    assert first is not None, "dev sets have labels"
    return TaskResult(
        task=task.name,
        metric=task.metrics[0],
        examples=count,
        settings=f"{trained.steps:,} steps, {trained.epochs:.1f} epochs",
        majority=first.majority,
        random=values[1],
        trained=values[0],
        gain=(100 * low, 100 * high),
    )


def tasks_table(results: Sequence[TaskResult], seeds: int) -> str:
    """The tasks as a Markdown table."""
    header = ("task", "metric", "examples", "settings", "majority", "random weights", "pre-trained", "gain, 95 %")
    rows = [
        (
            *(one.task, one.metric, f"{one.examples:,}", one.settings),
            *(f"{value:.1f}" for value in (one.majority, one.random, one.trained)),
            *(one.gain_in_words, one.verdict),
        )
        for one in results
    ]
    table = markdown_table((*header, "verdict"), rows, "llrlrrrrl")
    return (
        f"In percent, means of {seeds} seeds. The gain has its 95 % bootstrap interval over examples and seeds.\n\n"
        + table
    )


def curves_of(run: Path, corpora: Sequence[str]) -> Curves:
    """Reads the curves of a run."""
    training = {record["step"]: record for record in read_records(run, "train")}
    found: Curves = {}
    for record in read_records(run, "eval"):
        reached = training[record["step"]]
        for number, corpus in enumerate(corpora):
            prefix = f"{corpus}/" if number else ""
            point = {
                "tokens": reached["tokens"],
                "seconds": reached["seconds"],
                "mlm": 100 * record[f"{prefix}mlm_below_unigram"],
                **{
                    end or "sop": 100 * record[f"{prefix}sop_accuracy{end}"]
                    for end in ("", "_low", "_high")
                    if f"{prefix}sop_accuracy{end}" in record
                },
            }
            found.setdefault(corpus, []).append(point)
    return found


def curves_table(curves: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """The last point of every curve as a Markdown table."""
    rows = []
    for corpus, points in curves.items():
        last = points[-1]
        sop = f"{last['sop']:.1f} ({last['_low']:.1f} to {last['_high']:.1f})" if "sop" in last else "no pairs"
        rows.append((corpus, f"{last['tokens'] / 1e6:,.1f} million", f"{last['mlm']:.1f} %", sop))
    header = ("held-out text", "tokens read", "MLM below the unigram entropy", "SOP accuracy, 95 %")
    return markdown_table(header, rows, "lrrr")


MEASURES = (("mlm", "MLM below the unigram entropy (%)"), ("sop", "SOP accuracy (%)"))


def plot(
    path: Path,
    curves: Mapping[str, Sequence[Mapping[str, float]]],
    measures: Sequence[tuple[str, str]] = MEASURES,
) -> None:
    """Draws two measures of every corpus against tokens and time: SOP accuracy with its 95 % interval."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    grid = figure.subplots(2, 2, sharex="col", sharey="row")
    for row, (name, label) in enumerate(measures):
        for column, (axis, unit, scale) in enumerate((("tokens", "million tokens", 1e6), ("seconds", "minutes", 60.0))):
            axes = grid[row][column]
            for corpus, points in curves.items():
                shown = [point for point in points if name in point]
                reached = [point[axis] / scale for point in shown]
                axes.plot(reached, [point[name] for point in shown], label=corpus)
                if name == "sop":
                    low, high = ([point[end] for point in shown] for end in ("_low", "_high"))
                    axes.fill_between(reached, low, high, alpha=0.15)
            axes.grid(alpha=0.3)
            if column == 0:
                axes.set_ylabel(label)
            if row == 1:
                axes.set_xlabel(unit)
    grid[0][0].legend()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")


def markdown(record: Record) -> str:
    """The page of a record."""
    results = [TaskResult(**one) for one in record["tasks"]]
    facts = [f"- {name}: {value}" for name, value in record["facts"].items()]
    pretraining = curves_table(record["curves"])
    parts = ["# The study", *facts, "", "## Pre-training", "", pretraining, "", "![learning curves](curves.png)", ""]
    parts += ["## Tasks", "", tasks_table(results, record["seeds"]), ""]
    if record["left_out"]:
        parts += [f"The hours did not suffice for {', '.join(record['left_out'])}.", ""]
    return "\n".join(parts)
