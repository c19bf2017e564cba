"""Reads a task's data from `--data`: official files by their layout, otherwise a data set for `datasets`."""

from pathlib import Path

from common.errors import UserError
from pipeline.tasks.examples import Splits
from pipeline.tasks.files import hub
from pipeline.tasks.task import Task


def read(task: Task, data: str) -> Splits:
    """The examples of every split in `data`.

    Args:
        data: a directory with the task's official files, one with all of GLUE, or the name or directory of a data set
            for the library `datasets`.

    Raises:
        UserError: there is no data of this task, a file has an error, a train or dev example has no label, or an id
            occurs twice in a split.
    """
    files = {} if task.files is None else task.files.find(task, Path(data))
    if task.files is not None and files:
        splits: Splits = {split: task.files.read(task, split, paths) for split, paths in files.items()}
    else:
        splits = hub.read(task, data)
    for split, examples in splits.items():
        if split in ("train", *task.dev_splits) and not all(map(_is_labelled, examples)):
            raise UserError(f"--data {data}: split {split} has examples without a label; get the official files")
        seen: set[str] = set()
        for example in examples:
            if example.id in seen:
                raise UserError(f"--data {data}: split {split} has two examples {example.id!r}; remove one")
            seen.add(example.id)
    return splits


def _is_labelled(example: object) -> bool:
    return getattr(example, "labelled", True) and getattr(example, "label", 0) is not None
