"""The study's page: what pre-training learned, minimal pairs, and every task beside random weights and the majority."""

import dataclasses
import importlib.util
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from benchmarks.shared import report
from benchmarks.study.finetune import Job, Pair
from benchmarks.study.plan import Choice
from benchmarks.study.training import Evaluation, Training
from common.files import atomic, outputs
from common.files.json_files import check_as, read_as
from common.intervals import Interval
from common.text import markdown_table
from pipeline.analysis.comparison import difference_of, member_directories, read_predictions
from pipeline.analysis.minimal_pairs import Result
from pipeline.analysis.summary import sustained_speed
from pipeline.settings.settings_file import read_settings
from pipeline.training.metrics_file import read_records

RESAMPLES = 1000
LEFT = 0.9  # of the unigram entropy: a model with a lower loss uses context
MINIMAL_PAIRS, AGAIN = "minimal pairs", "make it again with `python -m pipeline.evaluate minimal-pairs`"
ANCHORS = (
    "BLiMP of published models of the same budget (BabyLM strict-small: 10 million words, about ten passes) on other "
    "text: RoBERTa-base 69.5 (2023), LTG-BERT 60.6 (2024), GPT-BERT 70.4 (2025)."
)

Curves = dict[str, list[dict[str, float]]]
"""By corpus, the points of its held-out curve: tokens, seconds, MLM below unigram and SOP accuracy in percent."""


class Record(TypedDict):
    """study.json: everything that the page shows.

    Attributes:
        facts: about the whole, for people.
        probe: the evaluations of each choice by its name; none if it failed.
        curves: of the held-out text, and the accuracy on minimal pairs.
        minimal_pairs: the fields of a `Result`; None without any.
        seeds: fine-tuning runs of each model on each task.
        tasks: the fields of a `TaskResult` each.
        left_out: names of the tasks that there was no time for.
    """

    format: str
    facts: dict[str, str]
    probe: dict[str, Sequence[tuple[int, float | None, float]]]
    curves: Curves
    minimal_pairs: dict[str, Any] | None
    seeds: int
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
    estimates = [[task.estimate(one) for one in of_start] for of_start in runs]
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
    said = f"In percent, means of {seeds} seeds. The gain has its 95 % bootstrap interval over examples and seeds."
    return f"{said}\n\n{markdown_table((*header, 'verdict'), rows, 'llrlrrrrl')}"


def probe_table(probe: Mapping[str, Sequence[tuple[int, float | None, float]]]) -> str:
    """The runs of the probe as a Markdown table: the loss in the end, and when context began to help."""
    rows = []
    for name, points in probe.items():
        _, loss, entropy = points[-1] if points else (0, None, math.nan)
        left = next((str(step) for step, at, of in points if at is not None and at < LEFT * of), "not reached")
        shown = ("not finite", "") if loss is None else (f"{loss:.3f}", f"{100 * (1 - loss / entropy):.1f} %")
        rows.append((name, *shown, left))
    header = ("optimizer, peak rate, start", "MLM loss", "below the unigram entropy", "steps until 10 % below")
    return markdown_table(header, rows, "lrrr")


def curves_of(run: Path, corpora: Sequence[str]) -> Curves:
    """Reads the curves of a run. The metrics of the first corpus have no prefix."""
    training = {record["step"]: record for record in read_records(run, "train")}
    found: Curves = {}
    for record in read_records(run, "eval"):
        for corpus, prefix in zip(corpora, ("", *(f"{name}/" for name in corpora[1:])), strict=True):
            point = {name: training[record["step"]][name] for name in ("tokens", "seconds")}
            point |= {
                "loss": record[f"{prefix}mlm_loss"],
                "entropy": record[f"{prefix}mlm_unigram_entropy"],
                "mlm": 100 * record[f"{prefix}mlm_below_unigram"],
            }
            ends = {end or "sop": f"{prefix}sop_accuracy{end}" for end in ("", "_low", "_high")}
            point |= {name: 100 * record[key] for name, key in ends.items() if key in record}
            found.setdefault(corpus, []).append(point)
    return found


def curve_of_pairs(run: Path, scores: Path) -> list[dict[str, float]]:
    """The accuracy on minimal pairs at each milestone of a run, and at its end."""
    training = read_records(run, "train")
    steps, *curves = ([record[name] for record in training] for name in ("step", "tokens", "seconds"))
    points = []
    for file in [*sorted(scores.glob("step-*.json")), *scores.glob("export.json")]:
        step = steps[-1] if file.stem == "export" else int(file.stem.partition("-")[2])
        tokens, seconds = (float(np.interp(step, steps, curve)) for curve in curves)
        accuracy = read_as(file, Result, AGAIN).total.accuracy
        points.append({"tokens": tokens, "seconds": seconds, "pairs": 100 * accuracy})
    return points


