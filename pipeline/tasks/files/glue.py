"""The official files of the GLUE tasks: a directory of tab-separated files for each task, without quoting.

The files differ from each other:

- CoLA has a header in its test file only.
- MRPC begins with a byte-order mark.
- QQP's training and dev files have rows with too few columns; such rows are left out.
- MNLI has two dev and two test sets.
- Test files have an index instead of labels; submissions refer to it.
- The diagnostic set is in a directory of its own, beside or inside MNLI's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common.errors import UserError
from pipeline.tasks.examples import TextExample, class_of, index_of, read_text
from pipeline.tasks.task import Columns, Task

DIAGNOSTIC = ("diagnostic.tsv", "AX.tsv", "../diagnostic/diagnostic.tsv", "../AX/AX.tsv", "../AX/diagnostic.tsv")
"""Places of the diagnostic set, relative to MNLI's directory."""


@dataclass(frozen=True)
class GlueFiles:
    """A task's directory and the columns of its files.

    Attributes:
        directory: its name in the GLUE archive.
        texts: the column of the text, or the columns of both texts.
        label: the column of the label.
        index: the column of a test file that identifies the example.
        columns: the columns of files without a header.
        may_lack_columns: whether rows of train and dev files with too few columns are left out.
        extra_splits: further splits, each with the places of its file relative to the directory.
    """

    directory: str
    texts: tuple[str, ...]
    label: str = "label"
    index: str = "index"
    columns: tuple[str, ...] | None = None
    may_lack_columns: bool = False
    extra_splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def archives(self) -> tuple[str, ...]:
        """See `OfficialFiles.archives`."""
        return ("glue", "GLUE", ".")

    @property
    def table_columns(self) -> Columns:
        """See `OfficialFiles.table_columns`."""
        return Columns(self.texts[0], self.texts[1] if len(self.texts) > 1 else None, self.label)

    def find(self, task: Task, directory: Path) -> dict[str, list[Path]]:
        """See `OfficialFiles.find`. The files are in `directory` or in its subdirectory of the task's name."""
        subdirectory = directory / self.directory
        place = subdirectory if subdirectory.is_dir() else directory
        splits = ["train", *task.dev_splits, *(name.replace("dev", "test") for name in task.dev_splits)]
        found = {split: [place / f"{split}.tsv"] for split in splits if (place / f"{split}.tsv").is_file()}
        for split, names in self.extra_splits.items():
            path = next((place / name for name in names if (place / name).is_file()), None)
            if found and path is not None:
                found[split] = [path]
        return found

    def table(self, path: Path) -> tuple[str | None, list[str]]:
        """The header of a file, None if it has none, and the other lines, without line ends."""
        lines = [line.rstrip("\r") for line in read_text(path).split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        if lines and (self.columns is None or set(self.texts) <= set(lines[0].split("\t"))):
            return lines[0], lines[1:]
        return None, lines

    def read(self, task: Task, split: str, files: list[Path]) -> list[TextExample]:
        """See `OfficialFiles.read`. Each split is one file.

        Raises:
            UserError: a column is missing, a row has too few columns, a label is unknown, or an index is not a number.
                It names file and line.
        """
        (path,) = files
        header, lines = self.table(path)
        if header is None and not lines:
            raise UserError(f"{path} is empty; get the file again")
        names = self.columns or () if header is None else header.split("\t")
        columns = {name: number for number, name in enumerate(names)}
        for_submission = not split.startswith(("train", "dev"))
        labelled = self.label in columns or not for_submission
        wanted = [*self.texts, *([self.label] if labelled else [])]
        for name in wanted:
            if name not in columns:
                raise UserError(
                    f"{path}, line 1: there is no column {name!r} among {', '.join(names)}; "
                    f"get the official file of {self.directory}, or check --task"
                )
        index = self.index if for_submission and self.index in columns else None
        if index is not None:
            wanted.append(index)
        table = _Table(path, columns, wanted, lines, first_line=1 if header is None else 2)
        examples = list(self._examples(task, table, labelled, index))
        if not examples:
            raise UserError(f"{path} holds no example; get the file again")
        return examples

    def _examples(self, task: Task, table: "_Table", labelled: bool, index: str | None) -> Iterator[TextExample]:
        """The examples of a file; their ids are in column `index`. With None they are numbered from 0."""
        for number, place, cells in table.rows(skip_short=self.may_lack_columns and index is None):
            first, *second = (cells[name] for name in self.texts)
            label = label_of(task, cells[self.label], place) if labelled else None
            example_id = str(number) if index is None else index_of(cells[index], place)
            yield TextExample(example_id, first, next(iter(second), None), label)


@dataclass(frozen=True)
class _Table:
    """The lines of a file.

    Attributes:
        path: of the file.
        columns: the number of each column.
        wanted: the columns that are read.
        lines: without the header.
        first_line: the number of the first of `lines` in the file.
    """

    path: Path
    columns: Mapping[str, int]
    wanted: Sequence[str]
    lines: Sequence[str]
    first_line: int

    def rows(self, skip_short: bool) -> Iterator[tuple[int, str, dict[str, str]]]:
        """The number of each row from 0, its place for an error message, and its wanted cells.

        Args:
            skip_short: whether rows with too few columns are left out.

        Raises UserError for such a row if `skip_short` is False.
        """
        needed = 1 + max(self.columns[name] for name in self.wanted)
        for number, line in enumerate(self.lines):
            place = f"{self.path}, line {self.first_line + number}"
            cells = line.split("\t")
            if len(cells) >= needed:
                yield number, place, {name: cells[self.columns[name]] for name in self.wanted}
            elif not skip_short:
                raise UserError(
                    f"{place}: {len(cells)} columns instead of {len(self.columns)}; correct the line, or remove it"
                )


def label_of(task: Task, text: str, place: str) -> int | float:
    """A label from the text in the file. Raises UserError, which names `place`, for a label that the task lacks."""
    if task.kind != "regression":
        return class_of(text, task.labels, place)
    low, high = task.value_range
    try:
        value = float(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise UserError(f"{place}: the score {text!r} is no number from {low:g} to {high:g}; correct it")
    return value
