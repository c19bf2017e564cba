"""Predictions as the leaderboards take them.

GLUE: one TSV a test set, header "index<TAB>prediction", labels by name; together in a zip file they are a submission.
SQuAD: {question: answer} as JSON, and {question: null odds} for version 2.0. RACE: {question: "A" to "D"} as JSON.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from data_prep import atomic
from data_prep.errors import UserError
from pipeline.tasks.predictions import Answers, Logits

GLUE_FILES: dict[str, dict[str, str]] = {
    "cola": {"test": "CoLA.tsv"},
    "sst2": {"test": "SST-2.tsv"},
    "mrpc": {"test": "MRPC.tsv"},
    "stsb": {"test": "STS-B.tsv"},
    "qqp": {"test": "QQP.tsv"},
    "mnli": {"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"},
    "qnli": {"test": "QNLI.tsv"},
    "rte": {"test": "RTE.tsv"},
    "wnli": {"test": "WNLI.tsv"},
}
"""The file of each task's test sets, by split."""

_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
LABELS: dict[str, tuple[str, ...]] = {
    "cola": _BINARY,
    "sst2": _BINARY,
    "mrpc": _BINARY,
    "qqp": _BINARY,
    "mnli": ("contradiction", "entailment", "neutral"),
    "qnli": _ENTAILMENT,
    "rte": _ENTAILMENT,
    "wnli": _BINARY,
    "race": ("A", "B", "C", "D"),
}
"""The names of a task's classes, in the order of the logits."""

MOST_SIMILAR = 5.0


def glue_tsv(task: str, logits: Logits) -> str:
    """The rows of a GLUE test set by rising index; of STS-B the similarity, cut to 0 to 5.

    Raises UserError for ids that are not the whole numbers of the test files' index column.
    """
    try:
        numbers = logits.ids.astype(np.int64)
    except ValueError:
        raise UserError(
            f"{task}: the examples' ids are not the index of a GLUE test file; predict its test.tsv"
        ) from None
    predictions = logits.predictions()
    if task == "stsb":
        written = [f"{value:.3f}" for value in np.clip(predictions, 0.0, MOST_SIMILAR)]
    else:
        written = [LABELS[task][label] for label in predictions]
    rows = sorted(zip(numbers.tolist(), written))
    return "".join(["index\tprediction\n", *(f"{index}\t{prediction}\n" for index, prediction in rows)])


def race_answers(logits: Logits) -> dict[str, str]:
    """The letter of the chosen option of every question."""
    return dict(zip(logits.ids.tolist(), (LABELS["race"][option] for option in logits.predictions())))


def squad_predictions(answers: Mapping[str, Answers], threshold: float = 0.0) -> dict[str, str]:
    """The answer to every question, "" where the null score is above `threshold`."""
    return {question: given.answer(threshold) for question, given in answers.items()}


def squad_null_odds(answers: Mapping[str, Answers]) -> dict[str, float]:
    """The log-odds that a question has no answer, of those that have such a score."""
    return {question: given.null_score for question, given in answers.items() if given.null_score is not None}


def write_logits(task: str, split: str, logits: Logits, directory: Path) -> list[Path]:
    """Writes the submission of one split of GLUE or RACE into `directory`; nothing for a split that none is made of."""
    if task == "race":
        return [_write_json(directory / f"race_{split}.json", race_answers(logits))]
    name = GLUE_FILES[task].get(split)
    if name is None:
        return []
    atomic.write_text(directory / name, glue_tsv(task, logits))
    return [directory / name]


def write_answers(
    task: str, split: str, answers: Mapping[str, Answers], directory: Path, threshold: float = 0.0
) -> list[Path]:
    """Writes the predictions of one split of SQuAD, and the null odds where there are any, into `directory`."""
    prefix = f"{task}_{split}"
    written = [_write_json(directory / f"{prefix}_predictions.json", squad_predictions(answers, threshold))]
    if odds := squad_null_odds(answers):
        written.append(_write_json(directory / f"{prefix}_null_odds.json", odds))
    return written


def _write_json(path: Path, value: object) -> Path:
    atomic.write_text(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    return path
