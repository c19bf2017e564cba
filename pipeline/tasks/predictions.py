"""The predictions of a fine-tuned model, and their files. Metrics, submissions and ensembles are made from these files.

RUN/logits/SPLIT.npz    classes, similarities, options: `Logits`; tags: `TagLogits`
RUN/logits/SPLIT.json   SQuAD: `Answers` of each question
"""

import contextlib
import dataclasses
import io
import json
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError, one_line
from common.files import atomic
from common.files.json_files import Count, Finite, read_as, read_bytes

MAX_LOGITS_BYTES = 4 << 30


class _Arrays:
    """Arrays of one split in an .npz file. A subclass is a dataclass of arrays, of which some may be None."""

    def save(self, path: Path) -> None:
        """Writes the arrays to `path`, an .npz file."""
        with atomic.replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **self.arrays())

    def arrays(self) -> dict[str, NDArray]:
        """The arrays that there are, by name."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        arrays = {field.name: getattr(self, field.name) for field in fields}
        return {name: array for name, array in arrays.items() if array is not None}

    def _check_values(self, wanted: Mapping[str, tuple[str, int]]) -> None:
        """Raises ValueError for arrays of other types or shapes than `save` writes, or numbers that cannot be.

        Args:
            wanted: by name of an array, the kinds of its dtype and the number of its dimensions.
        """
        found = self.arrays()
        for name, array in found.items():
            kinds, dimensions = wanted[name]
            if array.dtype.kind not in kinds or array.ndim != dimensions:
                raise ValueError(f"{name} are {array.dtype}, {array.shape}")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"{name} hold NaN or infinity")
        classes, labels = found["logits"].shape[1], found.get("labels")
        if not classes:
            raise ValueError("no logits")
        if labels is not None and classes > 1 and not ((labels >= 0) & (labels < classes)).all():
            raise ValueError(f"a label is none of the {classes} classes")


@dataclass(frozen=True)
class Logits(_Arrays):
    """The logits of one split. All arrays have the same first dimension; the order of the examples has no meaning.

    Attributes:
        ids: (N,) text; the example of each row.
        logits: (N, classes), (N, 1) for a similarity, or (N, options); float32.
        labels: (N,) the true classes, similarities or options; None if they are not known.
        levels: (N,) text; RACE only: "middle" or "high", "" where the level is not known.

    Raises:
        ValueError: arrays of different lengths, or an id that occurs twice.
    """

    ids: NDArray[np.str_]
    logits: NDArray[np.float32]
    labels: NDArray | None = None
    levels: NDArray[np.str_] | None = None

    def __post_init__(self) -> None:
        for name in ("logits", "labels", "levels"):
            array = getattr(self, name)
            if array is not None and len(array) != len(self.ids):
                raise ValueError(f"{len(self.ids)} ids, but {len(array)} {name}")
        _check_ids(self.ids)

    def predictions(self) -> NDArray:
        """(N,) the class or option with the largest logit; if there is only one logit, the logit itself."""
        return self.logits[:, 0] if self.logits.shape[1] == 1 else self.logits.argmax(axis=1)

    def aligned(self, ids: NDArray[np.str_]) -> Self:
        """The same examples in the order of `ids`. Raises ValueError if `ids` are not those of these examples."""
        order = _order(self.ids, ids)
        chosen = {name: array[order] for name, array in self.arrays().items()}
        return dataclasses.replace(self, **chosen)

    def check(self) -> None:
        """Raises ValueError for values that `save` does not write."""
        self._check_values({"ids": ("U", 1), "logits": ("f", 2), "labels": ("iuf", 1), "levels": ("U", 1)})


@dataclass(frozen=True)
class TagLogits(_Arrays):
    """The logits of the tokens of one split. The order of the N texts has no meaning.

    Attributes:
        ids: (N,) text; the example of each text.
        lengths: (N,) int64, the tokens of each text, at least 1.
        logits: (T, classes) float32, of all texts one after the other.
        labels: (T,) the true classes; None if they are not known.

    Raises:
        ValueError: arrays of different lengths, or an id that occurs twice.
    """

    ids: NDArray[np.str_]
    lengths: NDArray[np.int64]
    logits: NDArray[np.float32]
    labels: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if len(self.lengths) != len(self.ids) or (self.lengths < 1).any():
            raise ValueError(f"{len(self.ids)} ids, but {len(self.lengths)} lengths, or a length of 0")
        for name in ("logits", "labels"):
            array = getattr(self, name)
            if array is not None and len(array) != sum(self.lengths.tolist()):
                raise ValueError(f"{sum(self.lengths.tolist())} tokens, but {len(array)} {name}")
        _check_ids(self.ids)

    def predictions(self) -> NDArray[np.int64]:
        """(T,) the class with the largest logit."""
        return self.logits.argmax(axis=1)

    def check_same_lengths(self, other: "TagLogits") -> None:
        """Raises ValueError if the texts of `other`, in the same order, have other numbers of tokens."""
        if not np.array_equal(self.lengths, other.lengths):
            raise ValueError("the numbers of tokens differ")

    def aligned(self, ids: NDArray[np.str_]) -> Self:
        """The same texts in the order of `ids`. Raises ValueError if `ids` are not those of these texts."""
        order = _order(self.ids, ids)
        starts, lengths = np.cumsum(self.lengths) - self.lengths, self.lengths[order]
        begins = np.cumsum(lengths) - lengths  # (N,) in the new order
        tokens = np.repeat(starts[order] - begins, lengths) + np.arange(lengths.sum())  # (T,)
        labels = None if self.labels is None else self.labels[tokens]
        return dataclasses.replace(
            self, ids=self.ids[order], lengths=lengths, logits=self.logits[tokens], labels=labels
        )

    def check(self) -> None:
        """Raises ValueError for values that `save` does not write."""
        self._check_values({"ids": ("U", 1), "lengths": ("i", 1), "logits": ("f", 2), "labels": ("i", 1)})


@contextlib.contextmanager
def _arrays_in(path: Path) -> Iterator[dict[str, NDArray]]:
    """The arrays in an .npz file, by name. Errors of values in the block become a UserError."""
    remedy = "fine-tune again, or name another run"
    content = io.BytesIO(read_bytes(path, remedy, MAX_LOGITS_BYTES))
    try:
        _check_sizes(content)
        with np.load(content, allow_pickle=False) as arrays:
            given = {name: arrays[name] for name in arrays.files}
        yield given
    except (OSError, ValueError, TypeError, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise UserError(f"{path} holds no logits ({one_line(error)}); {remedy}") from None
    except (zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} is damaged ({one_line(error)}); {remedy}") from None


def _check_ids(ids: NDArray[np.str_]) -> None:
    if len(set(ids.tolist())) != len(ids):
        raise ValueError("an id occurs twice")


def _order(ids: NDArray[np.str_], wanted: NDArray[np.str_]) -> NDArray[np.int64]:
    """The index in `ids` of each of `wanted`. Raises ValueError if the two do not hold the same ids."""
    rows = {name: row for row, name in enumerate(ids.tolist())}
    if len(wanted) != len(rows) or any(name not in rows for name in wanted.tolist()):
        raise ValueError(f"{len(ids)} examples are not the {len(wanted)} of the other run")
    return np.array([rows[name] for name in wanted.tolist()], dtype=np.int64)


@dataclass(frozen=True)
class Span:
    """A span of a passage that may be the answer.

    Attributes:
        text: the passage's own characters.
        start, end: the span in characters of the passage, [start, end).
        score: a log-probability plus a constant; the constant is the same for all spans of a question.
    """

    text: str
    start: Count
    end: Count
    score: Finite


@dataclass(frozen=True)
class Answers:
    """The predicted answers to one question of SQuAD.

    Attributes:
        nbest: the best spans; may be empty for an empty passage.
        null_score: the log-odds that there is no answer; None for SQuAD 1.1.
        gold: the accepted answers, empty for an unanswerable question; None if they are not known.
    """

    nbest: tuple[Span, ...]
    null_score: Finite | None
    gold: tuple[str, ...] | None

    def best(self) -> str:
        """The text of the best span; "" if there is no span."""
        return max(self.nbest, key=lambda span: span.score).text if self.nbest else ""

    def answer(self, threshold: float = 0.0) -> str:
        """The text of the best span; "" if the null score is above `threshold`."""
        return "" if self.null_score is not None and self.null_score > threshold else self.best()


def _check_sizes(content: io.BytesIO) -> None:
    """Raises ValueError unless each array of an .npz file has the bytes that its header promises, before any is read.

    numpy takes the memory for an array before it reads it.
    """
    with zipfile.ZipFile(content) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as file:
                version = np.lib.format.read_magic(file)
                if version not in ((1, 0), (2, 0)):
                    raise ValueError(f"{entry.filename} has version {version}")
                read_header = (
                    np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = read_header(file)
                promised = file.tell() + math.prod(shape) * dtype.itemsize
            if promised != entry.file_size or promised > MAX_LOGITS_BYTES:
                raise ValueError(f"{entry.filename} has {entry.file_size} bytes instead of {promised}")
    content.seek(0)


Predictions = Logits | TagLogits | dict[str, Answers]
"""The predictions of one split: logits of texts or of tokens, or the answers to SQuAD by the question's id."""


