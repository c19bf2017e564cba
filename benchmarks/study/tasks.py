"""The tasks below --data-root that the study can use, their sizes, and which of them the hours suffice for."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.study.plan import Plan
from data_prep.text.vocabulary import Vocabulary
from pipeline.finetuning.fine_tuning import make_features
from pipeline.tasks.files import reading
from pipeline.tasks.task import SpanLimits, Task


@dataclass(frozen=True)
class TaskSize:
    """The size of a task.

    Attributes:
        data: directory of its official files.
        samples: of the training set: texts or pairs, all options of a question, or windows of a passage.
        mean_tokens: of a training sample.
        dev_examples: examples in the dev set.
    """

    data: Path
    samples: int
    mean_tokens: float
    dev_examples: int


def fits(task: Task, splits: Collection[str]) -> bool:
    """Whether the study can use a task: it has a training set and a dev set.

    WNLI is left out: its dev set has sentences of the training set with other labels, so what is learned is wrong.
    """
    return task.name != "wnli" and {"train", task.dev_splits[0]} <= set(splits)


def size_of(task: Task, data: Path, vocabulary: Vocabulary, plan: Plan) -> TaskSize:
    """Reads the files of a task. Raises UserError if they have a mistake."""
    splits = reading.read(task, str(data))
    limits = SpanLimits(doc_stride=plan.stride)
    lengths = make_features(task, vocabulary, {"train": splits["train"]}, plan.length, limits)["train"].lengths
    return TaskSize(data, len(lengths), float(lengths.mean()), len(splits[task.dev_splits[0]]))


def affordable(sizes: Mapping[str, TaskSize], tokens: float, plan: Plan) -> list[str]:
    """The names of the tasks that this many tokens suffice for, at least one.

    Runs that are too short show nothing. So there are fewer tasks rather than shorter runs, and those with most
    examples in their dev sets, because their intervals are narrowest.
    """
    count = max(1, int(tokens // plan.task_tokens))
    kept = sorted(sizes, key=lambda name: sizes[name].dev_examples, reverse=True)[:count]
    return [name for name in sizes if name in kept]
