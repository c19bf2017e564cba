"""The tasks of the paper, GLUE, SQuAD and RACE: official files, data sets on the hub, and submissions.

The official files of a task of GLUE are a directory of tab-separated files, without quoting. They differ from each
other:

- CoLA has a header in its test file only.
- MRPC begins with a byte-order mark.
- QQP's training and dev files have rows with too few columns; such rows are left out.
- MNLI has two dev and two test sets.
- Test files have an index instead of labels; submissions refer to it.
- The diagnostic set is in a directory of its own, beside or inside MNLI's.

Those of SQuAD are one JSON object each. Those of RACE are train, dev and test, each with middle/ and high/ and one
passage in each file. JSON Lines with one passage of RACE in each line are also read.
"""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import atomic
from common.files.json_files import check_as
from data_prep.sources.opening import visible_files
from pipeline.tasks.files.rows import Columns, Labelling
from pipeline.tasks.files.tables import Row, Table, dataset_rows, load_json, read_text
from pipeline.tasks.kinds.answers import AnswersById
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.task import Examples, Task, TaskFiles

DIAGNOSTIC = ("diagnostic.tsv", "AX.tsv", "../diagnostic/diagnostic.tsv", "../AX/AX.tsv", "../AX/diagnostic.tsv")
"""Places of the diagnostic set, relative to MNLI's directory."""
VERSIONS = ("v1.1", "v2.0")
_REMEDY = "check --data and --task"


