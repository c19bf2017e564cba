"""The official files of SQuAD 1.1 and 2.0: one JSON object in each file."""

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from pipeline.tasks.examples import Passage, Question, load_json, read_text, text_of
from pipeline.tasks.task import Columns, Task

VERSIONS = ("v1.1", "v2.0")


@dataclass(frozen=True)
class SquadFiles:
    """The layout of SQuAD: train*.json, dev*.json and test*.json.

    Attributes:
        version: one of `VERSIONS`, as in the name of an official file (train-v2.0.json).
    """

    version: str

    @property
    def archives(self) -> tuple[str, ...]:
        """See `OfficialFiles.archives`."""
        return ("squad", "SQuAD", f"squad{self.version[1]}", ".")

    @property
    def table_columns(self) -> Columns:
        """See `OfficialFiles.table_columns`."""
        return Columns("question", "context", "answers")

    def find(self, task: Task, directory: Path) -> dict[str, list[Path]]:
        """See `OfficialFiles.find`. Files that name the version are preferred to files that name none.

        Raises UserError if several files fit a split and none of them has the official name.
        """
        found: dict[str, list[Path]] = {}
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
                found[split] = [(official or fitting)[0]]
        return found

    def read(self, task: Task, split: str, files: list[Path]) -> list[Question]:
        """See `OfficialFiles.read`. Each split is one file.

        Raises:
            UserError: broken JSON, a missing field, an answer that is not at its place in the passage, an id that
                occurs twice, or a SQuAD 1.1 question without an answer; it names file and line.
        """
        (path,) = files
        text = read_text(path)
        content = load_json(text, path)
        questions: list[Question] = []
        seen: set[str] = set()
        for record, passage in _records(content, path):
            question = _question(record, passage, path, text)
            if problem := problem_of(task, question):
                raise UserError(f"{_place(path, text, question.id)}: {problem}")
            if question.id in seen:
                place = _place(path, text, question.id)
                raise UserError(f"{place}: the id {question.id!r} occurs twice; correct the file")
            seen.add(question.id)
            questions.append(question)
        if not questions:
            raise UserError(f"{path} holds no question; get the file again")
        return questions


def _records(content: Any, path: Path) -> Iterator[tuple[Any, Passage]]:
    place = str(path)
    try:
        for number, article in enumerate(content["data"], start=1):
            for paragraph_number, paragraph in enumerate(article["paragraphs"], start=1):
                place = f"{path}, article {number}, paragraph {paragraph_number}"
                passage = Passage(text_of(paragraph["context"], "the context", place))
                for record in paragraph["qas"]:
                    yield record, passage
    except (KeyError, TypeError) as error:
        missing = error.args[0] if isinstance(error, KeyError) else "data"
        raise UserError(f"{place}: it has no {missing!r} where SQuAD has it; check --data and --task") from None


def _question(record: Any, passage: Passage, path: Path, text: str) -> Question:
    try:
        identity = str(record["id"])
        place = functools.partial(_place, path, text, identity)
        question = text_of(record["question"], f"the text of question {identity}", place)
        labelled = "answers" in record
        answers = tuple(
            (text_of(answer["text"], f"an answer to question {identity}", place), int(answer["answer_start"]))
            for answer in record.get("answers", ())
        )
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        missing = error.args[0] if isinstance(error, KeyError) else "answers"
        name = record.get("id", "without an id") if isinstance(record, dict) else record
        where = _place(path, text, str(name))
        raise UserError(f"{where}: question {name} has no proper {missing!r}; correct it") from None
    if record.get("is_impossible", False):
        answers = ()
    return Question(identity, question, passage, answers, labelled)


def problem_of(task: Task, question: Question) -> str:
    """The error in a question's answers, with what to do about it; "" if they are right."""
    for answer, start in question.answers:
        if not answer:
            return f"question {question.id} has an answer without text; remove it"
        there = question.passage.text[max(0, start) :][: len(answer)]
        if start < 0 or there != answer:
            return (
                f"question {question.id} says that {answer!r} is at character {start} of its passage, where {there!r} "
                "is; correct answer_start, or get the file again"
            )
    if task.kind == "spans" and question.labelled and not question.answers:
        return f"question {question.id} has no answer; use --task squad2, or remove it"
    return ""


def _place(path: Path, text: str, identity: str) -> str:
    """The file and the line of the last question with this id; the file alone if no line has it."""
    spellings = {identity, json.dumps(identity), json.dumps(identity, ensure_ascii=False)}
    matches = list(re.finditer(rf'"id"\s*:\s*({"|".join(map(re.escape, spellings))})\s*[,}}]', text))
    return f"{path}, line {text.count(chr(10), 0, matches[-1].start(1)) + 1}" if matches else str(path)
