"""The study's page: what pre-training learned, and every task beside random weights and the majority class."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from benchmarks.study.finetune import Job
from common.files.atomic import replacing
from pipeline.analysis.comparison import difference_of, estimate_of
from pipeline.analysis.finished_runs import member_directories, read_predictions
from pipeline.analysis.intervals import Interval
from pipeline.training.reporting.metrics_log import read_records

matplotlib.use("Agg")  # no display is needed

RESAMPLES = 1000

MLM_GOALS = (30, 35)
"""Percent below the unigram entropy."""

WHOLE_EPOCHS = 3
"""Passes over a training set that are usual in fine-tuning."""

MOST_DOUBLINGS = 20
"""A forecast over more doublings of the tokens says nothing."""

Curves = dict[str, list[dict[str, float]]]
"""By corpus, the points of its held-out curve: tokens, seconds, MLM below unigram and SOP accuracy in percent."""


class Record(TypedDict):
    """study.json: everything that the page shows.

    Attributes:
        facts: about the whole, for people.
        seeds: fine-tuning runs of each model on each task.
        tasks: the fields of a `TaskResult` each.
        by_tokens: for one of these tasks, the fields of a `TaskResult` for each checkpoint that was fine-tuned, and the
            tokens that pre-training had read by then. Empty without a sure gain; older records have none.
        left_out: names of the tasks that there was no time for.
    """

    format: str
    facts: dict[str, str]
    seeds: int
    curves: Curves
    tasks: list[dict[str, Any]]
    by_tokens: NotRequired[list[dict[str, Any]]]
    left_out: list[str]


@dataclass(frozen=True)
class TaskResult:
    """A task's first metric on its first dev set, in percent: means over the seeds.

    Attributes:
        settings: of fine-tuning, for people.
        core_hours: that `WHOLE_EPOCHS` epochs of all runs of the page would take, each on one core, at their speed.
        gain: 95 % bootstrap interval of the mean gain over the seeds, in points. Examples and seeds are drawn.
    """

    task: str
    metric: str
    examples: int
    settings: str
    majority: float
    random: float
    trained: float
    core_hours: float
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
    runs = [[dict(read_predictions(seed))[split] for seed in of_start] for of_start in seeds]
    seconds = sum(read_records(seed, "train")[-1]["seconds"] for of_start in seeds for seed in of_start)
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
        settings=f"{trained.learning_rate:g}, {trained.steps:,} steps, {trained.epochs:.1f} epochs",
        majority=first.majority,
        random=values[1],
        trained=values[0],
        core_hours=seconds / 3600 * WHOLE_EPOCHS / trained.epochs,
        gain=(100 * low, 100 * high),
    )


def tasks_table(results: Sequence[TaskResult], seeds: int) -> str:
    """The tasks as a Markdown table."""
    lines = [
        f"In percent, means of {seeds} seeds. The gain has its 95 % bootstrap interval over examples and seeds. The "
        f"hours are those of {WHOLE_EPOCHS} epochs of all these runs on one core, at their speed.",
        "",
        "| task | metric | examples | settings | majority | random weights | pre-trained | gain, 95 % | verdict "
        f"| {WHOLE_EPOCHS} epochs, hours |",
        "|---|---|---:|---|---:|---:|---:|---:|---|---:|",
    ]
    for one in results:
        lines.append(
            f"| {one.task} | {one.metric} | {one.examples:,} | {one.settings} | {one.majority:.1f} | {one.random:.1f} "
            f"| {one.trained:.1f} | {one.gain_in_words} | {one.verdict} | {one.core_hours:.1f} |"
        )
    return "\n".join(lines)


def by_tokens_table(points: Sequence[Mapping[str, Any]]) -> str:
    """What one task gains from more tokens of pre-training, as a Markdown table of at least two points."""
    results = [TaskResult(**{name: one for name, one in point.items() if name != "tokens"}) for point in points]
    lines = [
        f"The gain on {results[0].task}, {results[0].metric}, also of earlier checkpoints. The task was chosen by its "
        "last row, and the learning rate of pre-training was still high at the other rows. Both make the rise look "
        "larger.",
        "",
        "| tokens of pre-training | pre-trained | gain, 95 % |",
        "|---:|---:|---:|",
    ]
    for point, one in zip(points, results, strict=True):
        lines.append(f"| {point['tokens'] / 1e6:,.1f} million | {one.trained:.1f} | {one.gain_in_words} |")
    doublings = np.log2([point["tokens"] for point in points])
    slope = float(np.polyfit(doublings, [one.trained - one.random for one in results], 1)[0])
    lines += ["", f"By least squares, a doubling of the tokens brought {slope:+.1f} points."]
    return "\n".join(lines)


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
    lines = [
        "| held-out text | tokens read | MLM below the unigram entropy | SOP accuracy, 95 % |",
        "|---|---:|---:|---:|",
    ]
    for corpus, points in curves.items():
        last = points[-1]
        sop = f"{last['sop']:.1f} ({last['_low']:.1f} to {last['_high']:.1f})" if "sop" in last else "no pairs"
        lines.append(f"| {corpus} | {last['tokens'] / 1e6:,.1f} million | {last['mlm']:.1f} % | {sop} |")
    return "\n".join(lines)


def forecast_table(curves: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """How many tokens, and hours at the same speed, the goals for the MLM loss would take, as a Markdown table.

    The gain of a doubling of the tokens is the slope of the curve since half of the tokens, by least squares. Later
    doublings bring less in any training, so the tokens are a lower bound.
    """
    lines = [
        "If each further doubling of the tokens brought as much as the last one, the MLM goals would take at least:",
        "",
        f"| held-out text | gain of the last doubling | {' | '.join(f'for {goal} %' for goal in MLM_GOALS)} |",
        "|---|---:|" + "---:|" * len(MLM_GOALS),
    ]
    for corpus, points in curves.items():
        last = points[-1]
        late = [point for point in points if 2 * point["tokens"] >= last["tokens"]]
        slope, cells = 0.0, ["unknown"]
        if len(late) > 1:
            slope = float(np.polyfit(np.log2([point["tokens"] for point in late]), [one["mlm"] for one in late], 1)[0])
            cells = [f"{slope:+.1f} points"]
        for goal in MLM_GOALS:
            doublings = (goal - last["mlm"]) / slope if slope > 0 else math.inf
            if last["mlm"] >= goal:
                cells.append("reached")
            elif doublings < MOST_DOUBLINGS:
                times = 2**doublings
                cells.append(f"{times * last['tokens'] / 1e6:,.0f} million, {times * last['seconds'] / 3600:,.1f} h")
            else:
                cells.append("unknown")
        lines.append(f"| {corpus} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(path: Path, curves: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Draws MLM loss and SOP accuracy (with its 95 % interval) of every corpus against tokens and time."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    grid = figure.subplots(2, 2, sharex="col", sharey="row")
    for row, (name, label) in enumerate((("mlm", "MLM below the unigram entropy (%)"), ("sop", "SOP accuracy (%)"))):
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
    parts += [forecast_table(record["curves"]), ""]
    parts += ["## Tasks", "", tasks_table(results, record["seeds"]), ""]
    if len(record.get("by_tokens", [])) > 1:
        parts += [by_tokens_table(record["by_tokens"]), ""]
    if record["left_out"]:
        parts += [f"The hours did not suffice for {', '.join(record['left_out'])}.", ""]
    return "\n".join(parts)
