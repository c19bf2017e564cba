"""What a task is, and what a kind of task is.

A `Kind` is one object that owns everything in which tasks of different kinds differ. Its subclasses are in
`pipeline/tasks/kinds/`. A `Task` has a kind, and its own labels, metrics, files, submissions and hyperparameters. The
paper's tasks are made in `registry`; any other one can be made at run time.
"""

import importlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from common import PREFIX
from common.files import atomic
from common.files.json_files import Positive
from common.intervals import Interval, bootstrap_interval
from data_prep.text.vocabulary import Vocabulary
from pipeline.tasks.files.rows import Columns, ExampleRow, Labelling, check_columns, rows_of
from pipeline.tasks.files.tables import Table
from pipeline.tasks.metrics import Estimate

if TYPE_CHECKING:
    from model.albert import ModelWithHead
    from model.config import AlbertConfig, ExecutionOptions

Examples = Sequence[Any]  # the examples of one split; each kind of task has its own type
Splits = dict[str, Sequence[Any]]
"""Examples by split: train, dev and test. MNLI has dev_matched, dev_mismatched, test_matched, test_mismatched and
diagnostic instead of dev and test."""
SampleOutput = Any  # the output of the model for one sample, on the host; each kind of features has its own type

Statistic = Callable[[NDArray[np.int64]], float]
"""A metric of some examples, given their numbers (M,); an example may occur several times."""


class Features(Protocol):
    """The samples of one split, `examples` examples as inputs of the model, and the tokens of each, int64 (samples,).

    A sample is the unit that is sampled, trained on and counted: a text or pair, a window of a passage, or a question
    with options. Of `cut` examples a part is not read, because they are too long.
    """

    examples: int
    cut: int
    lengths: NDArray[np.int64]

    def batch(self, samples: Sequence[int], training: bool) -> Any:
        """The arguments of the model for some samples, by number: a named tuple of arrays with a `label_count`.

        `training`: whether the labels for a loss are needed.
        """

    def decode(self, samples: Sequence[int], batch: Any, output: Any) -> list[SampleOutput]:
        """The model's `output` for a batch, taken apart into its samples."""

    def predictions(self, outputs: Mapping[int, SampleOutput]) -> Any:
        """The predictions of the split (`Kind.predictions`) from the outputs of all its samples."""


