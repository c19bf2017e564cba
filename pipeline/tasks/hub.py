"""The same tasks as `datasets` has them: by hub name, or a local directory that the library reads or wrote."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_prep.errors import UserError
from pipeline.tasks import race, squad
from pipeline.tasks.examples import ChoiceExample, Examples, Passage, Question, Splits, TextExample
from pipeline.tasks.glue import label_of
from pipeline.tasks.task import Task

TEXTS = {
    "cola": ("sentence",),
    "sst2": ("sentence",),
    "mrpc": ("sentence1", "sentence2"),
    "stsb": ("sentence1", "sentence2"),
    "qqp": ("question1", "question2"),
    "mnli": ("premise", "hypothesis"),
    "qnli": ("question", "sentence"),
    "rte": ("sentence1", "sentence2"),
    "wnli": ("sentence1", "sentence2"),
}
"""The columns of the texts in the data set "glue"."""

_OWN_ORDER = {"mnli": ("entailment", "neutral", "contradiction")}
"""What numbers mean in the column of labels where they are not the task's own order."""

_UNKNOWN = -1


def read(task: Task, name: str) -> Splits:
    """All splits of the data set `name`: a name on the hub, or a directory.

    Raises:
        UserError: it cannot be opened, with the library's reason, or lacks a column of the task.
    """
    splits: Splits = {}
    for split, rows in _open(task, name).items():
        ours = split.replace("validation", "dev")
        place = f"{name}, split {split}"
        examples: Examples
        if task.kind in ("spans", "conditioned_spans"):
            examples = list(_questions(task, rows, place))
        elif task.kind == "choice":
            examples = list(_choices(task, rows, place))
        else:
            examples = list(_texts(task, rows, ours, place))
        splits[ours] = examples
    return splits


def _open(task: Task, name: str) -> Any:
    """The data set's splits by name (`datasets.DatasetDict`)."""
    if not Path(name).exists() and (name.count("/") > 1 or name.startswith((".", "/", "~"))):
        raise UserError(f"--data {name} does not exist; name a directory, or a data set as the hub has it")
    import datasets  # takes seconds to import, and only this source needs it

    datasets.utils.logging.disable_progress_bar()
    try:
        if (Path(name) / "dataset_dict.json").exists():
            return datasets.load_from_disk(name)
        subset = {"squad1": None, "squad2": None, "race": "all"}.get(task.name, task.name)
        if Path(name).is_dir():
            subset = None
        return datasets.load_dataset(name, subset)
    # The library raises whatever its readers and the network raise; the person needs the reason and the name.
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"--data {name} holds no official file of {task.name}, and `datasets` cannot open it: {reason}; "
            "check --data, or the network"
        ) from error


def _check_columns(rows: Any, wanted: tuple[str, ...], place: str) -> None:
    for column in wanted:
        if column not in rows.column_names:
            raise UserError(
                f"{place}: there is no column {column!r} among {', '.join(rows.column_names)}; check --data and --task"
            )


def _texts(task: Task, rows: Any, split: str, place: str) -> Iterator[TextExample]:
    _check_columns(rows, (*TEXTS[task.name], "label"), place)
    names = getattr(rows.features["label"], "names", None) or ()
    # Named classes go by their names where these are the task's, other numbers by the order of the data set "glue".
    order = tuple(names) if set(names) == set(task.labels) else _OWN_ORDER.get(task.name, task.labels)
    for number, row in enumerate(rows):
        first, *second = (row[column] for column in TEXTS[task.name])
        label: Any = row["label"]
        if label == _UNKNOWN or label is None:
            label = None
        elif isinstance(label, int) and task.labels:
            label = label_of(task, order[label] if label < len(order) else str(label), f"{place}, row {number}")
        else:
            label = label_of(task, str(label), f"{place}, row {number}")
        identity = row.get("idx", number) if split.startswith(("test", "diagnostic")) else number
        yield TextExample(str(identity), first, next(iter(second), None), label)


def _questions(task: Task, rows: Any, place: str) -> Iterator[Question]:
    _check_columns(rows, ("id", "question", "context", "answers"), place)
    passages: dict[str, Passage] = {}
    for number, row in enumerate(rows):
        passage = passages.setdefault(row["context"], Passage(row["context"]))
        answers = tuple(zip(row["answers"]["text"], row["answers"]["answer_start"]))
        question = Question(str(row["id"]), row["question"], passage, answers)
        if problem := squad.problem_of(task, question):
            raise UserError(f"{place}, row {number}: {problem}")
        yield question


def _choices(task: Task, rows: Any, place: str) -> Iterator[ChoiceExample]:
    _check_columns(rows, ("example_id", "article", "question", "options", "answer"), place)
    seen: dict[str, int] = {}
    for number, row in enumerate(rows):
        name = row["example_id"].removesuffix(".txt")
        seen[name] = seen.get(name, -1) + 1
        level = next((level for level in race.LEVELS if name.startswith(level)), "")
        yield race.question_of(
            task,
            f"{name}-{seen[name]}",
            row["article"],
            row["question"],
            row["options"],
            row["answer"] or None,
            level,
            f"{place}, row {number}",
        )
