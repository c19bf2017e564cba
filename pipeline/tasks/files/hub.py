"""Tasks' data sets for the library `datasets`: by their name on the hub, or in a local directory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files.names import plain_name
from pipeline.tasks.examples import ChoiceExample, Passage, Question, Splits, TextExample, index_of, text_of
from pipeline.tasks.files import race, squad
from pipeline.tasks.files.glue import label_of
from pipeline.tasks.task import Task

_UNKNOWN_LABEL = -1


@dataclass(frozen=True)
class HubTexts:
    """The columns of texts or pairs of texts, as in the data set "glue".

    Attributes:
        texts: the column of the text, or the columns of both texts.
        label_order: the classes that the numbers in column "label" stand for; empty for the task's own order.
        extra_subsets: see `HubColumns.extra_subsets`.
    """

    texts: tuple[str, ...]
    label_order: tuple[str, ...] = ()
    extra_subsets: Mapping[str, str] = field(default_factory=dict)

    def read(self, task: Task, split: str, rows: Any, place: str) -> list[TextExample]:
        """See `HubColumns.read`."""
        return list(self._examples(task, split, rows, place))

    def _examples(self, task: Task, split: str, rows: Any, place: str) -> Iterator[TextExample]:
        _check_columns(rows, (*self.texts, "label"), place)
        names = getattr(rows.features["label"], "names", None) or ()
        # If the column names its classes as the task does, the names say which is which; otherwise the numbers do.
        order = tuple(names) if set(names) == set(task.labels) else self.label_order or task.labels
        for_submission = not split.startswith(("train", "dev"))
        for number, row in enumerate(rows):
            here = f"{place}, row {number}"
            first, *second = (text_of(row[column], f"column {column!r}", here) for column in self.texts)
            label: Any = row["label"]
            if label == _UNKNOWN_LABEL or label is None:
                label = None
            elif isinstance(label, int) and task.kind != "regression":
                label = label_of(task, order[label] if 0 <= label < len(order) else str(label), here)
            else:
                label = label_of(task, str(label), here)
            identity = row.get("idx", number) if for_submission else number
            yield TextExample(index_of(str(identity), here), first, next(iter(second), None), label)


@dataclass(frozen=True)
class HubQuestions:
    """The columns of questions about passages, as in the data sets "squad" and "squad_v2"."""

    extra_subsets: Mapping[str, str] = field(default_factory=dict)

    def read(self, task: Task, split: str, rows: Any, place: str) -> list[Question]:
        """See `HubColumns.read`."""
        _check_columns(rows, ("id", "question", "context", "answers"), place)
        passages: dict[str, Passage] = {}
        questions = []
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
            questions.append(question)
        return questions


@dataclass(frozen=True)
class HubChoices:
    """The columns of questions with options, as in the data set "race"."""

    extra_subsets: Mapping[str, str] = field(default_factory=dict)

    def read(self, task: Task, split: str, rows: Any, place: str) -> list[ChoiceExample]:
        """See `HubColumns.read`."""
        _check_columns(rows, ("example_id", "article", "question", "options", "answer"), place)
        count_of: dict[str, int] = {}  # the questions of each passage so far
        examples = []
        for number, row in enumerate(rows):
            name = row["example_id"].removesuffix(".txt")
            index = count_of.get(name, 0)
            count_of[name] = index + 1
            example = race.question_of(
                task,
                f"{name}-{index}",
                row["article"],
                row["question"],
                row["options"],
                row["answer"] or None,
                next((level for level in race.LEVELS if name.startswith(level)), ""),
                f"{place}, row {number}",
            )
            examples.append(example)
        return examples


def read(task: Task, name: str) -> Splits:
    """All splits of the data set `name`: a name on the hub, or a directory.

    Raises:
        UserError: the data set cannot be opened, for the library's reason, or lacks a column of the task.
    """
    if task.hub is None:
        raise UserError(f"--data {name} holds no file of task {task.name}; name the directory with its train split")
    extra_subsets = task.hub.extra_subsets

    def load(subsets: Sequence[str]) -> Any:
        import datasets

        splits = datasets.load_dataset(name, next((wanted for wanted in (task.name, "all") if wanted in subsets), None))
        for subset, split in extra_subsets.items():
            if subset in subsets:
                splits[split] = datasets.load_dataset(name, subset)["test"]
        return splits

    found = open_dataset(name, load, f"--data {name} holds no official file of {task.name}")
    named = our_splits(
        {split: plain_name(split, f"--data {name}").replace("validation", "dev") for split in found}, name
    )
    return {ours: task.hub.read(task, ours, found[split], f"{name}, split {split}") for ours, split in named.items()}


def our_splits(names: Mapping[str, str], data: str) -> dict[str, str]:
    """The splits of a data set by our names.

    Args:
        names: our name of each split.
        data: the data set, for messages.
    Raises:
        UserError: two splits have the same name of ours, such as "validation" and "dev".
    """
    found: dict[str, str] = {}
    for split, ours in names.items():
        if ours in found:
            raise UserError(
                f"--data {data} has the splits {found[ours]} and {split}, and both are the split {ours}; save the data "
                "set with one of them, and name its directory"
            )
        found[ours] = split
    return found


def open_dataset(name: str, load: Callable[[Sequence[str]], Any], before: str) -> Any:
    """The splits of a data set by name (`datasets.DatasetDict`).

    Args:
        name: a directory, or a name on the hub.
        load: loads it from the hub, given the names of its subsets.
        before: what was tried before, for messages.
    Raises:
        UserError: it cannot be opened, for the library's reason.
    """
    if not Path(name).exists() and (name.count("/") > 1 or name.startswith((".", "/", "~"))):
        raise UserError(f"--data {name} does not exist; name a directory, or a data set as the hub has it")
    import datasets  # takes seconds to import, and only this source needs it

    datasets.utils.logging.disable_progress_bar()
    try:
        if (Path(name) / "dataset_dict.json").exists():
            return datasets.load_from_disk(name)
        if Path(name).exists():
            return datasets.load_dataset(name)
        return load(datasets.get_dataset_config_names(name))
    except UserError:
        raise
    # The library raises errors of many types: its readers' and the network's. The user needs the reason and the name.
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"{before}, and `datasets` cannot open it: {reason}; check --data, or the network") from error


def _check_columns(rows: Any, wanted: tuple[str, ...], place: str) -> None:
    for column in wanted:
        if column not in rows.column_names:
            raise UserError(
                f"{place}: there is no column {column!r} among {', '.join(rows.column_names)}; check --data and --task"
            )


def _answers(given: Any, place: str) -> tuple[tuple[str, int], ...]:
    """A question's answers: a list of texts and a list of starts, as on the hub, or pairs, as in the official file."""
    try:
        if isinstance(given, Mapping):
            pairs: Iterable[tuple[Any, Any]] = zip(given["text"], given["answer_start"], strict=True)
        else:
            pairs = ((answer["text"], answer["answer_start"]) for answer in given or ())
        return tuple((text_of(text, "an answer", place), int(start)) for text, start in pairs)
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(
            f"{place}: column 'answers' has no proper text and answer_start ({error}); correct it"
        ) from None