@dataclass(frozen=True)
class Hyperparameters:
    """The defaults of a task's fine-tuning (Table 14 of the paper).

    Attributes:
        learning_rate: peak of a linear warm-up and decay.
        batch_size: samples in an optimizer step.
        dropout: inside the encoder; that of the classifier is 0.1 for every task.
        steps, warmup_steps: optimizer steps; both None if `epochs`, passes over the training examples, decides.
        max_length: tokens of the longest sequence, special tokens included.
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
class SpanLimits:
    """The limits of windows and answers (SQuAD), with the paper's values as defaults.

    `max_query_length` and `max_answer_length` are in tokens.
    """

    doc_stride: Positive = 128  # tokens from the start of one window to the start of the next one
    max_query_length: Positive = 64  # only the first tokens of the question are kept
    max_answer_length: Positive = 30
    nbest: Positive = 20  # answers that are kept for each question


class Kind(ABC):
    """A kind of task.

    An example has two attributes that others read: `id`, of a test example the file's own index and of any other the
    number of its row, from 0; and `label`, None if it is not known. torch and `model` are imported inside the
    methods: a command line answers without them.

    Attributes:
        name: in the files of a run.
        model_class: the encoder with the head, as MODULE.CLASS.
        has_output_per_label: whether `model_class` takes the number of labels.
        features: the type of those of one split.
        predictions: the type of those of one split, and of the file that holds them, such as `Logits`.
        ending: of the files with predictions.
        own_tasks: what --task calls tasks of this kind on own files, each with the default columns.
        has_second_text, has_choices: which columns tasks on own files may name.
        predicts_numbers: whether a prediction is a number, so that there are no classes and no hits to count.
        uses_span_limits: whether `SpanLimits` decide how an example is read.
        best_by: the metric that chooses the best step of a task on own files; None for its first one.
        record_names: the keys of `records`.
        architecture: the class of `transformers` that opens an export; None if it has none.
        problem_type: of an export, as `transformers` calls it; "" for none.
        pipeline_tag: the hub's name of what such a model does.
        pipeline_input: Python, the arguments of a pipeline of `transformers` for one text; "" if it has no pipeline.
    """

    name: ClassVar[str]
    model_class: ClassVar[str]
    has_output_per_label: ClassVar[bool] = True
    features: ClassVar[Callable[..., Features]]
    predictions: ClassVar[type[Any]]
    ending: ClassVar[str] = ".npz"
    own_tasks: ClassVar[Mapping[str, Columns]] = {}
    has_second_text: ClassVar[bool] = True
    has_choices: ClassVar[bool] = False
    predicts_numbers: ClassVar[bool] = False
    uses_span_limits: ClassVar[bool] = False
    best_by: ClassVar[str | None] = None
    record_names: ClassVar[tuple[str, ...]]
    architecture: ClassVar[str | None] = None
    problem_type: ClassVar[str] = ""
    pipeline_tag: ClassVar[str] = ""
    pipeline_input: ClassVar[str] = '"This is a text."'

    def check(self, task: "Task") -> None:  # noqa: B027 - a kind without labels has nothing to check
        """Raises ValueError for labels that do not suit the kind."""

    def sequences_per_sample(self, task: "Task") -> int:
        """How many sequences the model reads for one sample."""
        return 1

    def make_model(
        self, task: "Task", config: "AlbertConfig", execution: "ExecutionOptions | None" = None
    ) -> "ModelWithHead":
        """Makes the encoder with the head of the task, with random weights."""
        module, _, name = self.model_class.rpartition(".")
        sizes = [len(task.labels)] if self.has_output_per_label else []
        model: ModelWithHead = getattr(importlib.import_module(PREFIX + module), name)(config, *sizes, execution)
        return model

    def make_features(
        self, task: "Task", vocabulary: Vocabulary, examples: Examples, max_length: int, limits: SpanLimits
    ) -> Features:
        """Makes the features of one split."""
        return self.features(task, vocabulary, examples, max_length)

    def find_labels(self, table: Table, columns: Columns) -> tuple[str, ...]:
        """The names of the labels of a task on own files, from its training rows. Raises UserError if they are none."""
        raise NotImplementedError

    def kind_for(self, examples: Sequence[Any]) -> str:
        """The name of the kind of a task on own files with these training examples: this one, or a variant of it."""
        return self.name

    def choose_metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        """The metrics of a task on own files. The first one, of which higher is better, chooses the best step."""
        raise NotImplementedError

    def note(self, labels: Sequence[str]) -> str:
        """What a person should know of how a task on own files is scored; "" for nothing."""
        return ""

    @abstractmethod
    def read_row(self, row: ExampleRow, labels: Sequence[str]) -> Any:
        """The example in a row of a table. Raises UserError, with file and line, for broken content."""

    def read_examples(
        self, table: Table, columns: Columns, labels: Sequence[str], labelling: Labelling = "required"
    ) -> Examples:
        """The examples of one split; `labels` are those of the task, in the order of the logits.

        Raises UserError, with file and line: a column is missing, a text is empty or no text, or a label is missing,
        unknown or no number.
        """
        check_columns(table, columns, labelling == "required")
        return [self.read_row(row, labels) for row in rows_of(table, columns, labelling)]

    def spell(self, task: "Task", predictions: Any) -> list[str]:
        """Each prediction as a leaderboard takes it."""
        raise NotImplementedError

    @abstractmethod
    def records(self, task: "Task", predictions: Any) -> dict[str, dict[str, Any]]:
        """The prediction of each example, by its id, as plain values with the names of the labels."""

    @abstractmethod
    def metrics(self, task: "Task", predictions: Any) -> dict[str, float]:
        """The metrics of one split, by name; empty if its labels are not known. Raises ValueError if they cannot be."""

    @abstractmethod
    def statistic(self, task: "Task", metric: str, predictions: Any) -> Statistic:
        """A metric of the task, 0 to 1 where it is a share. Raises ValueError if the labels are not known."""

    @abstractmethod
    def majority(self, task: "Task", predictions: Any) -> Any:
        """The predictions of a model that always gives the most frequent answer. The labels must be known."""

    def interval(self, task: "Task", metric: str, predictions: Any) -> Interval:
        """The 95 % interval of a metric, in the unit of `statistic`. The labels must be known."""
        return bootstrap_interval(self.statistic(task, metric, predictions), len(predictions))

    def example_row(self, task: "Task") -> dict[str, Any]:
        """A row of a table that the kind reads, for the model card."""
        columns = task.input_columns
        assert columns is not None
        names = (columns.text, columns.second_text, *columns.choices)
        return {name: "This is a text." for name in names if name is not None}

    def head_fields(self, task: "Task") -> dict[str, Any]:
        """The fields of an export's config.json for the head, in the terms of `transformers`."""
        numbers = {label: number for number, label in enumerate(task.labels)}
        fields: dict[str, Any] = {"finetuning_task": task.name}
        fields |= {"id2label": dict(enumerate(task.labels)), "label2id": numbers} if task.labels else {}
        fields |= {} if self.architecture is None else {"architectures": [self.architecture]}
        return fields | ({"problem_type": self.problem_type} if self.problem_type else {})


