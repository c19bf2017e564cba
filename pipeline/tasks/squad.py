"""The official files of SQuAD 1.1 and 2.0: one JSON object each."""

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_prep.errors import UserError
from pipeline.tasks.examples import Passage, Question, read_text, text_of
from pipeline.tasks.task import Task

VERSIONS = {"squad1": "v1.1", "squad2": "v2.0"}


def find_files(task: Task, directory: Path) -> dict[str, Path]:
    """train*.json, dev*.json and test*.json in `directory`, those that name the task's version first, by split.

    Raises UserError where several may be meant, of which none has the official name (train-v2.0.json).
    """
    found: dict[str, Path] = {}
    for split in ("train", "dev", "test"):
        files = sorted(directory.glob(f"{split}*.json"))
        of_version = [path for path in files if VERSIONS[task.name] in path.name]
        others = [path for path in files if not any(version in path.name for version in VERSIONS.values())]
        fitting = of_version or others
        official = [path for path in fitting if path.stem in (f"{split}-{VERSIONS[task.name]}", split)]
        if len(fitting) > 1 and not official:
            names = ", ".join(path.name for path in fitting)
            raise UserError(f"{directory} has several files for split {split} of {task.name}: {names}; keep one")
        if fitting:
            found[split] = (official or fitting)[0]
    return found


def read(task: Task, path: Path) -> list[Question]:
    """The questions of one file.

    Raises:
        UserError: broken JSON, a field that is missing, an answer that is not where the file says, in SQuAD 1.1 a
            question without one, an id that occurs twice; it names file and line.
    """
    text = read_text(path)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: broken JSON ({error.msg}); get the file again") from None
    questions: list[Question] = []
    seen: set[str] = set()
    for record, passage in _records(content, path):
        question = _question(record, passage, path, text)
        if problem := problem_of(task, question):
            raise UserError(f"{_place(path, text, question.id)}: {problem}")
        if question.id in seen:
            raise UserError(f"{_place(path, text, question.id)}: the id {question.id!r} occurs twice; mend the file")
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
    except (KeyError, TypeError, ValueError) as error:
        name = record.get("id", "without an id") if isinstance(record, dict) else record
        raise UserError(f"{_place(path, text, str(name))}: question {name} has no proper {error}; mend it") from None
    if record.get("is_impossible", False):
        answers = ()
    return Question(identity, question, passage, answers, labelled)


def problem_of(task: Task, question: Question) -> str:
    """What is wrong with the answers of a question of the task, and what to do; "" where nothing is."""
    for answer, start in question.answers:
        if not answer:
            return f"question {question.id} has an answer without text; remove it"
        there = question.passage.text[max(0, start) :][: len(answer)]
        if start < 0 or there != answer:
            return (
                f"question {question.id} says that {answer!r} is at character {start} of its passage, where {there!r} "
                "is; mend answer_start, or get the file again"
            )
    if task.name == "squad1" and question.labelled and not question.answers:
        return f"question {question.id} has no answer; use --task squad2, or remove it"
    return ""


def _place(path: Path, text: str, identity: str) -> str:
    """The file and the line of the last question with this id; the file alone where it has none."""
    spellings = {identity, json.dumps(identity), json.dumps(identity, ensure_ascii=False)}
    matches = list(re.finditer(rf'"id"\s*:\s*({"|".join(map(re.escape, spellings))})\s*[,}}]', text))
    return f"{path}, line {text.count(chr(10), 0, matches[-1].start(1)) + 1}" if matches else str(path)
