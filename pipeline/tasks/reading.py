"""A task's data, wherever --data points: official files by their layout, else what `datasets` reads."""

from pathlib import Path

from data_prep.errors import UserError
from pipeline.tasks import glue, race, squad
from pipeline.tasks.examples import Splits
from pipeline.tasks.task import Task


def read(task: Task, data: str) -> Splits:
    """The examples of every split that `data` has.

    Args:
        data: a directory with the task's official files, one with all of GLUE, or the name or directory of a data set
            for the library `datasets`.

    Raises:
        UserError: nothing there is of this task, or a file is not as it should be.
    """
    directory = Path(data)
    if task.kind in ("spans", "conditioned_spans"):
        splits: Splits = {split: squad.read(task, path) for split, path in squad.find_files(task, directory).items()}
    elif task.kind == "choice":
        splits = {split: race.read(task, files) for split, files in race.find_files(directory).items()}
    else:
        splits = {split: glue.read(task, split, path) for split, path in glue.find_files(task, directory).items()}
    if not splits:
        from pipeline.tasks import hub

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