def curves_table(curves: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """The last point of every curve as a Markdown table."""
    rows = []
    for corpus, points in curves.items():
        last = points[-1]
        sop = f"{last['sop']:.1f} ({last['_low']:.1f} to {last['_high']:.1f})" if "sop" in last else "no pairs"
        loss = (f"{last['loss']:.3f}", f"{last['entropy']:.3f}", f"{last['mlm']:.1f} %")
        rows.append((corpus, f"{last['tokens'] / 1e6:,.1f} million", *loss, sop))
    header = ("held-out text", "tokens read", "MLM loss", "unigram entropy", "below it", "SOP accuracy, 95 %")
    return markdown_table(header, rows, "lrrrrr")


Measures = Sequence[tuple[str, str, float | None]]
"""The key of a point, what it is called, and the value of chance, which is drawn as a line."""

MEASURES = (
    ("mlm", "MLM below the unigram entropy (%)", 0.0),
    ("sop", "SOP accuracy (%)", 50.0),
    ("pairs", "minimal pairs (%)", 50.0),
)


def plot(path: Path, curves: Mapping[str, Sequence[Mapping[str, float]]], measures: Measures = MEASURES) -> None:
    """Draws measures of every corpus against tokens and time: SOP accuracy with its 95 % interval."""
    import matplotlib  # a GPU host may lack it; the page has the figures without the picture
    from matplotlib.figure import Figure

    matplotlib.use("Agg")  # no display is needed
    drawn = [one for one in measures if any(one[0] in point for points in curves.values() for point in points)]
    figure = Figure(figsize=(10, 1 + 3 * len(drawn)), layout="constrained")
    grid = figure.subplots(len(drawn), 2, sharex="col", sharey="row", squeeze=False)
    for row, (name, label, chance) in enumerate(drawn):
        for column, (axis, unit, scale) in enumerate((("tokens", "million tokens", 1e6), ("seconds", "minutes", 60.0))):
            axes = grid[row][column]
            if chance is not None:
                axes.axhline(chance, linestyle="--", color="gray")
            for corpus, points in curves.items():
                shown = [point for point in points if name in point]
                if not shown:
                    continue
                reached = [point[axis] / scale for point in shown]
                axes.plot(reached, [point[name] for point in shown], marker=".", label=corpus)
                if name == "sop":
                    low, high = ([point[end] for point in shown] for end in ("_low", "_high"))
                    axes.fill_between(reached, low, high, alpha=0.15)
            axes.grid(alpha=0.3)
            axes.set_ylabel(label if column == 0 else "")
            axes.set_xlabel(unit if row == len(drawn) - 1 else "")
    grid[0][0].legend()
    with atomic.replacing(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")


def facts_of(training: Training, choice: Choice, dollars: float | None) -> dict[str, str]:
    """What the page says of the whole, for people."""
    plan, run = training.plan, training.out / "pretrain"
    settings, records = read_settings(run), read_records(run, "train")
    minutes, speed = records[-1]["seconds"] / 60, sustained_speed(records)
    model, engine = settings.model, settings.engine
    facts = {
        "model": f"{plan.preset}, {model.num_hidden_layers} layers, hidden size {model.hidden_size}",
        "vocabulary and rows": f"{model.vocab_size:,} pieces, {plan.length} tokens",
        "training": f"{choice.optimizer} at {choice.rate:g}, {plan.batch} rows a batch, {engine.precision}, "
        f"{records[-1]['step']:,} steps, {records[-1]['tokens'] / 1e6:,.1f} million tokens in {minutes:.0f} minutes",
    }
    if speed is not None:
        shares = [record["peak_share"] for record in records if "peak_share" in record]
        share = f", {100 * statistics.median(shares):.0f} % of the data sheet's peak" if shares else ""
        facts["speed"] = f"{speed:,.0f} tokens/s{share}"
    if dollars is not None:
        facts["cost of training"] = f"{dollars * minutes / 60:.2f} dollars at {dollars:g} an hour"
    where = engine.device if engine.device != "CPU" else f"{report.processor()}, {report.cores()} cores"
    versions = report.describe_host("", ("torch", "deepspeed"))["versions"]
    return facts | {"machine": where, "versions": ", ".join(f"{name} {number}" for name, number in versions.items())}


def write(
    training: Training,
    choice: Choice,
    probed: Mapping[Choice, Sequence[Evaluation]],
    pairs: Sequence[Pair],
    left_out: Sequence[str],
    dollars: float | None,
) -> str:
    """Writes OUT/page and returns its text."""
    out = training.out
    curves, scores = curves_of(out / "pretrain", training.evaluated), out / "minimal_pairs"
    if points := curve_of_pairs(out / "pretrain", scores):
        curves[MINIMAL_PAIRS] = points
    final = scores / "export.json"
    record: Record = {
        "format": "study 8",
        "facts": facts_of(training, choice, dollars),
        "probe": {choice.name: of_run for choice, of_run in probed.items()},
        "curves": curves,
        "minimal_pairs": dataclasses.asdict(read_as(final, Result, AGAIN)) if final.exists() else None,
        "seeds": training.plan.seeds,
        "tasks": [dataclasses.asdict(result_of(*pair)) for pair in pairs],
        "left_out": list(left_out),
    }
    words = markdown(record)
    with outputs.making(out / "page", "benchmarks.study") as place:
        atomic.write_text(place / "study.md", words)
        atomic.write_text(place / "study.json", json.dumps(record, indent=1) + "\n")
        if importlib.util.find_spec("matplotlib") is None:
            print("matplotlib is not installed, so there is no curves.png; the same command draws it later")
        else:
            plot(place / "curves.png", curves)
    return words


def markdown(record: Record) -> str:
    """The page of a record."""
    curves = {name: points for name, points in record["curves"].items() if name != MINIMAL_PAIRS}
    lines = ["# The study", "", *(f"- {name}: {value}" for name, value in record["facts"].items())]
    lines += ["", "## The choice", ""]
    lines += ["All made the same number of steps. The lowest MLM loss on the validation documents is taken.", ""]
    lines += [probe_table(record["probe"]), "", "## Pre-training", "", curves_table(curves)]
    lines += ["", "![learning curves](curves.png)", ""]
    if record["minimal_pairs"] is not None:
        result = check_as(record["minimal_pairs"], Result, Path("study.json"), "make it again")
        lines += ["## Minimal pairs", "", result.table(), "", ANCHORS, ""]
    if record["tasks"]:
        lines += ["## Tasks", "", tasks_table([TaskResult(**one) for one in record["tasks"]], record["seeds"]), ""]
    if record["left_out"]:
        lines += [f"The minutes did not suffice for {', '.join(record['left_out'])}.", ""]
    return "\n".join(lines)
