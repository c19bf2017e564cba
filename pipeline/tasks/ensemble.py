"""Several runs' predictions made into one (section 4.9 of the paper, the ensembles of Tables 9 and 10)."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_prep import atomic
from data_prep.errors import UserError
from pipeline.tasks import metrics, submissions
from pipeline.tasks.predictions import Answers, Logits, Span, save_answers
from pipeline.tasks.results import RESULTS, TaskRun, member_directories, read_json, read_predictions


def average_logits(members: Sequence[Logits]) -> Logits:
    """The mean of the members' logits, example by example, whatever their order.

    Raises ValueError if the members do not hold the same examples with the same labels and as many logits each.
    """
    first = members[0]
    aligned = [first, *(member.aligned(first.ids) for member in members[1:])]
    for member in aligned[1:]:
        if member.logits.shape != first.logits.shape:
            raise ValueError(f"logits are {member.logits.shape} and {first.logits.shape}")
        if first.labels is not None and member.labels is not None and not np.array_equal(first.labels, member.labels):
            raise ValueError("the labels differ")
    mean = np.stack([member.logits for member in aligned]).mean(axis=0, dtype=np.float64)  # (N, C)
    return Logits(first.ids, mean.astype(np.float32), first.labels, first.levels)


def average_answers(members: Sequence[dict[str, Answers]]) -> dict[str, Answers]:
    """The mean probability of every span over the members, and their mean null score.

    A member's probabilities are the softmax over its own n-best list; a span that it does not list has none. (The
    paper averages over those that list the span; then a span that one model alone believes in would win over one
    that all agree on.)

    Raises ValueError if the members do not hold the same questions.
    """
    questions = members[0].keys()
    if any(member.keys() != questions for member in members[1:]):
        raise ValueError("the questions are not the same in all runs")
    return {question: _average([member[question] for member in members]) for question in questions}


def _average(given: Sequence[Answers]) -> Answers:
    shares: dict[tuple[int, int, str], float] = defaultdict(float)
    for member in given:
        highest = max((span.score for span in member.nbest), default=0.0)
        weights = [math.exp(span.score - highest) for span in member.nbest]
        for span, weight in zip(member.nbest, weights):
            shares[span.start, span.end, span.text] += weight / math.fsum(weights) / len(given)
    nbest = [Span(text, start, end, math.log(share)) for (start, end, text), share in shares.items() if share > 0]
    nulls = [member.null_score for member in given if member.null_score is not None]
    return Answers(
        nbest=tuple(sorted(nbest, key=lambda span: (-span.score, span.start, span.end))),
        null_score=math.fsum(nulls) / len(nulls) if nulls else None,
        gold=given[0].gold,
    )


def metrics_of(task: str, given: Logits | Mapping[str, Answers]) -> dict[str, float]:
    """The figures of one split; empty where its labels are not known."""
    if isinstance(given, Logits):
        if given.labels is None:
            return {}
        predictions = given.predictions()
        if given.levels is not None:
            return metrics.race(predictions, given.labels, given.levels.tolist())
        return metrics.compute(task, predictions, given.labels)
    if any(answers.gold is None for answers in given.values()):
        return {}
    gold = {question: answers.gold or () for question, answers in given.items()}
    odds = submissions.squad_null_odds(given) or None
    spans = {question: answers.best() for question, answers in given.items()}
    return metrics.squad(spans, gold, odds, version="1.1" if odds is None else "2.0", threshold=0.0)


def write_ensembles(runs: Sequence[TaskRun], out: Path) -> list[dict[str, Any]]:
    """Averages the runs of each task, with all their seeds, into `out/TASK`, a run like its members.

    `out/TASK` gets `results.json`, `logits/` and `submission/`. Runs that are ensembles themselves are passed over.

    Returns:
        What the `results.json` say, a task each.
    Raises:
        UserError: a run without logits, runs of one task that do not fit together, or a run where an ensemble would be.
    """
    by_task: dict[str, list[TaskRun]] = defaultdict(list)
    for run in runs:
        if not run.members:
            by_task[run.task].append(run)
    for task in by_task:
        if (out / task / RESULTS).exists() and "ensemble" not in read_json(out / task / RESULTS):
            raise UserError(f"{out / task} holds a run that is no ensemble; choose another --out")
    return [_write_ensemble(task, members, out / task) for task, members in by_task.items()]


def _write_ensemble(task: str, runs: Sequence[TaskRun], out: Path) -> dict[str, Any]:
    directories = [member for run in runs for member in member_directories(run.directory)]
    splits: dict[str, list[Logits | dict[str, Answers]]] = defaultdict(list)
    for directory in directories:
        for split, given in read_predictions(directory):
            splits[split].append(given)
    results: dict[str, Any] = {
        "task": task,
        "ensemble": [str(run.directory.absolute()) for run in runs],
        "members": len(directories),
        "init": None,
        "examples": {},
        "metrics": {},
    }
    with atomic.replacing_directory(out) as place:
        (place / "logits").mkdir()
        (place / "submission").mkdir()
        for split, members in splits.items():
            if len(members) < len(directories):
                continue  # not every member predicted it
            try:
                mean = _average_members(members)
            except ValueError as error:
                names = ", ".join(map(str, directories))
                raise UserError(f"{task}: {error} in split {split} of {names}; average runs of the same data") from None
            if isinstance(mean, Logits):
                mean.save(place / "logits" / f"{split}.npz")
                submissions.write_logits(task, split, mean, place / "submission")
            else:
                save_answers(place / "logits" / f"{split}.json", mean)
                submissions.write_answers(task, split, mean, place / "submission")
            results["examples"][split] = len(mean.ids) if isinstance(mean, Logits) else len(mean)
            if figures := metrics_of(task, mean):
                results["metrics"][split] = figures
        atomic.write_text(place / RESULTS, json.dumps(results, indent=1) + "\n")
    return results


def _average_members(members: Sequence[Logits | dict[str, Answers]]) -> Logits | dict[str, Answers]:
    logits = [member for member in members if isinstance(member, Logits)]
    answers = [member for member in members if not isinstance(member, Logits)]
    if logits and answers:
        raise ValueError("logits and answers to questions cannot be averaged")
    return average_logits(logits) if logits else average_answers(answers)
