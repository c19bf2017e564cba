"""The formats in which the leaderboards take predictions.

GLUE: one TSV for each test set, with the header "index<TAB>prediction" and labels by name; the TSVs of all tasks in a
zip file are a submission. SQuAD: {question: answer} as JSON, and {question: null odds} for version 2.0. RACE:
{question: "A" to "D"} as JSON. Tasks on the user's own files: an object for each example, as JSON Lines.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.errors import UserError
from common.files import atomic
from pipeline.tasks.predictions import Logits, Predictions, null_odds, squad_answers
from pipeline.tasks.readable import records
from pipeline.tasks.task import Task


@dataclass(frozen=True)
class GlueSubmission:
    """The TSVs of a GLUE task.

    Attributes:
        files: the name of the file of each split that is submitted.
    """

    files: Mapping[str, str]

    def write(self, task: Task, split: str, predictions: Predictions, directory: Path) -> list[Path]:
        """Writes the TSV of `split`; nothing for a split that is not submitted.

        Raises UserError for ids that are not integers, the index column of the test files.
        """
        if split not in self.files or not isinstance(predictions, Logits):
            return []
        path = directory / self.files[split]
        atomic.write_text(path, glue_tsv(task, predictions))
        return [path]


@dataclass(frozen=True)
class RaceSubmission:
    """The JSON of a task with options: the name of the chosen option of every question."""

    def write(self, task: Task, split: str, predictions: Predictions, directory: Path) -> list[Path]:
        """Writes `{task}_{split}.json`."""
        if not isinstance(predictions, Logits):
            return []
        chosen = (task.labels[option] for option in predictions.predictions())
        return [_write_json(directory / f"{task.name}_{split}.json", dict(zip(predictions.ids.tolist(), chosen)))]


@dataclass(frozen=True)
class SquadSubmission:
    """The JSONs of SQuAD: the answers, and the null odds if the model has any."""

    def write(self, task: Task, split: str, predictions: Predictions, directory: Path) -> list[Path]:
        """Writes `{task}_{split}_predictions.json` and, if there are null odds, `{task}_{split}_null_odds.json`."""
        if not isinstance(predictions, dict):
            return []
        prefix = f"{task.name}_{split}"
        answers = squad_answers(predictions)
        written = [_write_json(directory / f"{prefix}_predictions.json", answers)]
        if odds := null_odds(predictions):
            written.append(_write_json(directory / f"{prefix}_null_odds.json", odds))
        return written


@dataclass(frozen=True)
class PredictionLines:
    """The JSON Lines of a task on the user's own files: one object for each example, see `readable.records`."""

    def write(self, task: Task, split: str, predictions: Predictions, directory: Path) -> list[Path]:
        """Writes `{split}.jsonl`, in the order of the rows, whose numbers from 0 are the ids."""
        path = directory / f"{split}.jsonl"
        found = records(task, predictions)
        order = sorted(found, key=int) if all(name.isdecimal() for name in found) else list(found)
        lines = [json.dumps({"id": name, **found[name]}, ensure_ascii=False) + "\n" for name in order]
        atomic.write_text(path, "".join(lines))
        return [path]


def glue_tsv(task: Task, logits: Logits) -> str:
    """The TSV of a GLUE test set, by rising index; a regression's number is cut to the task's range.

    Raises UserError for ids that are not integers, the index column of the test files.
    """
    try:
        numbers = logits.ids.astype(np.int64)
    except ValueError:
        raise UserError(
            f"{task.name}: the examples' ids are not the index of a GLUE test file; predict its test.tsv"
        ) from None
    predictions = logits.predictions()
    if task.kind == "regression":
        written = [f"{value:.3f}" for value in np.clip(predictions, *task.value_range)]
    else:
        written = [task.labels[label] for label in predictions]
    rows = sorted(zip(numbers.tolist(), written))
    return "".join(["index\tprediction\n", *(f"{index}\t{prediction}\n" for index, prediction in rows)])


def _write_json(path: Path, value: object) -> Path:
    atomic.write_text(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    return path
