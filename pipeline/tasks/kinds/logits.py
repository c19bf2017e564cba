"""Predictions as logits in .npz files, and what the kinds share whose predictions they are."""

import dataclasses
import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError, one_line
from common.files import atomic
from common.files.json_files import read_bytes
from common.intervals import Interval, wilson_interval
from pipeline.tasks.metrics import METRICS, softmax
from pipeline.tasks.task import Kind, Statistic, Task

MAX_BYTES = 4 << 30
_REMEDY = "fine-tune again, or name another run"
_DAMAGED_ZIP = (zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Logits:
    """The logits of N examples. The order of the examples has no meaning.

    An example has one row of logits; of tagging it has a row for each token, all examples one after the other.

    Attributes:
        ids: (N,) text; the examples.
        logits: float32 (rows, classes), (N, 1) for a number, or (N, options).
        labels: (rows,) the true values, or (rows, classes) of 0 and 1 if several can be true; None if unknown.
        levels: (N,) text; RACE only: "middle" or "high", "" where the level is not known.
        lengths: (N,) int64; tagging only: the tokens of each text, at least 1.

    Raises:
        ValueError: arrays of different lengths, or of other dimensions or types.
    """

    ids: NDArray[np.str_]
    logits: NDArray[np.float32]
    labels: NDArray | None = None
    levels: NDArray[np.str_] | None = None
    lengths: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        allowed = {"ids": (1, "U"), "logits": (2, "fiub"), "lengths": (1, "i"), "levels": (1, "U")}
        for name, (dimensions, types) in allowed.items():
            array = getattr(self, name)
            if array is not None and (array.ndim != dimensions or (array.size and array.dtype.kind not in types)):
                raise ValueError(f"{name} are {array.dtype} of {array.ndim} dimensions")
        if self.logits.shape[1] < 1 or (self.lengths is not None and (self.lengths < 1).any()):
            raise ValueError("there is no class, or a text without a token")
        if (labels := self.labels) is not None and labels.size:
            is_class = labels.ndim == 1 and self.logits.shape[1] > 1
            fits = labels.dtype.kind in "fiub" and labels.shape[1:] in ((), self.logits.shape[1:])
            if not fits or (is_class and not ((labels >= 0) & (labels < self.logits.shape[1])).all()):
                raise ValueError(f"labels, {labels.dtype} of shape {labels.shape}, do not fit the logits")
        rows = len(self) if self.lengths is None else int(self.lengths.sum())
        for name, array in self.arrays().items():
            wanted = rows if name in ("logits", "labels") else len(self)
            if len(array) != wanted:
                raise ValueError(f"{wanted} rows, but {len(array)} {name}")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def labelled(self) -> bool:
        """Whether all labels are known."""
        return self.labels is not None

    def arrays(self) -> dict[str, NDArray]:
        """The arrays that there are, by name."""
        return {name: array for name, array in vars(self).items() if array is not None}

    def predictions(self) -> NDArray:
        """The class or option with the largest logit; if there is only one logit, the logit itself."""
        return self.logits[:, 0] if self.logits.shape[1] == 1 else self.logits.argmax(axis=1)

    def rows_of(self, examples: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of logits of some examples, given by their numbers, in their order."""
        if self.lengths is None:
            return examples
        starts, lengths = np.cumsum(self.lengths) - self.lengths, self.lengths[examples]
        begins = np.cumsum(lengths) - lengths  # (examples,) in the new order
        return np.repeat(starts[examples] - begins, lengths) + np.arange(lengths.sum())

    def aligned(self, like: Self) -> Self:
        """The same in the order of `like`. Raises ValueError if examples, labels or numbers of tokens differ."""
        numbers = {name: number for number, name in enumerate(self.ids.tolist())}
        if numbers.keys() != set(like.ids.tolist()):
            raise ValueError(f"{len(self)} examples are not the {len(like)} of the other run")
        order = np.array([numbers[name] for name in like.ids.tolist()], dtype=np.int64)
        rows = self.rows_of(order)
        moved = {name: array[rows if name in ("logits", "labels") else order] for name, array in self.arrays().items()}
        if not np.array_equal(moved.get("lengths"), like.lengths):  # type: ignore[arg-type]
            raise ValueError("the numbers of tokens differ")
        labels = moved.get("labels")
        if labels is not None and like.labels is not None and not np.array_equal(labels, like.labels, equal_nan=True):
            raise ValueError("the labels of the examples differ")
        return dataclasses.replace(self, **moved)

    def save(self, path: Path) -> None:
        """Writes the arrays to `path`, an .npz file."""
        with atomic.replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **self.arrays())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a file that `save` wrote. Raises UserError for any other file."""
        content = io.BytesIO(read_bytes(path, _REMEDY, MAX_BYTES))
        try:
            with np.load(content, allow_pickle=False) as arrays:
                return cls(**{name: arrays[name] for name in arrays.files})
        except (OSError, ValueError, TypeError, LookupError, EOFError, RuntimeError, *_DAMAGED_ZIP) as error:
            raise UserError(f"{path} holds no logits ({one_line(error)}); {_REMEDY}") from None


class LogitsKind(Kind):
    """A kind whose predictions are `Logits`."""

    predictions = Logits
    record_names: ClassVar[tuple[str, ...]] = ("prediction", "probability", "probabilities")

    def check(self, task: Task) -> None:
        """See `Kind.check`. A number has one label, all others have at least two."""
        wanted = "one label" if self.predicts_numbers else "at least two labels"
        if (len(task.labels) == 1) != self.predicts_numbers or not task.labels:
            raise ValueError(f"task {task.name} is a {self.name} and needs {wanted}; it has {len(task.labels)}")

    def majority(self, task: Task, predictions: Logits) -> Logits:
        """See `Kind.majority`. For numbers it is their mean."""
        labels = predictions.labels
        assert labels is not None
        if self.predicts_numbers:
            answer = np.array([labels.mean()])  # (1,)
        else:
            counts = np.bincount(labels.astype(np.int64), minlength=len(task.labels))  # (C,)
            answer = counts == counts.max()  # (C,)
        return dataclasses.replace(predictions, logits=np.broadcast_to(answer, (len(labels), len(answer))))

    def metrics(self, task: Task, predictions: Logits) -> dict[str, float]:
        if not predictions.labelled:
            return {}
        every = np.arange(len(predictions))
        return {name: self.statistic(task, name, predictions)(every) for name in task.metrics}

    def statistic(self, task: Task, metric: str, predictions: Logits) -> Statistic:
        if predictions.labels is None:
            raise ValueError("the labels are not known")
        predicted, true = predictions.predictions(), predictions.labels  # (rows,) each
        if self.predicts_numbers:
            predicted, true = predicted.astype(np.float64), true.astype(np.float64)
            if not (np.isfinite(predicted).all() and np.isfinite(true).all()):
                raise ValueError("predictions or labels hold NaN or infinity; the training has diverged")

        def compute(examples: NDArray[np.int64]) -> float:
            rows = predictions.rows_of(examples)
            return METRICS[metric](predicted[rows], true[rows])

        return compute

    def interval(self, task: Task, metric: str, predictions: Logits) -> Interval:
        """Accuracy: Wilson's interval. Any other metric: a bootstrap over the examples.

        Examples of several rows always get a bootstrap over whole examples: their rows depend on each other.
        """
        if metric != "accuracy" or predictions.lengths is not None:
            return super().interval(task, metric, predictions)
        count = len(predictions)
        return wilson_interval(self.statistic(task, metric, predictions)(np.arange(count)) * count, count)

    def spell(self, task: Task, predictions: Logits) -> list[str]:
        """Each prediction as a leaderboard takes it."""
        return [task.labels[label] for label in predictions.predictions()]

    def records(self, task: Task, predictions: Logits) -> dict[str, dict[str, Any]]:
        """The name with the highest probability as "prediction", its "probability", and all "probabilities"."""
        records = {}
        for name, row in zip(predictions.ids.tolist(), softmax(predictions.logits)):  # (C,) each
            best, shares = int(row.argmax()), row.tolist()
            said = {"prediction": task.labels[best], "probability": shares[best]}
            records[name] = said | {"probabilities": dict(zip(task.labels, shares))}
        return records
