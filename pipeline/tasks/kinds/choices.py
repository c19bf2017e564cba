"""Questions with options about a passage: RACE."""

import dataclasses
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from data_prep.text.vocabulary import Vocabulary
from pipeline.tasks.files.rows import Columns, ExampleRow, name_of
from pipeline.tasks.files.tables import Table
from pipeline.tasks.kinds.logits import Logits, LogitsKind
from pipeline.tasks.kinds.row_packing import EncodedTexts, SegmentPair
from pipeline.tasks.kinds.texts import TextFeatures
from pipeline.tasks.task import Task

LEVELS = ("middle", "high")  # of RACE's questions
MAX_QUERY_LENGTH = 128  # the largest number of tokens of question + option; only the last ones are kept

_BLANK = re.compile(r"_+")


@dataclass(frozen=True)
class ChoiceExample:
    """A question of RACE, the number of the right option, and "middle" or "high", as far as they are known."""

    id: str
    passage: str
    question: str
    options: tuple[str, ...]
    label: int | None = None
    level: str = ""


class ChoiceFeatures(TextFeatures):
    """The features of questions; a sample is one question with its K options."""

    def __init__(self, task: Task, vocabulary: Vocabulary, examples: Sequence[ChoiceExample], max_length: int) -> None:
        """Cuts the passage if question, option and passage have more than `max_length` tokens."""
        self.describe(task, examples)
        self._levels = np.array([example.level for example in examples])
        self.options = (len(task.labels),)
        self._max_length = max_length
        self._query_length = min(MAX_QUERY_LENGTH, max_length // 2)
        distinct = dict.fromkeys(example.passage for example in examples)
        numbers = {passage: number for number, passage in enumerate(distinct)}
        self._passage_of = [numbers[example.passage] for example in examples]
        self._passages = EncodedTexts(vocabulary, list(distinct))
        asked = [query(example.question, option) for example in examples for option in example.options]
        self._queries = EncodedTexts(vocabulary, asked)
        whole = self._queries.lengths.reshape(-1, *self.options)  # (samples, K)
        queries = np.minimum(whole, self._query_length)  # (samples, K)
        with_passage = queries + self._passages.lengths[self._passage_of, None] + 3  # (samples, K)
        self.lengths = np.minimum(with_passage, max_length).sum(axis=1)
        self.cut = int(((whole > queries) | (with_passage > max_length)).any(axis=1).sum())

    def segments(self, sample: int) -> list[SegmentPair]:
        """The passage and the question with each option, as tokens, K pairs."""
        passage, (count,) = self._passages[self._passage_of[sample]], self.options
        queries = [self._queries[sample * count + option][-self._query_length :] for option in range(count)]
        return [(passage[: self._max_length - 3 - len(asked)], asked) for asked in queries]

    def predictions(self, outputs: Mapping[int, NDArray[np.float32]]) -> Logits:
        return dataclasses.replace(super().predictions(outputs), levels=self._levels)


def query(question: str, option: str) -> str:
    """Question and option as one text: the option replaces each blank, or follows a question without a blank."""
    if "_" in question:
        return _BLANK.sub(lambda _: option, question)
    return f"{question} {option}"


class Choice(LogitsKind):
    """One of several options."""

    name = "choice"
    own_tasks: ClassVar = {"multiple-choice": Columns("text")}
    model_class = "model.classification.AlbertForMultipleChoice"
    has_output_per_label = False
    features = ChoiceFeatures
    has_choices = True
    architecture = "AlbertForMultipleChoice"
    pipeline_tag = "multiple-choice"
    pipeline_input = ""

    def sequences_per_sample(self, task: Task) -> int:
        """One for each option."""
        return len(task.labels)

    def check(self, task: Task) -> None:
        super().check(task)
        if task.columns is not None and not task.columns.choices:
            raise ValueError(f"task {task.name} has no columns of choices")

    def find_labels(self, table: Table, columns: Columns) -> tuple[str, ...]:
        """The choices: called as their columns, or by their numbers from 0 if one column has a list of them."""
        if len(columns.choices) > 1:
            return columns.choices
        row = ExampleRow(table, 0, columns)
        if (count := len(_options(row))) < 2:
            raise row.mistake(f"column {columns.choices[0]!r} holds {count} choices; give at least two")
        return tuple(map(str, range(count)))

    def choose_metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("accuracy",)

    def read_row(self, row: ExampleRow, labels: Sequence[str]) -> ChoiceExample:
        """See `Kind.read_row`. The level is the beginning of the id, as in "high19088.txt"."""
        options, columns = _options(row), row.columns
        if len(options) != len(labels):
            remedy = "give every row as many as the first training row"
            raise row.mistake(f"{len(options)} choices instead of {len(labels)}; {remedy}")
        question = "" if columns.second_text is None else row.text(columns.second_text, may_be_empty=True)
        level = next((level for level in LEVELS if row.id.startswith(level)), "")
        return ChoiceExample(row.id, row.text(columns.text), question, options, _right_option(row, labels), level)

    def example_row(self, task: Task) -> dict[str, Any]:
        row = super().example_row(task)
        assert task.input_columns is not None
        (first, *others) = task.input_columns.choices
        return row if others else row | {first: list(task.labels)}

    def metrics(self, task: Task, predictions: Logits) -> dict[str, float]:
        """The metrics, and the accuracy of each level that has questions."""
        values = super().metrics(task, predictions)
        if predictions.labels is None or predictions.levels is None:
            return values
        right = predictions.predictions() == predictions.labels  # (N,)
        for level in LEVELS:
            if (chosen := predictions.levels == level).any():
                values[level] = float(right[chosen].mean())
        return values


def _options(row: ExampleRow) -> tuple[str, ...]:
    choices = row.columns.choices
    if len(choices) > 1:
        return tuple(row.text(name) for name in choices)
    return row.texts(choices[0], f"a choice in column {choices[0]!r}")


def _right_option(row: ExampleRow, labels: Sequence[str]) -> int | None:
    """The number of the right option, which is given as a column's name, a number from 0, or a letter from A."""
    name, count = row.name_of(row.label), len(labels)
    if name is None:
        return None
    columns, numbers = [str(name_of(label)) for label in labels], list(map(str, range(count)))
    if columns != numbers and not set(columns).isdisjoint(numbers):
        numbers = columns  # such as 1 to 4, beside which a number from 0 could mean either
    for names in (columns, numbers, list(string.ascii_uppercase[:count])):
        if name in names:
            return names.index(name)
    number = "" if numbers is columns else f"nor a number from 0 to {count - 1}, "
    known = f"{', '.join(map(repr, labels))}, {number}nor a letter"
    raise row.mistake(f"the right choice {name!r:.80} is none of {known}; correct it")
