"""Averages the predictions of several runs (section 4.9 of the paper, the ensembles of Tables 9 and 10)."""

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from common.errors import UserError
from common.files import atomic, owned
from pipeline.analysis.finished_runs import TaskRun, member_directories, read_predictions
from pipeline.checkpoint.run_records import RESULTS, read_results
from pipeline.tasks.own import record_of
from pipeline.tasks.predictions import Answers, Logits, Predictions, Span, TagLogits, count, save_predictions
from pipeline.tasks.scoring import metrics_of
from pipeline.tasks.task import Task

TOOL = "pipeline.evaluate ensemble"
"""What the marker of an ensemble names as its writer."""


L = TypeVar("L", Logits, TagLogits)


def average_logits(members: Sequence[L]) -> L:
    """The mean of the members' logits of each example; the members may hold the examples in any order.

    Raises ValueError if the members differ in their examples, labels or numbers of logits.
    """
    first: L = members[0]
    aligned = [first, *(member.aligned(first.ids) for member in members[1:])]
    for member in aligned[1:]:
        if member.logits.shape != first.logits.shape:
            raise ValueError(f"logits are {member.logits.shape} and {first.logits.shape}")
        if first.labels is not None and member.labels is not None and not np.array_equal(first.labels, member.labels):
            raise ValueError("the labels differ")
        if isinstance(first, TagLogits) and isinstance(member, TagLogits):
            first.check_same_lengths(member)
    mean = np.stack([member.logits for member in aligned]).mean(axis=0, dtype=np.float64)  # (N, C)
    return dataclasses.replace(first, logits=mean.astype(np.float32))


def average_answers(members: Sequence[dict[str, Answers]]) -> dict[str, Answers]:
    """The mean probability of every span over the members, and the mean of their null scores.

    The probabilities of a member are the softmax over its own n-best list. A member that does not list a span
    contributes zero. (The paper averages over the members that list the span. Then a span that only one model lists
    can win over a span that all models agree on.)

    Raises ValueError if the members do not hold the same questions.
    """
    questions = members[0].keys()
    if any(member.keys() != questions for member in members[1:]):
        raise ValueError("the questions are not the same in all runs")
    return {question: _average([member[question] for member in members]) for question in questions}


def _average(members: Sequence[Answers]) -> Answers:
    probabilities: dict[tuple[int, int, str], float] = defaultdict(float)
    for member in members:
        highest = max((span.score for span in member.nbest), default=0.0)
        weights = [math.exp(span.score - highest) for span in member.nbest]
        for span, weight in zip(member.nbest, weights):
            probabilities[span.start, span.end, span.text] += weight / math.fsum(weights) / len(members)
    nbest = [
        Span(text, start, end, math.log(probability))
        for (start, end, text), probability in probabilities.items()
        if probability > 0
    ]
    nulls = [member.null_score for member in members if member.null_score is not None]
    return Answers(
        nbest=tuple(sorted(nbest, key=lambda span: (-span.score, span.start, span.end))),
        null_score=math.fsum(nulls) / len(nulls) if nulls else None,
        gold=members[0].gold,
    )


def write_ensembles(runs: Sequence[TaskRun], out: Path) -> list[dict[str, Any]]:
    """Averages the runs of each task, with all their seeds, into `out/TASK`, which is laid out like a run.

    `out/TASK` gets `results.json`, `logits/` and `submission/`. Runs that are ensembles themselves are left out.

    Returns:
        The content of each `results.json`.
    Raises:
        UserError: there is no run, a run has no logits, its task is unknown, runs of one task do not fit together, or
            `out/TASK` holds a run that is not an ensemble.
    """
    by_task: dict[str, list[TaskRun]] = defaultdict(list)
    for run in runs:
        if not run.members:
            by_task[run.task.name].append(run)
    if not by_task:
        raise UserError("--runs holds no run to average; name --output directories of pipeline.finetune")
    for name in by_task:
        if (out / name / RESULTS).exists() and "ensemble" not in read_results(out / name / RESULTS):
            raise UserError(f"{out / name} holds a run that is no ensemble; choose another --out")
        owned.check_replaceable(out / name, TOOL)
    for name, (first, *others) in by_task.items():
        if other := next((run for run in others if run.task != first.task), None):
            raise UserError(
                f"{first.directory} and {other.directory} are different tasks called {name}; name them with "
                "--task-name, or average runs of the same data"
            )
    return [_write_ensemble(members[0].task, members, out / name) for name, members in by_task.items()]


def _write_ensemble(task: Task, runs: Sequence[TaskRun], out: Path) -> dict[str, Any]:
    directories = [member for run in runs for member in member_directories(run.directory)]
    splits: dict[str, list[Predictions]] = defaultdict(list)
    for directory in directories:
        for split, predictions in read_predictions(directory):
            splits[split].append(predictions)
    results: dict[str, Any] = {
        "task": task.name,
        **record_of(task),
        "ensemble": [str(run.directory.absolute()) for run in runs],
        "members": len(directories),
        "init": None,
        "examples": {},
        "metrics": {},
    }
    with owned.replacing_directory(out, TOOL) as place:
        (place / "logits").mkdir()
        (place / "submission").mkdir()
        for split, members in splits.items():
            if len(members) < len(directories):
                continue  # not every member predicted it
            try:
                mean = _average_members(members)
            except ValueError as error:
                names = ", ".join(map(str, directories))
                raise UserError(
                    f"{task.name}: {error} in split {split} of {names}; average runs of the same data"
                ) from None
            save_predictions(place / "logits", split, mean)
            if task.submission is not None:
                task.submission.write(task, split, mean, place / "submission")
            results["examples"][split] = count(mean)
            if metrics := metrics_of(task, mean):
                results["metrics"][split] = metrics
        atomic.write_text(place / RESULTS, json.dumps(results, indent=1) + "\n")
    return results


def _average_members(members: Sequence[Predictions]) -> Predictions:
    logits = [member for member in members if isinstance(member, Logits)]
    tags = [member for member in members if isinstance(member, TagLogits)]
    answers = [member for member in members if isinstance(member, dict)]
    if len(members) not in (len(logits), len(tags), len(answers)):
        raise ValueError("predictions of different kinds cannot be averaged")
    if tags:
        return average_logits(tags)
    return average_logits(logits) if logits else average_answers(answers)
