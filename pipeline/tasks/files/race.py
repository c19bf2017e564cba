"""The official files of RACE: train, dev and test, each with middle/ and high/ and one passage in each file.

JSON Lines with one passage in each line are also read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from pipeline.tasks.examples import ChoiceExample, class_of, load_json, read_text, text_of
from pipeline.tasks.task import Columns, Task

LEVELS = ("middle", "high")


@dataclass(frozen=True)
class RaceFiles:
    """The layout of RACE: SPLIT/**/*.txt, or SPLIT*.jsonl."""

    @property
    def archives(self) -> tuple[str, ...]:
        """See `OfficialFiles.archives`."""
        return ("race", "RACE", ".")

    @property
    def table_columns(self) -> Columns:
        """See `OfficialFiles.table_columns`."""
        return Columns("article", "question", "answer", ("options",))

    def find(self, task: Task, directory: Path) -> dict[str, list[Path]]:
        """See `OfficialFiles.find`."""
        found = {}
        for split in ("train", "dev", "test"):
            files = sorted((directory / split).rglob("*.txt"), key=_order) or sorted(directory.glob(f"{split}*.jsonl"))
            if files:
                found[split] = files
        return found

    def read(self, task: Task, split: str, files: list[Path]) -> list[ChoiceExample]:
        """See `OfficialFiles.read`.

        Raises:
            UserError: broken JSON, a missing field, or an answer that is not the letter of an option; it names file
                and line.
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


def _order(path: Path) -> tuple[str, int, str]:
    return path.parent.name, int(path.stem) if path.stem.isdecimal() else 0, path.stem


def _questions(task: Task, text: str, path: Path, first_line: int, name: str) -> Iterator[ChoiceExample]:
    record = load_json(text, path, first_line)
    place = f"{path}, line {first_line}"
    for field in ("article", "questions", "options"):
        if not isinstance(record, dict) or field not in record:
            raise UserError(f"{place}: there is no {field!r}; check --data and --task")
    questions, options, answers = (record.get(field) for field in ("questions", "options", "answers"))
    if not all(isinstance(given, list) for given in (questions, options, [] if answers is None else answers)):
        raise UserError(f"{place}: questions, options and answers are not lists; correct it, or remove the passage")
    if len(options) != len(questions) or (answers is not None and len(answers) != len(questions)):
        raise UserError(
            f"{place}: the numbers of questions, options and answers differ; correct it, or remove the passage"
        )
    # The official files hold their own names, such as "high19088.txt".
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
    """One question. Raises UserError, which names `place`, for a wrong number of options or an unknown answer."""
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
