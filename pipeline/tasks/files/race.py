"""RACE: official files, data set on the hub, and submission.

The official files are train, dev and test, each with middle/ and high/ and one passage in each file. JSON Lines with
one passage in each line are also read.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import atomic
from common.files.json_files import check_as
from pipeline.tasks.files.rows import read_examples
from pipeline.tasks.files.tables import Table, load_json, read_text
from pipeline.tasks.kinds.choices import ChoiceExample
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.task import Columns, Examples, Task, TaskFiles


class RaceFiles(TaskFiles):
    """The files of RACE: SPLIT/**/*.txt, or SPLIT*.jsonl."""

    archives = ("race", "RACE", ".")
    table_columns = Columns("article", "question", "answer", ("options",))

    def find(self, task: Task, directory: Path) -> dict[str, list[Path]]:
        """See `TaskFiles.find`."""
        splits = {}
        for split in ("train", "dev", "test"):
            files = sorted((directory / split).rglob("*.txt"), key=_order) or sorted(directory.glob(f"{split}*.jsonl"))
            if files:
                splits[split] = files
        return splits

    def read(self, task: Task, split: str, files: list[Path]) -> list[ChoiceExample]:
        """See `TaskFiles.read`.

        Raises:
            UserError: broken JSON, a missing field, or an answer that is not the letter of an option; it names file
                and line.
        """
        examples: list[ChoiceExample] = []
        for path in files:
            if path.suffix == ".jsonl":
                lines = enumerate(read_text(path).split("\n"), start=1)
                parts = [(line, number, f"{path.stem}-{number}") for number, line in lines if line.strip()]
            else:
                parts = [(read_text(path), 1, f"{path.parent.name}{path.stem}")]
            for text, number, name in parts:
                examples += _questions(task, load_json(text, path, number), str(path), number, "line", name)
        if not examples:
            raise UserError(f"{files[0].parent} holds no question of RACE; get the files again")
        return examples

    def is_official(self, path: Path) -> bool:
        """Whether it holds passages with lists of questions, and not a question in each row."""
        if path.suffix.lower() != ".jsonl":
            return path.suffix.lower() == ".txt"
        first = next((line for line in read_text(path).split("\n") if line.strip()), "{}")
        return "questions" in load_json(first, path)

    def read_dataset(self, task: Task, split: str, rows: Any, place: str) -> list[ChoiceExample]:
        """See `TaskFiles.read_dataset`. The columns are those of the data set "race"."""
        wanted = {"example_id", "article", "question", "options", "answer"}
        if lost := sorted(wanted - set(rows.column_names)):
            raise UserError(f"{place}: there is no column {lost[0]!r}; check --data and --task")
        count_of: dict[str, int] = defaultdict(int)  # the questions of each passage so far
        examples: list[ChoiceExample] = []
        for number, row in enumerate(rows):
            answers = [row["answer"]] if row["answer"] else None
            content = {"article": row["article"], "questions": [row["question"]], "options": [row["options"]]}
            name = str(row["example_id"])
            content |= {"answers": answers, "id": name}
            examples += _questions(task, content, place, number, "row", name, count_of[name])
            count_of[name] += 1
        return examples

    def write_submission(self, task: Task, split: str, predictions: Logits, directory: Path) -> list[Path]:
        """Writes `{task}_{split}.json`: the name of the chosen option of every question."""
        path = directory / f"{task.name}_{split}.json"
        chosen = dict(zip(predictions.ids.tolist(), task.kind.spell(task, predictions)))
        atomic.write_text(path, json.dumps(chosen, ensure_ascii=False, indent=1) + "\n")
        return [path]


def _order(path: Path) -> tuple[str, int, str]:
    return path.parent.name, int(path.stem) if path.stem.isdecimal() else 0, path.stem


@dataclass(frozen=True)
class _Record:
    """A passage with its questions. Hidden answers are missing."""

    article: str
    questions: list[str]
    options: list[list[str]]
    answers: list[str] | None = None
    id: str | int | None = None


def _questions(task: Task, content: Any, source: str, number: int, unit: str, name: str, first: int = 0) -> Examples:
    """The questions of one passage.

    Args:
        content: a `_Record`.
        source, number, unit: where it is, see `Table`.
        name: of a passage that has no id.
        first: the number of its first question.
    Raises:
        UserError: broken content, a wrong number of options, or an unknown answer.
    """
    place = f"{source}, {unit} {number}"
    record = check_as(content, _Record, place, "check --data and --task, or remove it", extra="ignore")
    answers: Sequence[str | None] = record.answers or [None] * len(record.questions)
    if not len(record.options) == len(answers) == len(record.questions):
        raise UserError(
            f"{place}: the numbers of questions, options and answers differ; correct it, or remove the passage"
        )
    # The official files hold their own names, such as "high19088.txt".
    name = str(name if record.id is None else record.id).removesuffix(".txt")
    rows = [
        {"article": record.article, "question": question, "options": options, "answer": answer}
        for question, options, answer in zip(record.questions, record.options, answers)
    ]
    ids = [f"{name}-{question}" for question in range(first, first + len(rows))]
    columns = RaceFiles.table_columns
    names = (columns.text, "question", "options", columns.label)
    table = Table(source, names, rows, [number] * len(rows), unit, ids=ids, is_official=True)
    return read_examples(table, task.kind, columns, task.labels, "optional")