def squad_answers(answers: Mapping[str, Answers], threshold: float = 0.0) -> dict[str, str]:
    """The answer to every question; "" where the null score is above `threshold`."""
    return {question: given.answer(threshold) for question, given in answers.items()}


def null_odds(answers: Mapping[str, Answers]) -> dict[str, float]:
    """The log-odds that a question has no answer, for those questions that have a null score."""
    return {question: given.null_score for question, given in answers.items() if given.null_score is not None}


def save_predictions(directory: Path, split: str, predictions: Predictions) -> None:
    """Writes the predictions of one split into `directory`, which is made if it is missing."""
    directory.mkdir(exist_ok=True)
    if isinstance(predictions, (Logits, TagLogits)):
        predictions.save(directory / f"{split}.npz")
    else:
        save_answers(directory / f"{split}.json", predictions)


def read_predictions(directory: Path) -> Iterator[tuple[str, Predictions]]:
    """Each split in `directory` with its predictions, by name. Raises UserError for a file that cannot be read."""
    for path in sorted(directory.iterdir()):
        if path.suffix == ".npz":
            yield path.stem, load_logits(path)
        elif path.suffix == ".json":
            yield path.stem, load_answers(path)


def load_logits(path: Path) -> Logits | TagLogits:
    """Reads an .npz file that `save_predictions` wrote. Raises UserError for any other file."""
    with _arrays_in(path) as arrays:
        found = TagLogits(**arrays) if "lengths" in arrays else Logits(**arrays)
        found.check()
    return found


def count(predictions: Predictions) -> int:
    """The number of examples."""
    return len(predictions) if isinstance(predictions, dict) else len(predictions.ids)


def save_answers(path: Path, answers: Mapping[str, Answers]) -> None:
    """Writes the answers to SQuAD's questions, by id, as JSON."""
    # vars, because dataclasses.asdict copies every value: it took longer than everything else after the model.
    content = {name: vars(given) | {"nbest": [vars(span) for span in given.nbest]} for name, given in answers.items()}
    atomic.write_text(path, json.dumps(content) + "\n")


def load_answers(path: Path) -> dict[str, Answers]:
    """Reads a file that `save_answers` wrote. Raises UserError for any other file."""
    return read_as(path, dict[str, Answers], "fine-tune again, or name another run")
