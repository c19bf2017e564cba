"""Tasks on the user's own files: made at run time from the files, and again from the record of a run.

The record is in settings.json and results.json under the key "own_task". So later commands need no flags to know what
the outputs of the model mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from pipeline.tasks.files.reading import open_dataset, unique_splits
from pipeline.tasks.files.rows import Columns, check_columns
from pipeline.tasks.files.tables import READERS, Table, from_dataset, read_table
from pipeline.tasks.kinds import KINDS, OWN_TASKS
from pipeline.tasks.kinds.questions import STARTS
from pipeline.tasks.registry import TASKS, find_task
from pipeline.tasks.task import Hyperparameters, Splits, Task

SPLIT_NAMES = {"train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "val": "dev", "test": "test"}
"""Our name of each split that files and data sets may have."""

_REMEDY = "restore it, or leave that run out"


@dataclass(frozen=True)
class OwnData:
    """What the command line says about own data: `files` by split, or `data`.

    Attributes:
        task: one of `OWN_TASKS`.
        name: of the task in results and in the export.
        data: a directory with files of the splits, or a data set for `datasets`.
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

    kind: str
    labels: tuple[str, ...]
    columns: Columns


@dataclass(frozen=True)
class TaskRecord:
    """What an export says of its fine-tuning run; names and values are those of settings.json."""

    task: str
    own_task: OwnRecord | None
    precision: str
    hyperparameters: dict[str, Any]


@dataclass(frozen=True)
class Head:
    """The keys that are read of head.json, or of a config.json, which has the task after fine-tuning only.

    Attributes:
        finetuning_task: its name; None after pre-training, and in most published models.
        id2label: the names of the outputs.
        architectures, problem_type: as `transformers` calls them.
        fine_tuning: in exports of this project, what settings.json of the run said of the task.
    """

    finetuning_task: str | None = None
    id2label: dict[str, Any] | None = None
    architectures: list[str] | None = None
    problem_type: str | None = None
    fine_tuning: TaskRecord | None = None

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the head's outputs, in their order."""
        if self.id2label is None:
            return None
        names = {str(number): str(name) for number, name in self.id2label.items()}
        # By number: an object of JSON has no order, and a program may have sorted its keys as texts.
        order = sorted(names, key=int) if all(number.isdecimal() for number in names) else names
        return tuple(names[number] for number in order)


def read(data: OwnData) -> tuple[Task, Splits]:
    """The task, with the labels of the training rows, and the examples of each split.

    Raises:
        UserError: a file or column is missing, or a row is broken; see `files.rows`.
    """
    tables = _tables(data)
    if "train" not in tables:
        raise UserError(f"--data {data.data} has no training examples; it has {', '.join(tables)}; name --train-file")
    kind, columns = OWN_TASKS[data.task], data.columns
    check_columns(tables["train"], columns, labelled=True)
    labels = kind.find_labels(tables["train"], columns)
    splits: Splits = {}
    for split, table in tables.items():
        splits[split] = kind.read_examples(table, columns, labels, "optional" if split == "test" else "required")
    record = OwnRecord(kind.kind_for(splits["train"]), labels, columns)
    return make_task(data.name, record), splits


def _tables(data: OwnData) -> dict[str, Table]:
    name, columns = data.data or "", data.columns
    named = (columns.text, columns.second_text, columns.label, *columns.choices, STARTS)
    if files := dict(data.files) or _files_in(Path(name)):
        return {split: read_table(path, named, only_these=True) for split, path in files.items()}

    def load(subsets: Sequence[str]) -> Any:
        import datasets

        if data.subset is not None and data.subset not in subsets:
            raise UserError(f"--subset {data.subset} is none of {', '.join(subsets)}")
        return datasets.load_dataset(name, data.subset)

    dataset = open_dataset(name, load, f"--data {name} holds no file such as train.csv")
    splits = unique_splits({split: SPLIT_NAMES[split] for split in dataset if split in SPLIT_NAMES}, name)
    return {ours: from_dataset(dataset[split], f"{name}, split {split}", named) for ours, split in splits.items()}


def _files_in(directory: Path) -> dict[str, Path]:
    """The files of the splits in a directory, such as train.csv. Raises UserError if a split has several."""
    if not directory.is_dir() or (directory / "dataset_dict.json").exists():
        return {}
    files = [path for path in sorted(directory.iterdir()) if path.suffix.lower() in READERS and path.is_file()]
    ours = {path.name: SPLIT_NAMES[stem] for path in files if (stem := path.stem.lower()) in SPLIT_NAMES}
    named = unique_splits(ours, str(directory))
    return {split: directory / named[split] for split in SPLIT_NAMES if split in named and "train" in named}


def make_task(name: str, record: OwnRecord) -> Task:
    """The task that a record describes. Raises ValueError if it cannot be."""
    if record.kind not in KINDS:
        raise ValueError(f"own_task has kind {record.kind!r}, which is none of {', '.join(KINDS)}")
    kind = KINDS[record.kind]
    return Task(
        name,
        kind,
        Hyperparameters(2e-5, 32, 0.1, steps=None, warmup_steps=None),
        labels=record.labels,
        metrics=kind.choose_metrics(record.labels),
        best_by=kind.best_by,
        value_range=(-1e30, 1e30),
        columns=record.columns,
    )


def record_of(task: Task) -> OwnRecord | None:
    """The record of an own task; None for a task that is known by its name."""
    return None if task.columns is None else OwnRecord(task.kind.name, task.labels, task.columns)


def task_of(name: str, record: OwnRecord | None, source: Path) -> Task:
    """The task of a run, from its name and record, which are in the file `source`.

    Raises UserError for an unknown name, or a record that cannot be.
    """
    if record is None:
        return find_task(name)
    try:
        return make_task(check_name(name), record)
    except ValueError as error:
        raise UserError(f"{source}: {error}; {_REMEDY}") from None


def task_of_head(head: Head, source: Path) -> Task | None:
    """The task of an export or a published model in `source`; None if it has no head of a task.

    An export of this version has the record of its run. Of any other model the class in `transformers` tells the kind,
    and the columns are the kind's defaults.

    Raises UserError for a record that cannot be.
    """
    if head.fine_tuning is not None:
        return task_of(head.fine_tuning.task, head.fine_tuning.own_task, source)
    known = TASKS.get(head.finetuning_task or "")
    if known is not None and head.labels in (None, known.labels):
        return known
    labels = ("LABEL_0", "LABEL_1") if head.labels is None else head.labels  # `transformers` leaves its defaults out
    problem = head.problem_type or ("regression" if len(labels) == 1 else "single_label_classification")
    classes = [name.replace("Bert", "Albert") for name in head.architectures or ()]
    for kind in KINDS.values():
        if kind.architecture in classes and kind.problem_type in ("", problem) and kind.own_tasks:
            outputs = () if kind.uses_span_limits else labels
            try:
                return make_task(kind.name, OwnRecord(kind.name, outputs, next(iter(kind.own_tasks.values()))))
            except ValueError as error:
                raise UserError(f"{source}: {error}; name another model") from None
    return None


def check_name(name: str) -> str:
    """Returns the name of an own task. Raises UserError if it is a known task's, or no name for a directory."""
    if name in TASKS:
        raise UserError(f"--task-name {name} is a task of the paper; choose another name")
    if not name or name.startswith(".") or not all(letter.isalnum() or letter in "-_." for letter in name):
        raise UserError(f"--task-name {name!r} is no name; use letters, digits, -, _ and .")
    return name
