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

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import UserError
from common.files import atomic
from pipeline.tasks.files.tables import Table, index_of, read_table, read_text, text_of
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.kinds.texts import TextExample
from pipeline.tasks.task import Columns, Task, TaskFiles

_UNKNOWN_LABEL = -1

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

    archives = ("glue", "GLUE", ".")

    @property
    def table_columns(self) -> Columns:  # type: ignore[override]
        """See `TaskFiles`."""
        return Columns(self.texts[0], self.texts[1] if len(self.texts) > 1 else None, self.label)

    def find(self, task: Task, directory: Path) -> dict[str, list[Path]]:
        """See `TaskFiles.find`. The files are in `directory` or in its subdirectory of the task's name."""
        subdirectory = directory / self.directory
        place = subdirectory if subdirectory.is_dir() else directory
        splits = ["train", *task.dev_splits, *(name.replace("dev", "test") for name in task.dev_splits)]
        found = {split: [place / f"{split}.tsv"] for split in splits if (place / f"{split}.tsv").is_file()}
        for split, names in self.extra_splits.items():
            path = next((place / name for name in names if (place / name).is_file()), None)
            if found and path is not None:
                found[split] = [path]
        return found

    def read_table(self, path: Path, kept: Container[str] | None = None) -> Table:
        """See `TaskFiles.read_table`. A row may have fewer cells than the header.

        Args:
            kept: the columns that are kept in memory; None keeps all.
        """
        if path.suffix.lower() != ".tsv":
            return read_table(path)
        lines = [line.rstrip("\r") for line in read_text(path).split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        if not lines:
            raise UserError(f"{path} is empty; get the file again")
        columns, first = tuple(lines[0].split("\t")), 2
        if self.columns is not None and not set(self.texts) <= set(columns):
            columns, first = self.columns, 1
        rows = [
            {name: cell for name, cell in zip(columns, line.split("\t")) if kept is None or name in kept}
            for line in lines[first - 1 :]
        ]
        return Table(str(path), columns, rows, range(first, first + len(rows)))

    def read(self, task: Task, split: str, files: list[Path]) -> list[TextExample]:
        """See `TaskFiles.read`. Each split is one file.

        Raises:
            UserError: a column is missing, a row has too few columns, a label is unknown, or an index is not a number.
                It names file and line.
        """
        (path,) = files
        table = self.read_table(path, (*self.texts, self.label, self.index))
        for_submission = not split.startswith(("train", "dev"))
        labelled = self.label in table.columns or not for_submission
        index = self.index if for_submission and self.index in table.columns else None
        wanted = [*self.texts, *([self.label] if labelled else []), *([] if index is None else [index])]
        if lost := [name for name in wanted if name not in table.columns]:
            raise UserError(
                f"{path}, line 1: there is no column {lost[0]!r} among {', '.join(table.columns)}; "
                f"get the official file of {self.directory}, or check --task"
            )
        examples = []
        for number, row in enumerate(table.rows):
            place = table.place(number)
            if any(name not in row for name in wanted):
                if self.may_lack_columns and index is None:
                    continue
                raise UserError(f"{place}: fewer than {len(table.columns)} columns; correct the line, or remove it")
            first, *second = (row[name] for name in self.texts)
            label = task.kind.parse_label(task, row[self.label], place) if labelled else None
            identity = str(number) if index is None else index_of(row[index], place)
            examples.append(TextExample(identity, first, next(iter(second), None), label))
        if not examples:
            raise UserError(f"{path} holds no example; get the file again")
        return examples

    def read_dataset(self, task: Task, split: str, rows: Any, place: str) -> list[TextExample]:
        """See `TaskFiles.read_dataset`."""
        texts = self.hub_texts or self.texts
        if lost := [name for name in (*texts, "label") if name not in rows.column_names]:
            raise UserError(
                f"{place}: there is no column {lost[0]!r} among {', '.join(rows.column_names)}; check --data and --task"
            )
        names = getattr(rows.features["label"], "names", None) or ()
        # If the column names its classes as the task does, the names say which is which; otherwise the numbers do.
        order = tuple(names) if set(names) == set(task.labels) else self.hub_order or task.labels
        examples = []
        for number, row in enumerate(rows):
            here = f"{place}, row {number}"
            first, *second = (text_of(row[column], f"column {column!r}", here) for column in texts)
            label: Any = None if row["label"] == _UNKNOWN_LABEL else row["label"]
            if label is not None:
                is_class = isinstance(label, int) and len(task.labels) > 1
                name = order[label] if is_class and 0 <= label < len(order) else str(label)
                label = task.kind.parse_label(task, name, here)
            identity = number if split.startswith(("train", "dev")) else row.get("idx", number)
            examples.append(TextExample(index_of(str(identity), here), first, next(iter(second), None), label))
        return examples

    def write_submission(self, task: Task, split: str, predictions: Logits, directory: Path) -> list[Path]:
        """Writes the TSV of `split`, by rising index; nothing for a split that is not submitted.

        Raises UserError for ids that are not integers, the index column of the test files.
        """
        submitted = self.submitted or {"test": f"{self.directory}.tsv"}
        if split not in submitted:
            return []
        try:
            numbers = predictions.ids.astype(np.int64).tolist()
        except ValueError:
            raise UserError(
                f"{task.name}: the examples' ids are not the index of a GLUE test file; predict its test.tsv"
            ) from None
        lines = [f"{index}\t{label}\n" for index, label in sorted(zip(numbers, task.kind.spell(task, predictions)))]
        atomic.write_text(directory / submitted[split], "".join(["index\tprediction\n", *lines]))
        return [directory / submitted[split]]
