"""Reads a task's data from `--data`: official files, otherwise a data set of the library `datasets`."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files.places import plain_name
from data_prep.sources.opening import check_regular
from pipeline.tasks.task import Splits, Task, TaskFiles

HELD_OUT = frozenset(["dev", "val", "valid", "validation", "test", "eval", "evaluation", "heldout", "held"])


def read(task: Task, data: str) -> Splits:
    """The examples of every split in `data`: a directory with the task's official files, or a data set of `datasets`.

    Raises:
        UserError: there is no data of this task, a file has an error, a train or dev example has no label, or an id
            occurs twice in a split.
    """
    if task.files is None:
        raise UserError(f"--data {data} holds no file of task {task.name}; name the directory with its train split")
    if files := task.files.find(task, Path(data)):
        splits: Splits = {split: task.files.read(task, split, paths) for split, paths in files.items()}
    else:
        splits = _read_dataset(task, task.files, data)
    for split, examples in splits.items():
        if split in ("train", *task.dev_splits) and any(example.label is None for example in examples):
            raise UserError(f"--data {data}: split {split} has examples without a label; get the official files")
        seen: set[str] = set()
        for example in examples:
            if example.id in seen:
                raise UserError(f"--data {data}: split {split} has two examples {example.id!r}; remove one")
            seen.add(example.id)
    return splits


def _read_dataset(task: Task, files: TaskFiles, name: str) -> Splits:
    """All splits of the data set `name`: a name on the hub, or a directory."""

    def load(subsets: Sequence[str]) -> Any:
        import datasets

        splits = datasets.load_dataset(name, next((wanted for wanted in (task.name, "all") if wanted in subsets), None))
        for subset, split in files.extra_subsets.items():
            if subset in subsets:
                splits[split] = datasets.load_dataset(name, subset)["test"]
        return splits

    dataset = open_dataset(name, load, f"--data {name} holds no official file of {task.name}")
    ours = {split: plain_name(split, f"--data {name}").replace("validation", "dev") for split in dataset}
    return {
        our: files.read_dataset(task, our, dataset[split], f"{name}, split {split}")
        for our, split in unique_splits(ours, name).items()
    }


def unique_splits(names: Mapping[str, str], data: str) -> dict[str, str]:
    """The splits of a data set, or its files, by our names, from `names`, which has our name of each.

    Raises UserError if two have one name, such as "validation" and "dev".
    """
    splits: dict[str, str] = {}
    for split, ours in names.items():
        if ours in splits:
            raise UserError(f"--data {data} has {splits[ours]} and {split}, and both are the split {ours}; keep one")
        splits[ours] = split
    return splits


def _is_held_out(file: str) -> bool:
    """Whether a path's names say that it is none to train on: the library takes all files for "train" if none is."""
    return not HELD_OUT.isdisjoint(re.split(r"[^a-z]+", os.path.splitext(file)[0].lower()))


def open_dataset(name: str, load: Callable[[Sequence[str]], Any], before: str) -> Any:
    """The splits of a data set by name (`datasets.DatasetDict`). Raises UserError, with the library's reason.

    Args:
        name: a directory, or a name on the hub.
        load: loads it from the hub, given the names of its subsets.
        before: what was tried before, for messages.
    """
    if not Path(name).exists() and (name.count("/") > 1 or name.startswith((".", "/", "~"))):
        raise UserError(f"--data {name} does not exist; name a directory, or a data set as the hub has it")
    import datasets  # takes seconds to import, and only this source needs it

    datasets.utils.logging.disable_progress_bar()
    check_regular(Path(name))
    try:
        if (Path(name) / "dataset_dict.json").exists():
            dataset = datasets.load_from_disk(name)
            return {split: rows.with_format(None) for split, rows in dataset.items()}  # values, not tensors
        if (Path(name) / "state.json").exists():  # `save_to_disk` of one split
            return {"train": datasets.load_from_disk(name).with_format(None)}
        if Path(name).exists():
            files = datasets.load_dataset_builder(name).config.data_files or {}
            taken = [os.path.relpath(file, os.path.realpath(name)) for file in files.get("train", ())]
            if files.keys() == {"train"} and (other := next(filter(_is_held_out, taken), None)):
                raise UserError(f"--data {name}: {other} would be trained on; name the files train, dev and test")
            return datasets.load_dataset(name)
        return load(datasets.get_dataset_config_names(name))
    except UserError:
        raise
    # The library raises errors of many types: its readers' and the network's. The user needs the reason and the name.
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"{before}, and `datasets` cannot open it: {reason}; check --data, or the network") from error
