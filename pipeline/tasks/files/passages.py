"""SQuAD and RACE, questions about passages: official files, data sets on the hub, and submissions.

The official files of SQuAD are one JSON object each. Those of RACE are train, dev and test, each with middle/ and high/
and one passage in each file.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import atomic
from common.files.json_files import check_as
from data_prep.sources.opening import visible_files
from pipeline.tasks.files.rows import Columns
from pipeline.tasks.files.tables import Row, Table, load_json, read_text
from pipeline.tasks.kinds.answers import AnswersById
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.task import Examples, Task, TaskFiles

_REMEDY = "check --data and --task"


@dataclass(frozen=True)
class _Paragraph:
    context: str
    qas: list[dict[str, Any]]


@dataclass(frozen=True)
class _Article:
    paragraphs: list[_Paragraph]


@dataclass(frozen=True)
class _SquadFile:
    data: list[_Article]


@dataclass(frozen=True)
class SquadFiles(TaskFiles):
    """The layout of SQuAD: SPLIT-VERSION.json, or SPLIT.json, for train, dev and test; VERSION is v1.1 or v2.0."""

    version: str

    table_columns = Columns("question", "context", "answers")

    @property
    def archives(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("squad", "SQuAD", f"squad{self.version[1]}", ".")

    def find(self, task: Task, directory: Path) -> dict[str, list[Path]]:
        splits = {}
        for split in ("train", "dev", "test"):
            places = (directory / f"{split}-{self.version}.json", directory / f"{split}.json")
            if files := [path for path in places if path.is_file()]:
                splits[split] = files[:1]
        return splits

    def read(self, task: Task, split: str, files: list[Path]) -> Examples:
        """See `TaskFiles.read`. Each split is one file. Plausible answers to unanswerable questions are left out."""
        (path,) = files
        content = check_as(load_json(read_text(path), path), _SquadFile, path, _REMEDY, extra="ignore")
        rows = [
            {**question, "context": paragraph.context} | ({"answers": []} if question.get("is_impossible") else {})
            for article in content.data
            for paragraph in article.paragraphs
            for question in paragraph.qas
        ]
        if not rows:
            raise UserError(f"{path} holds no question; get the file again")
        columns = ("id", "question", "context", *(["answers"] if any("answers" in row for row in rows) else []))
        return self._examples(task, str(path), columns, rows, "question")

    def read_dataset(self, task: Task, split: str, rows: Any, place: str) -> Examples:
        """See `TaskFiles.read_dataset`. The columns are those of the data sets "squad" and "squad_v2"."""
        return self._examples(task, place, tuple(rows.column_names), list(rows), "row")

    def _examples(self, task: Task, source: str, columns: tuple[str, ...], rows: Sequence[Row], unit: str) -> Examples:
        ids = [str(row.get("id")) for row in rows]
        numbers = ids if unit == "question" else range(len(rows))
        table = Table(source, columns, rows, numbers, unit, ids=ids, is_official=True)
        questions = task.kind.read_examples(table, self.table_columns, (), "optional")
        for question in questions if self.version == "v1.1" else ():
            if question.label == ():
                raise UserError(f"{source}: question {question.id} has no answer; use --task squad2, or remove it")
        return questions

    def write_submission(self, task: Task, split: str, predictions: AnswersById, directory: Path) -> list[Path]:
        """Writes `{task}_{split}_predictions.json` and, if there are null odds, `{task}_{split}_null_odds.json`."""
        answers = {question: given.answer() for question, given in predictions.items()}
        contents = {"predictions": answers, "null_odds": predictions.null_odds}
        return [
            _write_json(directory / f"{task.name}_{split}_{name}.json", values)
            for name, values in contents.items()
            if values
        ]


@dataclass(frozen=True)
class _RacePassage:
    """A passage with its questions. Hidden answers are missing."""

    article: str
    questions: list[str]
    options: list[list[str]]
    answers: list[str] | None = None
    id: str | int | None = None


class RaceFiles(TaskFiles):
    """The files of RACE: SPLIT/**/*.txt."""

    archives = ("race", "RACE", ".")
    table_columns = Columns("article", "question", "answer", ("options",))

    def find(self, task: Task, directory: Path) -> dict[str, list[Path]]:
        splits = {}
        for split in ("train", "dev", "test"):
            if texts := [path for path, _ in visible_files(directory / split, re.compile(r"\.txt$").search)]:
                splits[split] = sorted(texts, key=_order)
        return splits

    def read(self, task: Task, split: str, files: list[Path]) -> Examples:
        examples = [question for path in files for question in _questions(task, path)]
        if not examples:
            raise UserError(f"{files[0].parent} holds no question of RACE; get the files again")
        return examples

    def read_dataset(self, task: Task, split: str, rows: Any, place: str) -> Examples:
        """See `TaskFiles.read_dataset`. The columns are those of the data set "race"."""
        asked: Counter[str] = Counter()  # the questions of each passage so far
        ids = []
        questions = list(rows)
        for row in questions:
            name = str(row.get("example_id"))
            ids.append(_question_id(name, asked[name]))
            asked[name] += 1
        columns = tuple(rows.column_names)
        table = Table(place, columns, questions, range(len(ids)), "row", ids=ids, is_official=True)
        return task.kind.read_examples(table, self.table_columns, task.labels, "optional")

    def write_submission(self, task: Task, split: str, predictions: Logits, directory: Path) -> list[Path]:
        """Writes `{task}_{split}.json`: the name of the chosen option of every question."""
        chosen = dict(zip(predictions.ids.tolist(), task.kind.spell(task, predictions)))
        return [_write_json(directory / f"{task.name}_{split}.json", chosen)]


def _order(path: Path) -> tuple[str, int, str]:
    return path.parent.name, int(path.stem) if path.stem.isdecimal() else 0, path.stem


def _question_id(passage: str, number: int) -> str:
    return f"{passage.removesuffix('.txt')}-{number}"  # the official files hold their own names, "high19088.txt"


def _questions(task: Task, path: Path) -> Examples:
    """The questions of the passage in a file."""
    passage = check_as(load_json(read_text(path), path), _RacePassage, path, _REMEDY, extra="ignore")
    answers: Sequence[str | None] = passage.answers or [None] * len(passage.questions)
    if not len(passage.options) == len(answers) == len(passage.questions):
        raise UserError(f"{path}: the numbers of questions, options and answers differ; remove the passage")
    rows = [
        {"article": passage.article, "question": question, "options": options, "answer": answer}
        for question, options, answer in zip(passage.questions, passage.options, answers)
    ]
    name = f"{path.parent.name}{path.stem}" if passage.id is None else str(passage.id)
    ids = [_question_id(name, index) for index in range(len(rows))]
    columns = ("article", "question", "options", "answer")
    table = Table(str(path), columns, rows, [1] * len(rows), ids=ids, is_official=True)
    return task.kind.read_examples(table, RaceFiles.table_columns, task.labels, "optional")


def _write_json(path: Path, content: Any) -> Path:
    atomic.write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return path
