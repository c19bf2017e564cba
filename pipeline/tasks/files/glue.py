"""The GLUE tasks: official files, data set on the hub, and submission.

The official files of a task are a directory of tab-separated files, without quoting.

The files differ from each other:

- CoLA has a header in its test file only.
- MRPC begins with a byte-order mark.
- QQP's training and dev files have rows with too few columns; such rows are left out.
- MNLI has two dev and two test sets.
- Test files have an index instead of labels; submissions refer to it.
- The diagnostic set is in a directory of its own, beside or inside MNLI's.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import atomic
from pipeline.tasks.files.rows import Columns, Labelling
from pipeline.tasks.files.tables import Row, Table, dataset_rows, read_text
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.task import Examples, Task, TaskFiles

DIAGNOSTIC = ("diagnostic.tsv", "AX.tsv", "../diagnostic/diagnostic.tsv", "../AX/AX.tsv", "../AX/diagnostic.tsv")
"""Places of the diagnostic set, relative to MNLI's directory."""


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
        splits = ["train", *task.dev_splits, *(name.replace("dev", "test") for name in task.dev_splits)]
        files = {split: [folder / f"{split}.tsv"] for split in splits if (folder / f"{split}.tsv").is_file()}
        for split, names in self.extra_splits.items():
            path = next((folder / name for name in names if (folder / name).is_file()), None)
            if files and path is not None:
                files[split] = [path]
        return files

    def read(self, task: Task, split: str, files: list[Path]) -> Examples:
        """See `TaskFiles.read`. Each split is one file."""
        (path,) = files
        columns, lines, first = self._lines(path)
        for_submission = _is_for_submission(split)
        kept = {*self.texts, self.label, *([self.index] if for_submission else [])} & set(columns)
        rows: dict[int, Row] = {}  # by their place in the file, which counts the rows that are left out
        for place, line in enumerate(lines):
            cells, fault = line.split("\t"), ""
            row = {name: cell for name, cell in zip(columns, cells) if name in kept}
            if len(cells) > len(columns):  # a tab inside a text: all that follows it is in the wrong column
                fault = f"{len(cells)} cells instead of {len(columns)}; remove the tab in a text"
            elif row.keys() == kept:
                rows[place] = row
            elif for_submission or not self.may_lack_columns:
                fault = f"fewer than {len(columns)} columns; correct or remove it"
            if fault:
                raise UserError(f"{path}, line {first + place}: {fault}")
        if not rows:
            raise UserError(f"{path} holds no example; get the file again")
        numbers = [first + place for place in rows]
        table = Table(str(path), columns, list(rows.values()), numbers, ids=list(map(str, rows)), is_official=True)
        return _read_examples(task, split, table, self.table_columns, self.index)

    def _lines(self, path: Path) -> tuple[tuple[str, ...], list[str], int]:
        """The columns of a file, its lines behind the header, and the number of the first of them."""
        lines = [line.rstrip("\r") for line in read_text(path).split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        columns = tuple(lines[0].split("\t")) if lines else ()
        if self.columns is not None and not set(self.texts) <= set(columns):
            return self.columns, lines, 1
        return columns, lines[1:], 2

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