@dataclass(frozen=True)
class GlueFiles(TaskFiles):
    """The directory of a task, the columns of its files and of its data set on the hub, and its submission.

    Attributes:
        directory: its name in the GLUE archive.
        texts: the column of the text, or the columns of both texts.
        label: the column of the label.
        index: the column of a test file that identifies the example.
        columns: the columns of files without a header.
        may_lack_columns: whether rows of train and dev files with too few columns are left out.
        extra_splits: further splits, each with the places of its file relative to the directory.
        hub_texts: the columns of the texts on the hub, as in the data set "glue"; by default as in the files.
        hub_order: the classes that the numbers on the hub stand for; empty for the task's own order.
        extra_subsets: see `TaskFiles`.
        submitted: the name of the file of each split that is submitted; by default the test split's only.
    """

    directory: str
    texts: tuple[str, ...]
    label: str = "label"
    index: str = "index"
    columns: tuple[str, ...] | None = None
    may_lack_columns: bool = False
    extra_splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hub_texts: tuple[str, ...] = ()
    hub_order: tuple[str, ...] = ()
    extra_subsets: Mapping[str, str] = field(default_factory=dict)
    submitted: Mapping[str, str] = field(default_factory=dict)

    @property
    def table_columns(self) -> Columns:  # type: ignore[override]
        return _columns(self.texts, self.label)

    def find(self, task: Task, directory: Path) -> dict[str, list[Path]]:
        """See `TaskFiles.find`. The files are in `directory` or in its subdirectory of the task's name."""
        subdirectory = directory / self.directory
        folder = subdirectory if subdirectory.is_dir() else directory
        files = {split: [folder / f"{split}.tsv"] for split in task.splits if (folder / f"{split}.tsv").is_file()}
        for split, names in self.extra_splits.items():
            path = next((folder / name for name in names if (folder / name).is_file()), None)
            if files and path is not None:  # further splits alone are no data
                files[split] = [path]
        return files

    def read(self, task: Task, split: str, files: list[Path]) -> Examples:
        """See `TaskFiles.read`. Each split is one file."""
        (path,) = files
        header, lines, first = self._lines(path)
        for_submission = _is_for_submission(split)
        kept = {*self.texts, self.label, *([self.index] if for_submission else [])} & set(header)
        rows: dict[int, Row] = {}  # by their place in the file, which counts the rows that are left out
        for place, line in enumerate(lines):
            cells, fault = line.split("\t"), ""
            row = {name: cell for name, cell in zip(header, cells) if name in kept}
            if len(cells) > len(header):  # a tab inside a text: all that follows it is in the wrong column
                fault = f"{len(cells)} cells instead of {len(header)}; remove the tab in a text"
            elif row.keys() == kept:
                rows[place] = row
            elif for_submission or not self.may_lack_columns:
                fault = f"fewer than {len(header)} columns; correct or remove it"
            if fault:
                raise UserError(f"{path}, line {first + place}: {fault}")
        if not rows:
            raise UserError(f"{path} holds no example; get the file again")
        numbers = [first + place for place in rows]
        table = Table(str(path), header, list(rows.values()), numbers, ids=list(map(str, rows)), is_official=True)
        return _read_examples(task, split, table, self.table_columns, self.index)

    def _lines(self, path: Path) -> tuple[tuple[str, ...], list[str], int]:
        """The columns of a file, its lines behind the header, and the number of the first of them."""
        lines = [line.rstrip("\r") for line in read_text(path).split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        header = tuple(lines[0].split("\t")) if lines else ()
        if self.columns is not None and not set(self.texts) <= set(header):
            return self.columns, lines, 1
        return header, lines[1:], 2

    def read_dataset(self, task: Task, split: str, rows: Any, place: str) -> Examples:
        columns = _columns(self.hub_texts or self.texts)
        names = getattr(rows.features.get("label"), "names", None) or ()
        # If the column names its classes as the task does, the names say which is which; otherwise the numbers do.
        order = tuple(names) if set(names) == set(task.labels) else self.hub_order or task.labels
        order = () if task.kind.predicts_numbers else order
        named = [{**row, "label": _label_of(row.get("label"), order)} for row in dataset_rows(rows, place)]
        table = Table(place, tuple(rows.column_names), named, range(len(named)), "row", is_official=True)
        return _read_examples(task, split, table, columns, "idx")

    def write_submission(self, task: Task, split: str, predictions: Logits, directory: Path) -> None:
        """Writes the TSV of `split`, by rising index; nothing for a split that is not submitted."""
        submitted = self.submitted or {"test": f"{self.directory}.tsv"}
        if split not in submitted:
            return
        numbers = [int(_index_of(name, task.name)) for name in predictions.ids.tolist()]
        lines = [f"{index}\t{label}\n" for index, label in sorted(zip(numbers, task.kind.spell(task, predictions)))]
        atomic.write_text(directory / submitted[split], "".join(["index\tprediction\n", *lines]))


def _columns(texts: tuple[str, ...], label: str = "label") -> Columns:
    return Columns(texts[0], texts[1] if len(texts) > 1 else None, label)


def _is_for_submission(split: str) -> bool:
    return not split.startswith(("train", "dev"))


def _read_examples(task: Task, split: str, table: Table, columns: Columns, index: str) -> Examples:
    """The examples of a table. Those of test files are called as the column `index` says."""
    if _is_for_submission(split) and index in table.columns:
        ids = [_index_of(str(row[index]), table.place(number)) for number, row in enumerate(table.rows)]
        table = dataclasses.replace(table, ids=ids)
    labelling: Labelling = "optional" if _is_for_submission(split) else "required"
    examples = task.kind.read_examples(table, columns, task.labels, labelling)
    low, high = task.value_range
    for number, example in enumerate(examples if task.kind.predicts_numbers else ()):
        if example.label is not None and not low <= example.label <= high:
            fault = f"the score {example.label:g} is no number from {low:g} to {high:g}; correct it"
            raise UserError(f"{table.place(number)}: {fault}")
    return examples


def _label_of(value: Any, order: Sequence[str]) -> Any:
    """The name of a class on the hub by its number; any other label as it is. -1 hides a label."""
    if value == -1:
        return None
    return order[value] if isinstance(value, int) and 0 <= value < len(order) else value


def _index_of(text: str, place: str) -> str:
    """The index of an example in a test file. Raises UserError, which names `place`, for other text."""
    if not (text.isascii() and text.isdecimal()):
        raise UserError(f"{place}: the index {text!r:.80} is no whole number; correct the line, or get the file again")
    return text


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
