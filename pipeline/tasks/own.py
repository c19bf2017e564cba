"""Tasks on the user's own files: made at run time from the files, and again from the record of a run.

The record is in settings.json and results.json under the key "own_task". So later commands need no flags to know what
the outputs of the model mean.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files.json_files import check_as
from pipeline.tasks import tagging_metrics
from pipeline.tasks.examples import Splits, TextExample
from pipeline.tasks.files import own as own_files
from pipeline.tasks.files.hub import open_dataset, our_splits
from pipeline.tasks.files.tables import READERS, Table, from_dataset, read_table
from pipeline.tasks.registry import OWN_TASKS, TASKS, find_task
from pipeline.tasks.submissions import PredictionLines
from pipeline.tasks.task import Columns, Hyperparameters, Kind, Task

KINDS: dict[str, Kind] = {
    "classification": "classification",
    "pairs": "classification",
    "regression": "regression",
    "tagging": "tagging",
    "multiple-choice": "choice",
}
"""The kind of head of each of `OWN_TASKS`."""

SPLIT_NAMES = {"train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "val": "dev", "test": "test"}
"""Our name of each split that files and data sets may have."""

RECORD = "own_task"
_REMEDY = "restore it, or leave that run out"


@dataclass(frozen=True)
class OwnData:
    """What the command line says about own data.

    Attributes:
        task: one of `OWN_TASKS`.
        name: of the task in results and in the export.
        columns: of its files.
        files: by split.
        data: a directory with files of the splits, or a data set for `datasets`; None with `files`.
        subset: of the data set on the hub.
    """

    task: str
    name: str
    columns: Columns
    files: Mapping[str, Path]
    data: str | None = None
    subset: str | None = None

    @property
    def source(self) -> str:
        """Where the examples come from, for people."""
        return self.data or ", ".join(map(str, self.files.values()))


@dataclass(frozen=True)
class OwnRecord:
    """The record of an own task, from which it is made again."""

    kind: Kind
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    columns: Columns


def read(data: OwnData) -> tuple[Task, Splits]:
    """The task, with the labels of the training rows, and the examples of each split.

    Raises:
        UserError: a file or column is missing, or a row is broken; see `files.own`.
    """
    tables = _tables(data)
    if "train" not in tables:
        raise UserError(f"--data {data.data} has no training examples; it has {', '.join(tables)}; name --train-file")
    kind, columns = KINDS[data.task], data.columns
    for split, table in tables.items():
        own_files.check_columns(table, kind, columns, split != "test")
    labels = own_files.find_labels(tables["train"], kind, columns)
    splits: Splits = {
        split: own_files.read_examples(table, kind, columns, labels, "optional" if split == "test" else "required")
        for split, table in tables.items()
    }
    if (
        kind == "regression"
        and len({example.label for example in splits["train"] if isinstance(example, TextExample)}) < 2
    ):
        raise UserError(
            f"{tables['train'].source}: column {columns.label!r} holds one number only; name another column"
        )
    return make_task(data.name, OwnRecord(kind, labels, _metrics(kind, labels), columns)), splits


def _tables(data: OwnData) -> dict[str, Table]:
    files = dict(data.files) or _files_in(Path(data.data or ""))
    if files:
        return {split: read_table(path) for split, path in files.items()}
    name = data.data or ""

    def load(subsets: Sequence[str]) -> Any:
        import datasets

        if data.subset is not None and data.subset not in subsets:
            raise UserError(f"--subset {data.subset} is none of {', '.join(subsets)}")
        return datasets.load_dataset(name, data.subset)

    found = open_dataset(name, load, f"--data {name} holds no file such as train.csv")
    named = our_splits({split: SPLIT_NAMES[split] for split in found if split in SPLIT_NAMES}, name)
    return {ours: from_dataset(found[split], f"{name}, split {split}") for ours, split in named.items()}


def _files_in(directory: Path) -> dict[str, Path]:
    """The files of the splits in a directory, such as train.csv. Raises UserError if a split has several."""
    found: dict[str, Path] = {}
    if not directory.is_dir() or (directory / "dataset_dict.json").exists():
        return found
    for path in sorted(directory.iterdir()):
        split = SPLIT_NAMES.get(path.stem)
        if split is None or path.suffix.lower() not in READERS or not path.is_file():
            continue
        if split in found:
            raise UserError(
                f"--data {directory} has {found[split].name} and {path.name} for the split {split}; name one with "
                f"--{split}-file"
            )
        found[split] = path
    return {split: found[split] for split in ("train", "dev", "test") if split in found} if "train" in found else {}


def _metrics(kind: Kind, labels: Sequence[str]) -> tuple[str, ...]:
    """The metrics that suit a task; the first one chooses the best step."""
    if kind == "regression":
        return ("pearson", "spearman", "rmse")
    if kind == "choice":
        return ("accuracy",)
    if kind == "tagging":
        if tagging_metrics.is_entity_scheme(labels):
            return ("entity_f1", "entity_precision", "entity_recall", "accuracy")
        return ("accuracy", "f1_macro")
    return ("accuracy", "f1_macro", "matthews") if len(labels) == 2 else ("accuracy", "f1_macro")


def make_task(name: str, record: OwnRecord) -> Task:
    """The task that a record describes. Raises ValueError if it cannot be."""
    return Task(
        name,
        record.kind,
        Hyperparameters(2e-5, 32, 0.1, steps=None, warmup_steps=None),
        labels=record.labels,
        metrics=record.metrics,
        value_range=(-1e30, 1e30),
        submission=PredictionLines(),
        columns=record.columns,
    )


def record_of(task: Task) -> dict[str, Any]:
    """The entry of settings.json and results.json for an own task; empty for a task that is known by its name."""
    if task.columns is None:
        return {}
    record = OwnRecord(task.kind, task.labels, task.metrics, task.columns)
    return {RECORD: dataclasses.asdict(record)}


def task_of(content: Mapping[str, Any], source: Path) -> Task:
    """The task of a run, from the content of its settings.json or results.json, which is in the file `source`.

    Raises UserError for an unknown name, or a record that cannot be.
    """
    name = content["task"]
    if content.get(RECORD) is None:
        return find_task(name)
    record = check_as(content[RECORD], OwnRecord, source, _REMEDY)
    try:
        task = make_task(check_name(name), record)
    except ValueError as error:
        raise UserError(f"{source}: {error}; {_REMEDY}") from None
    if task.kind == "choice" and not record.columns.choices:
        raise UserError(f"{source} lacks the columns of the choices; {_REMEDY}")
    return task


def check_name(name: str) -> str:
    """Returns the name of an own task. Raises UserError if it is a known task's, or no name for a directory."""
    if name in TASKS:
        raise UserError(f"--task-name {name} is a task of the paper; choose another name")
    if not name or name.startswith(".") or not all(letter.isalnum() or letter in "-_." for letter in name):
        raise UserError(f"--task-name {name!r} is no name; use letters, digits, -, _ and .")
    return name


assert set(KINDS) == set(OWN_TASKS)
