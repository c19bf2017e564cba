"""SQuAD and RACE, questions about passages: official files, data sets on the hub, and submissions.

The official files of SQuAD are one JSON object each. Those of RACE are train, dev and test, each with middle/ and high/
and one passage in each file. JSON Lines with one passage of RACE in each line are also read.
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
from pipeline.tasks.files.tables import Row, Table, dataset_rows, load_json, read_text
from pipeline.tasks.kinds.answers import AnswersById
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.task import Examples, Task, TaskFiles

VERSIONS = ("v1.1", "v2.0")
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
    """The layout of SQuAD: train*.json, dev*.json and test*.json.

    Attributes:
        version: one of `VERSIONS`, as in the name of an official file (train-v2.0.json).
    """

    version: str

    table_columns = Columns("question", "context", "answers")

    def find(self, task: Task, directory: Path) -> dict[str, list[Path]]:
        """See `TaskFiles.find`. Files that name the version are preferred to files that name none.

        Raises UserError if several files fit a split and none of them has the official name.
        """
        splits: dict[str, list[Path]] = {}
        for split in ("train", "dev", "test"):
            files = sorted(directory.glob(f"{split}*.json"))
            fitting = [path for path in files if self.version in path.name]
            fitting = fitting or [path for path in files if not any(version in path.name for version in VERSIONS)]
            official = [path for path in fitting if path.stem in (f"{split}-{self.version}", split)]
            if len(fitting) > 1 and not official:
                names = ", ".join(path.name for path in fitting)
                raise UserError(f"{directory} has several files for split {split} of {task.name}: {names}; keep one")
            if fitting:
                splits[split] = [(official or fitting)[0]]
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
        return self._examples(task, place, tuple(rows.column_names), list(dataset_rows(rows, place)), "row")

    def _examples(self, task: Task, source: str, columns: tuple[str, ...], rows: Sequence[Row], unit: str) -> Examples:
        ids = [str(row.get("id")) for row in rows]
        numbers = ids if unit == "question" else range(len(rows))
        table = Table(source, columns, rows, numbers, unit, ids=ids, is_official=True)
        questions = task.kind.read_examples(table, self.table_columns, (), "optional")
        for question in questions if self.version == "v1.1" else ():
            if question.label == ():
                raise UserError(f"{source}: question {question.id} has no answer; use --task squad2, or remove it")
        return questions

    def write_submission(self, task: Task, split: str, predictions: AnswersById, directory: Path) -> None:
        """Writes `{task}_{split}_predictions.json` and, if there are null odds, `{task}_{split}_null_odds.json`."""
        answers = {question: given.answer() for question, given in predictions.items()}
        contents = {"predictions": answers, "null_odds": predictions.null_odds}
        for name, values in contents.items():
            if values:
                _write_json(directory / f"{task.name}_{split}_{name}.json", values)


@dataclass(frozen=True)
class _RacePassage:
    """A passage with its questions. Hidden answers are missing."""

    article: str
    questions: list[str]
    options: list[list[str]]
    answers: list[str] | None = None
    id: str | int | None = None


class RaceFiles(TaskFiles):
    """The files of RACE: SPLIT/**/*.txt, or SPLIT*.jsonl."""

    table_columns = Columns("article", "question", "answer", ("options",))

    def find(self, task: Task, directory: Path) -> dict[str, list[Path]]:
        splits = {}
        for split in ("train", "dev", "test"):
            texts = [path for path, _ in visible_files(directory / split, re.compile(r"\.txt$").search)]
            if files := sorted(texts, key=_order) or sorted(directory.glob(f"{split}*.jsonl")):
                splits[split] = files
        return splits

    def read(self, task: Task, split: str, files: list[Path]) -> Examples:
        examples: list[Any] = []
        for path in files:
            text = read_text(path)
            parts = {(1, f"{path.parent.name}{path.stem}"): text}
            if path.suffix == ".jsonl":
                lines = enumerate(text.split("\n"), start=1)
                parts = {(number, f"{path.stem}-{number}"): line for number, line in lines if line.strip()}
            for (number, name), part in parts.items():
                examples += _questions(task, load_json(part, path, number), str(path), number, name)
        if not examples:
            raise UserError(f"{files[0].parent} holds no question of RACE; get the files again")
        return examples

    def read_dataset(self, task: Task, split: str, rows: Any, place: str) -> Examples:
        """See `TaskFiles.read_dataset`. The columns are those of the data set "race"."""
        asked: Counter[str] = Counter()  # the questions of each passage so far
        questions, ids = list(dataset_rows(rows, place)), []
        for name in (str(row.get("example_id")) for row in questions):
            ids.append(_question_id(name, asked[name]))
            asked[name] += 1
        columns = tuple(rows.column_names)
        table = Table(place, columns, questions, range(len(ids)), "row", ids=ids, is_official=True)
        return task.kind.read_examples(table, self.table_columns, task.labels, "optional")

    def write_submission(self, task: Task, split: str, predictions: Logits, directory: Path) -> None:
        """Writes `{task}_{split}.json`: the name of the chosen option of every question."""
        chosen = dict(zip(predictions.ids.tolist(), task.kind.spell(task, predictions)))
        _write_json(directory / f"{task.name}_{split}.json", chosen)


def _order(path: Path) -> tuple[str, int, str]:
    return path.parent.name, int(path.stem) if path.stem.isdecimal() else 0, path.stem


def _question_id(passage: str, number: int) -> str:
    return f"{passage.removesuffix('.txt')}-{number}"  # the official files hold their own names, "high19088.txt"


def _questions(task: Task, content: Any, source: str, number: int, name: str) -> Examples:
    """The questions of the passage in line `number` of a file. `name` is that of a passage that has no id."""
    place = f"{source}, line {number}"
    passage = check_as(content, _RacePassage, place, f"{_REMEDY}, or remove it", extra="ignore")
    answers: Sequence[str | None] = passage.answers or [None] * len(passage.questions)
    if not len(passage.options) == len(answers) == len(passage.questions):
        raise UserError(f"{place}: the numbers of questions, options and answers differ; remove the passage")
    rows = [
        {"article": passage.article, "question": question, "options": options, "answer": answer}
        for question, options, answer in zip(passage.questions, passage.options, answers)
    ]
    ids = [_question_id(str(name if passage.id is None else passage.id), index) for index in range(len(rows))]
    columns = ("article", "question", "options", "answer")
    table = Table(source, columns, rows, [number] * len(rows), ids=ids, is_official=True)
    return task.kind.read_examples(table, RaceFiles.table_columns, task.labels, "optional")


def _write_json(path: Path, content: Any) -> None:
    atomic.write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
