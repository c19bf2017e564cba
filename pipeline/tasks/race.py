"""The official files of RACE: train, dev and test, each with middle/ and high/, a passage a file; or one a line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_prep.errors import UserError
from pipeline.tasks.examples import ChoiceExample, class_of, read_text, text_of
from pipeline.tasks.task import Task

LEVELS = ("middle", "high")


def find_files(directory: Path) -> dict[str, list[Path]]:
    """The files of each split: SPLIT/**/*.txt, or SPLIT*.jsonl."""
    found = {}
    for split in ("train", "dev", "test"):
        files = sorted((directory / split).rglob("*.txt"), key=_order) or sorted(directory.glob(f"{split}*.jsonl"))
        if files:
            found[split] = files
    return found


def _order(path: Path) -> tuple[str, int, str]:
    return path.parent.name, int(path.stem) if path.stem.isdecimal() else 0, path.stem


def read(task: Task, files: list[Path]) -> list[ChoiceExample]:
    """The questions of one split's files.

    Raises:
        UserError: broken JSON, a field that is missing, an answer that is no letter of an option; it names file and
            line.
    """
    examples: list[ChoiceExample] = []
    for path in files:
        if path.suffix == ".jsonl":
            for number, line in enumerate(read_text(path).split("\n"), start=1):
                if line.strip():
                    examples += _questions(task, line, path, number, f"{path.stem}-{number}")
        else:
            examples += _questions(task, read_text(path), path, 1, f"{path.parent.name}{path.stem}")
    if not examples:
        raise UserError(f"{files[0].parent} holds no question of RACE; get the files again")
    return examples


def _questions(task: Task, text: str, path: Path, first_line: int, name: str) -> Iterator[ChoiceExample]:
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise UserError(f"{path}, line {line}: broken JSON ({error.msg}); get the file again") from None
    place = f"{path}, line {first_line}"
    for field in ("article", "questions", "options"):
        if not isinstance(record, dict) or field not in record:
            raise UserError(f"{place}: there is no {field!r}; check --data and --task")
    questions, options, answers = (record.get(field) for field in ("questions", "options", "answers"))
    if not all(isinstance(given, list) for given in (questions, options, [] if answers is None else answers)):
        raise UserError(f"{place}: questions, options and answers are not lists; mend it, or remove the passage")
    if len(options) != len(questions) or (answers is not None and len(answers) != len(questions)):
        raise UserError(f"{place}: as many options and answers as questions are wanted; mend it, or remove the passage")
    # Official files name themselves: "high19088.txt".
    name = str(record.get("id", name)).removesuffix(".txt")
    level = next((level for level in LEVELS if name.startswith(level) or path.parent.name == level), "")
    for number, question in enumerate(questions):
        yield question_of(
            task,
            f"{name}-{number}",
            record["article"],
            question,
            options[number],
            None if answers is None else answers[number],
            level,
            place,
        )


def question_of(
    task: Task, identity: str, article: Any, question: Any, options: Any, answer: Any, level: str, place: str
) -> ChoiceExample:
    """One question. Raises UserError, which names `place`, where it has not four options, or no such answer."""
    if not isinstance(options, list) or len(options) != len(task.labels):
        count = len(options) if isinstance(options, list) else "no list of"
        raise UserError(f"{place}: a question has {count} options instead of {len(task.labels)}; remove it")
    return ChoiceExample(
        identity,
        text_of(article, "the article", place),
        text_of(question, "a question", place),
        tuple(text_of(option, "an option", place) for option in options),
        None if answer is None else class_of(answer, task.labels, place),
        level,
    )
