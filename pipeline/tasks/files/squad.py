"""SQuAD 1.1 and 2.0: official files, one JSON object in each, data sets on the hub, and submissions."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import atomic
from common.files.json_files import check_as
from pipeline.tasks.files.tables import load_json, read_text
from pipeline.tasks.kinds.answers import AnswersById, Passage, Question, wrong_place
from pipeline.tasks.task import Columns, Task, TaskFiles

VERSIONS = ("v1.1", "v2.0")


@dataclass(frozen=True)
class _Answer:
    text: str
    answer_start: int


@dataclass(frozen=True)
class _Record:
    """A question in an official file. Hidden answers are missing."""

    id: str | int
    question: str
    answers: list[_Answer] | None = None
    is_impossible: bool = False

    def question_about(self, passage: Passage) -> Question:
        """The question; plausible answers to an unanswerable one are left out."""
        answers = () if self.is_impossible else tuple((one.text, one.answer_start) for one in self.answers or ())
        return Question(str(self.id), self.question, passage, answers, self.answers is not None)


@dataclass(frozen=True)
class _Paragraph:
    context: str
    qas: list[_Record]


@dataclass(frozen=True)
class _Article:
    paragraphs: list[_Paragraph]


@dataclass(frozen=True)
class _File:
    data: list[_Article]


@dataclass(frozen=True, kw_only=True)
class _HubRow(_Record):
    """A question on the hub."""

    context: str


@dataclass(frozen=True)
class SquadFiles(TaskFiles):
    """The layout of SQuAD: train*.json, dev*.json and test*.json.

    Attributes:
        version: one of `VERSIONS`, as in the name of an official file (train-v2.0.json).
    """

    version: str

    table_columns = Columns("question", "context", "answers")

    @property
    def archives(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `TaskFiles`."""
        return ("squad", "SQuAD", f"squad{self.version[1]}", ".")

    def find(self, task: Task, directory: Path) -> dict[str, list[Path]]:
        """See `TaskFiles.find`. Files that name the version are preferred to files that name none.

        Raises UserError if several files fit a split and none of them has the official name.
        """
        splits: dict[str, list[Path]] = {}
        for split in ("train", "dev", "test"):
            files = sorted(directory.glob(f"{split}*.json"))
            of_version = [path for path in files if self.version in path.name]
            of_no_version = [path for path in files if not any(version in path.name for version in VERSIONS)]
            fitting = of_version or of_no_version
            official = [path for path in fitting if path.stem in (f"{split}-{self.version}", split)]
            if len(fitting) > 1 and not official:
                names = ", ".join(path.name for path in fitting)
                raise UserError(f"{directory} has several files for split {split} of {task.name}: {names}; keep one")
            if fitting:
                splits[split] = [(official or fitting)[0]]
        return splits

    def read(self, task: Task, split: str, files: list[Path]) -> list[Question]:
        """See `TaskFiles.read`. Each split is one file.

        Raises:
            UserError: broken JSON, a missing field, an answer that is not at its place in the passage, an id that
                occurs twice, or a SQuAD 1.1 question without an answer; it names the file and the field or question.
        """
        (path,) = files
        content = check_as(load_json(read_text(path), path), _File, path, "check --data and --task", extra="ignore")
        questions = [
            self._checked(record.question_about(passage), str(path))
            for article in content.data
            for paragraph in article.paragraphs
            for passage in [Passage(paragraph.context)]
            for record in paragraph.qas
        ]
        if not questions:
            raise UserError(f"{path} holds no question; get the file again")
        return questions

    def is_official(self, path: Path) -> bool:
        """Whether it is a JSON object over several lines or with "data", and not an object in each line."""
        if path.suffix.lower() != ".json":
            return False
        text = read_text(path)
        lines = [line for line in text.split("\n") if line.strip()]
        return text.lstrip()[:1] == "{" and (len(lines) != 1 or "data" in load_json(text, path))

    def read_dataset(self, task: Task, split: str, rows: Any, place: str) -> list[Question]:
        """See `TaskFiles.read_dataset`. The columns are those of the data sets "squad" and "squad_v2"."""
        passages: dict[str, Passage] = {}
        questions = []
        for number, row in enumerate(rows):
            here = f"{place}, row {number}"
            answers = row.get("answers")
            if isinstance(answers, dict):  # two lists; the official file has one list of pairs
                pairs = zip(*(answers.get(name) or () for name in ("text", "answer_start")))
                answers = [{"text": text, "answer_start": start} for text, start in pairs]
            content = {**row, "answers": answers}
            found = check_as(content, _HubRow, here, "correct it, or check --data", extra="ignore")
            passage = passages.setdefault(found.context, Passage(found.context))
            questions.append(self._checked(found.question_about(passage), here))
        return questions

    def _checked(self, question: Question, place: str) -> Question:
        """Returns a question. Raises UserError, which names `place`, for wrong answers."""
        here = f"{place}: question {question.id}"
        for answer, start in question.answers:
            if wrong := wrong_place(question.passage.text, answer, start):
                raise UserError(f"{here} {wrong}, or get the file again")
        if self.version == "v1.1" and question.labelled and not question.answers:
            raise UserError(f"{here} has no answer; use --task squad2, or remove it")
        return question

    def write_submission(self, task: Task, split: str, predictions: AnswersById, directory: Path) -> list[Path]:
        """Writes `{task}_{split}_predictions.json` and, if there are null odds, `{task}_{split}_null_odds.json`."""
        answers = {question: given.answer() for question, given in predictions.items()}
        contents = {"predictions": answers, "null_odds": predictions.null_odds}
        written = {
            directory / f"{task.name}_{split}_{name}.json": values for name, values in contents.items() if values
        }
        for path, values in written.items():
            atomic.write_text(path, json.dumps(values, ensure_ascii=False, indent=1) + "\n")
        return list(written)
