"""What a task is: one object that owns its labels, metrics, files, submissions and hyperparameters.

A `Task` is made of small parts. The paper's tasks are made in `registry`; any other one can be made at run time.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from common.files import atomic
from common.files.json_files import Positive
from pipeline.tasks.kind import Kind

Examples = Sequence[Any]
"""The examples of one split; each kind of task has its own type."""
Splits = dict[str, Sequence[Any]]
"""Examples by split: train, dev and test. MNLI has dev_matched, dev_mismatched, test_matched, test_mismatched and
diagnostic instead of dev and test."""


@dataclass(frozen=True)
class Hyperparameters:
    """The defaults of a task's fine-tuning (Table 14 of the paper).

    Attributes:
        learning_rate: peak of a linear warm-up and decay.
        batch_size: samples in an optimizer step: texts or pairs, windows of a passage, questions with their options.
        dropout: inside the encoder; that of the classifier is 0.1 for every task.
        steps, warmup_steps: optimizer steps; both None if `epochs` decides.
        max_length: tokens of the longest sequence, special tokens included.
        epochs: passes over the training examples, where there is no number of steps.
    """

    learning_rate: float
    batch_size: int
    dropout: float
    steps: int | None
    warmup_steps: int | None
    max_length: int = 512
    epochs: float = 3.0

    @property
    def warmup_fraction(self) -> float:
        """The part of the steps that is warm-up."""
        return 0.1 if self.steps is None or self.warmup_steps is None else self.warmup_steps / self.steps


def steps_of_epochs(epochs: float, examples: int, batch_size: int) -> int:
    """The number of steps, at least 1, in which each example is seen `epochs` times if it has one window."""
    return max(1, math.ceil(epochs * examples / batch_size))


@dataclass(frozen=True)
class Columns:
    """The columns of tables with a task's examples.

    Attributes:
        text: the text; the tokens of tagging; the passage of questions with choices.
        second_text: the second text of a pair, or the question; None if there is none.
        label: the label, the number, the tags or the right choice.
        choices: a column for each choice, or one column with a list of them.
    """

    text: str
    second_text: str | None = None
    label: str = "label"
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class SpanLimits:
    """The limits of windows and answers (SQuAD), with the paper's values as defaults.

    Attributes:
        doc_stride: tokens from the start of one window to the start of the next one.
        max_query_length: the largest number of tokens of the question; only the first ones are kept.
        max_answer_length: tokens of the longest answer.
        nbest: the number of answers that are kept for each question.
    """

    doc_stride: Positive = 128
    max_query_length: Positive = 64
    max_answer_length: Positive = 30
    nbest: Positive = 20


class TaskFiles(ABC):
    """The files that a task is published as, its data set on the Hugging Face hub, and its submission.

    Attributes:
        archives: directories, below a root with the data of many tasks, that may hold this task's files.
        table_columns: the columns of a table with such examples.
        extra_subsets: further subsets of the data set: the test split of subset KEY is the task's split VALUE.
    """

    archives: tuple[str, ...]
    table_columns: Columns
    extra_subsets: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def find(self, task: "Task", directory: Path) -> dict[str, list[Path]]:
        """The files in `directory`, by split; empty if there are none."""

    @abstractmethod
    def read(self, task: "Task", split: str, files: list[Path]) -> Examples:
        """The examples of one split. Raises UserError, with file and line, for broken content."""

    @abstractmethod
    def read_dataset(self, task: "Task", split: str, rows: Any, place: str) -> Examples:
        """The examples in `rows` (a `datasets.Dataset`). Raises UserError, which names `place`, for broken content."""

    @abstractmethod
    def write_submission(self, task: "Task", split: str, predictions: Any, directory: Path) -> list[Path]:
        """Writes the predictions as the leaderboard takes them; returns the files, none for a split without one."""


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        name: on the command line and in the files of a run.
        kind: head, features, predictions and metrics.
        hyperparameters: the defaults of its fine-tuning.
        labels: names of the head's outputs, in the order of the logits: the classes, the options, or the one number.
            Empty for spans.
        metrics: what is reported; the first is the one of the paper's tables.
        best_by: the metric that chooses the best step; None for the first of `metrics`.
        value_range: lowest and highest value of a regression.
        dev_splits: the splits that are evaluated while training; the first one chooses the best step.
        files: its official files; None if it has none.
        starts_from: the task whose fine-tuned model the paper starts from (section 4.9); None for a pre-trained one.
        columns: of the user's own files; None for a task that is known by its name.

    Raises:
        ValueError: labels or metrics that do not suit the kind.
    """

    name: str
    kind: Kind
    hyperparameters: Hyperparameters
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)
    best_by: str | None = None
    value_range: tuple[float, float] = (0.0, 1.0)
    dev_splits: tuple[str, ...] = ("dev",)
    files: TaskFiles | None = None
    starts_from: str | None = None
    columns: Columns | None = None

    def __post_init__(self) -> None:
        self.kind.check(self)
        if len(set(self.labels)) != len(self.labels):
            raise ValueError(f"task {self.name} has a label twice: {', '.join(self.labels)}")

    @property
    def score(self) -> str:
        """The name of the metric that chooses the best step."""
        return self.best_by or self.metrics[0]

    @property
    def input_columns(self) -> Columns | None:
        """The columns of a table with examples; None if they are not known."""
        return self.columns or (None if self.files is None else self.files.table_columns)

    def write_submission(self, split: str, predictions: Any, directory: Path) -> list[Path]:
        """Writes the submission of one split, and returns its files.

        A task without official files gets JSON Lines with one object for each example, see `Kind.records`.
        """
        if self.files is not None:
            return self.files.write_submission(self, split, predictions, directory)
        records = self.kind.records(self, predictions)
        order = sorted(records, key=int) if all(name.isdecimal() for name in records) else list(records)
        lines = [json.dumps({"id": name, **records[name]}, ensure_ascii=False) + "\n" for name in order]
        atomic.write_text(directory / f"{split}.jsonl", "".join(lines))
        return [directory / f"{split}.jsonl"]

    def in_percent(self, value: float) -> float:
        """The value of a metric in percent. Metrics of SQuAD are percentages already."""
        return value if self.kind.in_percent else 100 * value
