"""What a kind of task is: one object that owns everything in which tasks of different kinds differ.

A kind is a subclass of `Kind` in `pipeline/tasks/kinds/`, whose `__init__.py` lists them.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from common import PREFIX
from data_prep.text.vocabulary import Vocabulary
from pipeline.tasks.metrics import Interval, bootstrap_interval

if TYPE_CHECKING:
    from model.albert import ModelWithHead
    from model.config import AlbertConfig, ExecutionOptions
    from pipeline.tasks.files.rows import ExampleRow
    from pipeline.tasks.files.tables import Table
    from pipeline.tasks.task import Columns, SpanLimits, Task

SampleOutput = Any
"""The output of the model for one sample, on the host. Each kind of features has its own type."""

Statistic = Callable[[NDArray[np.int64]], float]
"""A metric of some examples, given their numbers (M,); an example may occur several times."""


class Predictions(Protocol):
    """The predictions of one split, of which `len` is the number of examples, and the file that holds them."""

    def __len__(self) -> int: ...

    @property
    def labelled(self) -> bool:
        """Whether there are examples, and all their labels are known."""

    def save(self, path: Path) -> None:
        """Writes the file."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a file that `save` wrote. Raises UserError for any other file."""

    def aligned(self, like: Self) -> Self:
        """The same predictions in the order of `like`. Raises ValueError if the examples differ."""


class Features(Protocol):
    """The samples of one split: examples as inputs of the model.

    A sample is the unit that is sampled, trained on and counted: a text or pair, a window of a passage, or a question
    with options.

    Attributes:
        examples: the number of examples that the samples are made from.
        lengths: int64 (samples,), tokens of each sample.
    """

    examples: int
    lengths: NDArray[np.int64]

    def batch(self, samples: Sequence[int], training: bool) -> Any:
        """The arguments of the model for some samples: a named tuple of arrays with a property `label_count`.

        Args:
            samples: their numbers.
            training: whether the labels for a loss are needed.
        """

    def decode(self, samples: Sequence[int], batch: Any, output: Any) -> list[SampleOutput]:
        """The model's `output` for a batch, taken apart into its samples."""

    def predictions(self, outputs: Mapping[int, SampleOutput]) -> Any:
        """The `Predictions` of the split from the outputs of all its samples."""


class Kind(ABC):
    """A kind of task.

    An example has two attributes that others read: `id`, of a test example the file's own index and of any other the
    number of its row, from 0; and `label`, None if it is not known. torch and `model` are imported inside the
    methods: a command line answers without them.

    Attributes:
        name: in the files of a run.
        model_class: the encoder with the head, as MODULE.CLASS.
        has_output_per_label: whether `model_class` takes the number of labels.
        features: makes the features of one split.
        predictions: the `Predictions` of one split.
        ending: of the files with predictions.
        own_tasks: what --task calls tasks of this kind on own files, each with the default columns.
        has_second_text, has_choices: which columns tasks on own files may name.
        predicts_numbers: whether a prediction is a number, so that there are no classes and no hits to count.
        uses_span_limits: whether `SpanLimits` decide how an example is read.
        in_percent: whether the metrics are percentages already.
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
    own_tasks: ClassVar[Mapping[str, "Columns"]] = {}
    has_second_text: ClassVar[bool] = True
    has_choices: ClassVar[bool] = False
    predicts_numbers: ClassVar[bool] = False
    uses_span_limits: ClassVar[bool] = False
    in_percent: ClassVar[bool] = False
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
        self, task: "Task", vocabulary: Vocabulary, examples: Sequence[Any], max_length: int, limits: "SpanLimits"
    ) -> Features:
        """Makes the features of one split."""
        return self.features(task, vocabulary, examples, max_length)

    def find_labels(self, table: "Table", columns: "Columns") -> tuple[str, ...]:
        """The names of the labels of a task on own files, from its training rows. Raises UserError if they are none."""
        raise NotImplementedError

    def kind_for(self, examples: Sequence[Any]) -> str:
        """The name of the kind of a task on own files with these training examples: this one, or a variant of it."""
        return self.name

    def choose_metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        """The metrics of a task on own files; the first one chooses the best step."""
        raise NotImplementedError

    def note(self, labels: Sequence[str]) -> str:
        """What a person should know of how a task on own files is scored; "" for nothing."""
        return ""

    @abstractmethod
    def read_row(self, row: "ExampleRow", labels: Sequence[str]) -> Any:
        """The example in a row of a table. Raises UserError, with file and line, for broken content."""

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

    def interval(self, task: "Task", metric: str, predictions: Any, seed: int = 0) -> Interval:
        """The 95 % interval of a metric, in the unit of `statistic`. The labels must be known."""
        return bootstrap_interval(self.statistic(task, metric, predictions), len(predictions), seed)

    def example_row(self, task: "Task") -> dict[str, Any]:
        """A row of a table that the kind reads, for the model card."""
        columns = task.input_columns
        assert columns is not None
        names = (columns.text, columns.second_text, *columns.choices)
        return {name: "This is a text." for name in names if name is not None}

    def head_fields(self, task: "Task") -> dict[str, Any]:
        """The fields of an export's config.json for the head, in the terms of `transformers`."""
        fields: dict[str, Any] = {"finetuning_task": task.name}
        if task.labels:
            fields["id2label"] = dict(enumerate(task.labels))
            fields["label2id"] = {label: number for number, label in enumerate(task.labels)}
        fields |= {} if self.architecture is None else {"architectures": [self.architecture]}
        return fields | ({"problem_type": self.problem_type} if self.problem_type else {})
