"""The same tasks as `datasets` has them: by hub name, or a local directory that the library reads or wrote."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from data_prep.errors import UserError
from pipeline.tasks import race, squad
from pipeline.tasks.examples import ChoiceExample, Examples, Passage, Question, Splits, TextExample, text_of
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
_DIAGNOSTIC = "ax"
"""What the data set "glue" calls MNLI's diagnostic set."""


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
        if Path(name).exists():
            return datasets.load_dataset(name)
        there = datasets.get_dataset_config_names(name)
        subset = next((wanted for wanted in (task.name, "all") if wanted in there), None)
        splits = datasets.load_dataset(name, subset)
        if task.name == "mnli" and _DIAGNOSTIC in there:
            splits["diagnostic"] = datasets.load_dataset(name, _DIAGNOSTIC)["test"]
        return splits
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
        here = f"{place}, row {number}"
        first, *second = (text_of(row[column], f"column {column!r}", here) for column in TEXTS[task.name])
        label: Any = row["label"]
        if label == _UNKNOWN or label is None:
            label = None
        elif isinstance(label, int) and task.labels:
            label = label_of(task, order[label] if 0 <= label < len(order) else str(label), here)
        else:
            label = label_of(task, str(label), here)
        identity = row.get("idx", number) if split.startswith(("test", "diagnostic")) else number
        yield TextExample(str(identity), first, next(iter(second), None), label)


def _questions(task: Task, rows: Any, place: str) -> Iterator[Question]:
    _check_columns(rows, ("id", "question", "context", "answers"), place)
    passages: dict[str, Passage] = {}
    for number, row in enumerate(rows):
        here = f"{place}, row {number}"
        context = text_of(row["context"], "column 'context'", here)
        question = Question(
            str(row["id"]),
            text_of(row["question"], "column 'question'", here),
            passages.setdefault(context, Passage(context)),
            _answers(row["answers"], here),
            labelled=row["answers"] is not None,
        )
        if problem := squad.problem_of(task, question):
            raise UserError(f"{here}: {problem}")
        yield question


def _answers(given: Any, place: str) -> tuple[tuple[str, int], ...]:
    """A question's answers: a list of texts and one of places, as on the hub, or pairs, as in the official file."""
    try:
        if isinstance(given, Mapping):
            pairs: Iterable[tuple[Any, Any]] = zip(given["text"], given["answer_start"], strict=True)
        else:
            pairs = ((answer["text"], answer["answer_start"]) for answer in given or ())
        return tuple((text_of(text, "an answer", place), int(start)) for text, start in pairs)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{place}: column 'answers' has no proper text and answer_start ({error}); mend it") from None


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
