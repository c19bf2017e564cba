"""Predictions as arrays in .npz files, and what the kinds share whose predictions are logits of examples."""

import contextlib
import dataclasses
import io
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError, one_line
from common.files import atomic
from common.files.json_files import read_bytes
from pipeline.tasks.kind import Example, Kind, Statistic
from pipeline.tasks.metrics import METRICS, Interval, check_values, compute, find_metric, softmax
from pipeline.tasks.task import Task

MAX_BYTES = 4 << 30
_REMEDY = "fine-tune again, or name another run"


@dataclass(frozen=True)
class Arrays(ABC):
    """Arrays of one split in an .npz file. A subclass has further arrays, of which some may be None.

    Attributes:
        ids: (N,) text; the example of each row. The order of the examples has no meaning.
        logits: float32; the first dimension is that of the labels.
        labels: the true values; None if they are not known.
    """

    ids: NDArray[np.str_]
    logits: NDArray[np.float32]
    labels: NDArray | None = None

    shapes: ClassVar[Mapping[str, tuple[str, int]]] = {"ids": ("U", 1), "logits": ("f", 2), "labels": ("iuf", 1)}
    """By name of an array, the kinds of its dtype and the number of its dimensions."""

    def __post_init__(self) -> None:
        if len(set(self.ids.tolist())) != len(self.ids):
            raise ValueError("an id occurs twice")

    @abstractmethod
    def aligned(self, ids: NDArray[np.str_]) -> Self:
        """The same examples in the order of `ids`. Raises ValueError if `ids` are not those of these examples."""

    def arrays(self) -> dict[str, NDArray]:
        """The arrays that there are, by name."""
        arrays = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: array for name, array in arrays.items() if array is not None}

    def predictions(self) -> NDArray:
        """The class or option with the largest logit; if there is only one logit, the logit itself."""
        return self.logits[:, 0] if self.logits.shape[1] == 1 else self.logits.argmax(axis=1)

    def save(self, path: Path) -> None:
        """Writes the arrays to `path`, an .npz file."""
        with atomic.replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **self.arrays())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a file that `save` wrote. Raises UserError for any other file."""
        with _arrays_in(path) as arrays:
            found = cls(**arrays)
            found._check_values()
        return found

    def _check_values(self) -> None:
        """Raises ValueError for arrays of other types or shapes than `save` writes, or numbers that cannot be."""
        found = self.arrays()
        for name, array in found.items():
            kinds, dimensions = self.shapes[name]
            if array.dtype.kind not in kinds or array.ndim != dimensions:
                raise ValueError(f"{name} are {array.dtype}, {array.shape}")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"{name} hold NaN or infinity")
        classes, labels = self.logits.shape[1], self.labels
        if not classes:
            raise ValueError("no logits")
        if labels is not None and classes > 1 and not ((labels >= 0) & (labels < classes)).all():
            raise ValueError(f"a label is none of the {classes} classes")

    def _order(self, wanted: NDArray[np.str_]) -> NDArray[np.int64]:
        """The row of each of the ids `wanted`. Raises ValueError if they are not the ids of these examples."""
        rows = {name: row for row, name in enumerate(self.ids.tolist())}
        if len(wanted) != len(rows) or any(name not in rows for name in wanted.tolist()):
            raise ValueError(f"{len(rows)} examples are not the {len(wanted)} of the other run")
        return np.array([rows[name] for name in wanted.tolist()], dtype=np.int64)


@dataclass(frozen=True)
class Logits(Arrays):
    """The logits of examples: (N, classes), (N, 1) for a number, or (N, options).

    Attributes:
        levels: (N,) text; RACE only: "middle" or "high", "" where the level is not known.

    Raises:
        ValueError: arrays of different lengths, or an id that occurs twice.
    """

    levels: NDArray[np.str_] | None = None

    shapes: ClassVar = {**Arrays.shapes, "levels": ("U", 1)}

    def __post_init__(self) -> None:
        for name, array in self.arrays().items():
            if len(array) != len(self.ids):
                raise ValueError(f"{len(self.ids)} ids, but {len(array)} {name}")
        super().__post_init__()

    def aligned(self, ids: NDArray[np.str_]) -> Self:
        """See `Arrays.aligned`."""
        order = self._order(ids)
        return dataclasses.replace(self, **{name: array[order] for name, array in self.arrays().items()})


@contextlib.contextmanager
def _arrays_in(path: Path) -> Iterator[dict[str, NDArray]]:
    """The arrays in an .npz file, by name. Errors of values in the block become a UserError."""
    content = io.BytesIO(read_bytes(path, _REMEDY, MAX_BYTES))
    try:
        with np.load(content, allow_pickle=False) as arrays:
            given = {name: arrays[name] for name in arrays.files}
        yield given
    except (OSError, ValueError, TypeError, LookupError, EOFError, RuntimeError, MemoryError) as error:
        raise UserError(f"{path} holds no logits ({one_line(error)}); {_REMEDY}") from None
    except (zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} is damaged ({one_line(error)}); {_REMEDY}") from None


def check_labels(task: Task, further_metrics: Sequence[str] = ()) -> None:
    """Raises ValueError if a task has no two labels (a number: not one), or unknown metrics."""
    if unknown := set(task.metrics) - METRICS.keys() - set(further_metrics):
        raise ValueError(f"task {task.name} has an unknown metric: {', '.join(sorted(unknown))}")
    if task.score not in task.metrics:
        raise ValueError(f"task {task.name} has no metric {task.score!r} to choose the best step by")
    wanted = "one label" if task.kind.predicts_numbers else "at least two labels"
    if (len(task.labels) == 1) != task.kind.predicts_numbers or not task.labels:
        raise ValueError(f"task {task.name} is a {task.kind.name} and needs {wanted}; it has {len(task.labels)}")


A = TypeVar("A", bound=Arrays)
E = TypeVar("E", bound=Example)


class ArraysKind(Kind[E, A], Generic[E, A]):
    """A kind whose predictions are `Arrays`.

    Attributes:
        arrays: the class of the predictions.
    """

    arrays: ClassVar[type[Arrays]]

    def save(self, path: Path, predictions: A) -> None:
        """See `Kind.save`."""
        predictions.save(path)

    def load(self, path: Path) -> A:
        """See `Kind.load`."""
        return self.arrays.load(path)  # type: ignore[return-value]

    def count(self, predictions: A) -> int:
        """See `Kind.count`."""
        return len(predictions.ids)

    def is_labelled(self, predictions: A) -> bool:
        """See `Kind.is_labelled`."""
        return predictions.labels is not None

    def align(self, predictions: A, like: A) -> A:
        """See `Kind.align`."""
        return predictions.aligned(like.ids)

    def average(self, members: Sequence[A]) -> A:
        """The mean of the members' logits of each example. Also raises ValueError if labels or shapes differ."""
        first = members[0]
        aligned = [first, *(self.align(member, first) for member in members[1:])]
        for member in aligned[1:]:
            if member.logits.shape != first.logits.shape:
                raise ValueError(f"logits are {member.logits.shape} and {first.logits.shape}")
            known = first.labels is not None and member.labels is not None
            if known and not np.array_equal(first.labels, member.labels):  # type: ignore[arg-type]
                raise ValueError("the labels differ")
        mean = np.stack([member.logits for member in aligned]).mean(axis=0, dtype=np.float64)  # (N, C)
        return dataclasses.replace(first, logits=mean.astype(np.float32))

    def majority(self, task: Task, predictions: A) -> A:
        """See `Kind.majority`. For numbers it is their mean."""
        labels = predictions.labels
        assert labels is not None
        if task.kind.predicts_numbers:
            answer = np.array([labels.mean()])  # (1,)
        else:
            counts = np.bincount(labels.astype(np.int64), minlength=len(task.labels))  # (C,)
            answer = counts == counts.max()  # (C,)
        return dataclasses.replace(predictions, logits=np.broadcast_to(answer, (len(labels), len(answer))))


