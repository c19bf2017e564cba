"""Figures with their uncertainty: beside the majority class, and beside the same model from random weights.

What is worked out here comes from the predictions that a run has left (`RUN/logits`), not from its `results.json`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.errors import UserError
from pipeline.tasks import intervals, metrics
from pipeline.tasks.intervals import Interval
from pipeline.tasks.predictions import Answers, Logits
from pipeline.tasks.results import TaskRun, member_directories, read_predictions

RESAMPLES = 1000
Predictions = Logits | dict[str, Answers]


@dataclass(frozen=True)
class Figure:
    """One figure of one split, in percent.

    Attributes:
        value: measured.
        interval: 95 %.
        majority: what one answer to everything would reach.
    """

    value: float
    interval: Interval
    majority: float


@dataclass(frozen=True)
class Comparison:
    """A run's figure beside that of the same model from random weights.

    Attributes:
        task, split, metric, examples: what is compared.
        run: directory of the run.
        figure: of the run.
        random: of the random weights; None where they were not run.
        gain: 95 % interval of what the run has over the random weights, in points, from the same examples drawn again.
    """

    task: str
    split: str
    metric: str
    examples: int
    run: str
    figure: Figure
    random: Figure | None
    gain: Interval | None

    @property
    def verdict(self) -> str:
        """What may be said of it."""
        if self.gain is None:
            return "random weights not run"
        if self.gain[0] > 0:
            return "pre-training helps"
        return "pre-training hurts" if self.gain[1] < 0 else "no difference shown"


def figure_of(task: str, given: Predictions, seed: int = 0) -> Figure | None:
    """The task's first metric on one split (F1 of SQuAD); None where the labels are not known."""
    if isinstance(given, Logits):
        if given.labels is None:
            return None
        name, predictions = metrics.METRICS[task][0], given.predictions()
        value = metrics.compute(task, predictions, given.labels)[name]
        low, high = intervals.of_metrics(task, predictions, given.labels, seed)[name]
        majority = intervals.majority_baseline(task, given.labels)[name]
        return Figure(100 * value, (100 * low, 100 * high), 100 * majority)
    scores = _squad_scores(given)
    if scores is None:
        return None
    gold = {question: answers.gold or () for question, answers in given.items()}
    return Figure(
        100 * float(scores.mean()),
        _percent(intervals.mean_interval(scores, seed)),
        intervals.squad_baseline(gold)["f1"],
    )


def gain_of(task: str, first: Predictions, second: Predictions, seed: int = 0) -> Interval:
    """95 % bootstrap interval of the figure of `first` less that of `second`, in points.

    Both are judged on the same draws of the examples, so what is hard for either does not widen the interval.

    Raises:
        ValueError: the two do not hold the same examples.
    """
    judge, examples = _paired(task, first, second)
    generator = np.random.default_rng(seed)
    gains = [judge(generator.integers(0, examples, examples)) for _ in range(RESAMPLES)]
    low, high = np.percentile(gains, (2.5, 97.5))
    return 100 * float(low), 100 * float(high)


def _paired(task: str, first: Predictions, second: Predictions) -> tuple[Callable[[NDArray[np.int64]], float], int]:
    """A function from rows (N,) of the examples to the difference of the two figures, and N."""
    if isinstance(first, Logits) and isinstance(second, Logits):
        labels = first.labels
        mine, others = first.predictions(), second.aligned(first.ids).predictions()
        if labels is None:
            raise ValueError("the labels are not known")
        name = metrics.METRICS[task][0]
        if name == "accuracy":
            gains = (mine == labels).astype(np.float64) - (others == labels)  # (N,)
            return lambda rows: float(gains[rows].mean()), len(labels)
        # Matthews is Pearson's correlation of two classes, and scikit-learn's takes ten times as long.
        figure = metrics.FUNCTIONS["pearson" if name == "matthews" else name]
        return lambda rows: figure(mine[rows], labels[rows]) - figure(others[rows], labels[rows]), len(labels)
    if isinstance(first, Logits) or isinstance(second, Logits) or first.keys() != second.keys():
        raise ValueError("the questions are not the same")
    own, other = _squad_scores(first), _squad_scores({question: second[question] for question in first})
    if own is None or other is None:
        raise ValueError("the answers are not known")
    differences = own - other
    return lambda rows: float(differences[rows].mean()), len(differences)


def _squad_scores(given: Mapping[str, Answers]) -> NDArray[np.float64] | None:
    """(N,) F1 of every question at the default threshold; None where answers are not known."""
    if not given or any(answers.gold is None for answers in given.values()):
        return None
    predictions = {question: answers.answer() for question, answers in given.items()}
    gold = {question: answers.gold or () for question, answers in given.items()}
    return np.array([f1 for _, f1 in metrics.squad_scores(predictions, gold).values()])


def _percent(interval: Interval) -> Interval:
    return 100 * interval[0], 100 * interval[1]


def compare(runs: Sequence[TaskRun], random: Sequence[TaskRun]) -> list[Comparison]:
    """Every labelled split of `runs` beside that of the run of the same task in `random`, the first seed of each.

    Raises UserError where a run holds no logits, or the two runs of a task were judged on other examples.
    """
    untrained: dict[str, dict[str, Predictions]] = {}
    for run in random:
        untrained.setdefault(run.task, dict(read_predictions(member_directories(run.directory)[0])))
    found = []
    for run in runs:
        for split, given in read_predictions(member_directories(run.directory)[0]):
            figure, beside = figure_of(run.task, given), untrained.get(run.task, {}).get(split)
            if figure is None:
                continue
            try:
                gain = None if beside is None else gain_of(run.task, given, beside)
            except ValueError as error:
                raise UserError(f"{run.directory} and the random weights differ on {split}: {error}") from None
            found.append(
                Comparison(
                    task=run.task,
                    split=split,
                    metric="f1" if run.task.startswith("squad") else metrics.METRICS[run.task][0],
                    examples=len(given.ids) if isinstance(given, Logits) else len(given),
                    run=str(run.directory),
                    figure=figure,
                    random=None if beside is None else figure_of(run.task, beside),
                    gain=gain,
                )
            )
    return found


def markdown(comparisons: Sequence[Comparison]) -> str:
    """The comparisons as a Markdown table, figures in percent."""
    lines = [
        "| task | split | examples | metric | majority class | random weights | pre-trained | gain, 95 % | verdict |",
        "|---|---|---:|---|---:|---:|---:|---:|---|",
    ]
    for one in comparisons:
        random = "not run" if one.random is None else _with_interval(one.random)
        gain = "" if one.gain is None else f"{one.gain[0]:+.1f} to {one.gain[1]:+.1f}"
        lines.append(
            f"| {one.task} | {one.split} | {one.examples:,} | {one.metric} | {one.figure.majority:.1f} | {random} "
            f"| {_with_interval(one.figure)} | {gain} | {one.verdict} |"
        )
    return "\n".join(lines) + "\n"


def _with_interval(figure: Figure) -> str:
    return f"{figure.value:.1f} ({figure.interval[0]:.1f} to {figure.interval[1]:.1f})"


def as_json(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The comparisons as plain values."""
    return [
        {
            "task": one.task,
            "split": one.split,
            "metric": one.metric,
            "examples": one.examples,
            "run": one.run,
            "majority": one.figure.majority,
            "value": one.figure.value,
            "interval": list(one.figure.interval),
            "random": None if one.random is None else one.random.value,
            "random_interval": None if one.random is None else list(one.random.interval),
            "gain_interval": None if one.gain is None else list(one.gain),
            "verdict": one.verdict,
        }
        for one in comparisons
    ]
