"""The official files of the GLUE tasks: a directory of tab-separated files each, no quoting.

Their oddities: CoLA has no header but in its test file; MRPC begins with a byte-order mark; QQP's training and dev
files have rows that lost columns, which are left out; MNLI has two dev and test sets; test files have no labels but an
index, which submissions refer to; the diagnostic set stands in a directory of its own, beside or inside MNLI's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.errors import UserError
from pipeline.tasks.examples import TextExample, class_of, read_text
from pipeline.tasks.submissions import MOST_SIMILAR
from pipeline.tasks.task import Task


@dataclass(frozen=True)
class Layout:
    """A task's directory and the columns of its files.

    Attributes:
        directory: its name in the GLUE archive.
        texts: the columns of the text, or of both texts.
        label: the column of the label.
        columns: of files without a header.
        may_lack_columns: rows with too few columns are known of the official files that have labels.
    """

    directory: str
    texts: tuple[str, ...]
    label: str = "label"
    columns: tuple[str, ...] | None = None
    may_lack_columns: bool = False


LAYOUTS = {
    "cola": Layout("CoLA", ("sentence",), columns=("source", "label", "mark", "sentence")),
    "sst2": Layout("SST-2", ("sentence",)),
    "mrpc": Layout("MRPC", ("#1 String", "#2 String"), "Quality"),
    "stsb": Layout("STS-B", ("sentence1", "sentence2"), "score"),
    "qqp": Layout("QQP", ("question1", "question2"), "is_duplicate", may_lack_columns=True),
    "mnli": Layout("MNLI", ("sentence1", "sentence2"), "gold_label"),
    "qnli": Layout("QNLI", ("question", "sentence")),
    "rte": Layout("RTE", ("sentence1", "sentence2")),
    "wnli": Layout("WNLI", ("sentence1", "sentence2")),
}

_INDEX = "index"
_TEST_INDEX = {"qqp": "id"}
_DIAGNOSTIC = ("diagnostic.tsv", "AX.tsv", "../diagnostic/diagnostic.tsv", "../AX/AX.tsv", "../AX/diagnostic.tsv")


def find_files(task: Task, directory: Path) -> dict[str, Path]:
    """The task's files in its own directory or in that of all of GLUE, by split; empty where there are none."""
    below = directory / LAYOUTS[task.name].directory
    place = below if below.is_dir() else directory
    splits = ["train", *task.dev_splits, *(name.replace("dev", "test") for name in task.dev_splits)]
    found = {split: place / f"{split}.tsv" for split in splits if (place / f"{split}.tsv").is_file()}
    if found and task.name == "mnli":
        diagnostic = next((place / name for name in _DIAGNOSTIC if (place / name).is_file()), None)
        found |= {} if diagnostic is None else {"diagnostic": diagnostic}
    return found


def read(task: Task, split: str, path: Path) -> list[TextExample]:
    """The examples of one file.

    Raises:
        UserError: a column is missing, a row has too few, or a label is not one of the task's; it names file and line.
    """
    layout = LAYOUTS[task.name]
    lines = [line.rstrip("\r") for line in read_text(path).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise UserError(f"{path} is empty; get the file again")
    header = lines[0].split("\t")
    if layout.columns is not None and not set(layout.texts) <= set(header):
        columns, first = {name: number for number, name in enumerate(layout.columns)}, 0
    else:
        columns, first = {name: number for number, name in enumerate(header)}, 1
    for_submission = not split.startswith(("train", "dev"))
    labelled = layout.label in columns
    wanted = [*layout.texts, *([] if for_submission and not labelled else [layout.label])]
    for name in wanted:
        if name not in columns:
            raise UserError(
                f"{path}, line 1: there is no column {name!r} among {', '.join(header)}; "
                f"get the official file of {layout.directory}, or check --task"
            )
    index = columns.get(_TEST_INDEX.get(task.name, _INDEX)) if for_submission else None
    if index is not None:
        wanted.append(header[index])
    examples = list(_examples(task, path, lines[first:], first + 1, columns, wanted, index))
    if not examples:
        raise UserError(f"{path} holds no example; get the file again")
    return examples


def _examples(
    task: Task,
    path: Path,
    lines: Sequence[str],
    first_line: int,
    columns: dict[str, int],
    wanted: Sequence[str],
    index: int | None,
) -> Iterator[TextExample]:
    """The examples of a file's lines; their ids are in column `index`, or None: they are numbered from 0."""
    layout = LAYOUTS[task.name]
    width = 1 + max(columns[name] for name in wanted)
    for number, line in enumerate(lines):
        place = f"{path}, line {first_line + number}"
        row = line.split("\t")
        if len(row) < width:
            if layout.may_lack_columns and index is None:
                continue
            raise UserError(f"{place}: {len(row)} columns instead of {len(columns)}; mend the line, or remove it")
        first, *second = (row[columns[name]] for name in layout.texts)
        label = label_of(task, row[columns[layout.label]], place) if layout.label in wanted else None
        yield TextExample(str(number) if index is None else row[index], first, next(iter(second), None), label)


def label_of(task: Task, text: str, place: str) -> int | float:
    """A label as the file spells it. Raises UserError, which names `place`, for one that the task does not have."""
    if task.kind != "regression":
        return class_of(text, task.labels, place)
    try:
        score = float(text)
    except ValueError:
        score = -1.0
    if not 0.0 <= score <= MOST_SIMILAR:
        raise UserError(f"{place}: the score {text!r} is no number from 0 to {MOST_SIMILAR:g}; mend it")
    return score