class LogitsKind(ArraysKind[E, Logits], Generic[E]):
    """A kind whose predictions are `Logits`, one row for each example."""

    arrays = Logits
    record_names: ClassVar[tuple[str, ...]] = ("prediction", "probability", "probabilities")

    def check(self, task: Task) -> None:
        """See `Kind.check`."""
        check_labels(task)

    def metrics(self, task: Task, predictions: Logits) -> dict[str, float]:
        """See `Kind.metrics`."""
        if predictions.labels is None:
            return {}
        return compute(task.metrics, predictions.predictions(), predictions.labels)

    def statistic(self, task: Task, metric: str, predictions: Logits) -> Statistic:
        """See `Kind.statistic`."""
        if predictions.labels is None:
            raise ValueError("the labels are not known")
        function = find_metric(metric).function
        predicted, true = check_values(predictions.predictions(), predictions.labels)  # (N,) each
        return lambda rows: function(predicted[rows], true[rows])

    def interval(self, task: Task, metric: str, predictions: Logits, seed: int = 0) -> Interval:
        """Accuracy: Wilson's interval. Correlations: Fisher's. Any other metric: a bootstrap over the examples."""
        formula, count = find_metric(metric).interval, len(predictions.ids)
        if formula is None:
            return super().interval(task, metric, predictions, seed)
        return formula(self.statistic(task, metric, predictions)(np.arange(count)), count)

    def spell(self, task: Task, predictions: Logits) -> list[str]:
        """Each prediction as a leaderboard takes it."""
        return [task.labels[label] for label in predictions.predictions()]

    def records(self, task: Task, predictions: Logits) -> dict[str, dict[str, Any]]:
        """The name with the highest probability as "prediction", its "probability", and all "probabilities"."""
        found = softmax(predictions.logits)  # (N, C)
        return {
            name: {
                "prediction": task.labels[best],
                "probability": row[best],
                "probabilities": dict(zip(task.labels, row)),
            }
            for name, best, row in zip(predictions.ids.tolist(), found.argmax(axis=1).tolist(), found.tolist())
        }