class TaskFiles(ABC):
    """The files that a task is published as, its data set on the Hugging Face hub, and its submission.

    Attributes:
        table_columns: the columns of a table with such examples.
        extra_subsets: further subsets of the data set: the test split of subset KEY is the task's split VALUE.
    """

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
    def write_submission(self, task: "Task", split: str, predictions: Any, directory: Path) -> None:
        """Writes the predictions as the leaderboard takes them; nothing for a split that it does not take."""


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        name: on the command line and in the files of a run.
        labels: names of the head's outputs, in the order of the logits: the classes, the options, or the one number.
            Empty for spans.
        metrics: what is reported; the first is the one of the paper's tables.
        best_by: the metric that chooses the best step; None for the first of `metrics`.
        value_range: lowest and highest value of a regression.
        dev_splits: the splits that are evaluated while training; the first one chooses the best step.
        files: its official files; None if it has none.
        columns: of the user's own files; None for a task that is known by its name.

    Raises:
        ValueError: labels that do not suit the kind, or a label twice.
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
    def splits(self) -> tuple[str, ...]:
        """The training split, those of `dev_splits`, and their test splits."""
        return "train", *self.dev_splits, *(name.replace("dev", "test") for name in self.dev_splits)

    @property
    def input_columns(self) -> Columns | None:
        """The columns of a table with examples; None if they are not known."""
        return self.columns or (None if self.files is None else self.files.table_columns)

    def write_submission(self, split: str, predictions: Any, directory: Path) -> None:
        """Writes the submission of one split: JSON Lines for a task without official files."""
        if self.files is not None:
            self.files.write_submission(self, split, predictions, directory)
            return
        records = self.kind.records(self, predictions)
        order = sorted(records, key=int) if all(name.isdecimal() for name in records) else list(records)
        lines = [json.dumps({"id": name, **records[name]}, ensure_ascii=False) + "\n" for name in order]
        atomic.write_text(directory / f"{split}.jsonl", "".join(lines))

    def estimate(self, predictions: Any) -> Estimate | None:
        """The first metric on one split (SQuAD: F1); None if the labels are not known."""
        kind, metric = self.kind, self.metrics[0]
        if not predictions.labelled:
            return None
        every = np.arange(len(predictions))
        value, majority = (
            kind.statistic(self, metric, tested)(every) for tested in (predictions, kind.majority(self, predictions))
        )
        low, high = kind.interval(self, metric, predictions)
        return Estimate(100 * value, (100 * low, 100 * high), 100 * majority)
