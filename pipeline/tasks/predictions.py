"""What a fine-tuned model said of each example, kept so that figures, submissions and ensembles need no model.

RUN/logits/SPLIT.npz    classes, similarities, options: `Logits`
RUN/logits/SPLIT.json   SQuAD: `Answers` of each question
"""

import dataclasses
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from data_prep import atomic
from data_prep.errors import UserError


@dataclass(frozen=True)
class Logits:
    """One split's logits. Arrays share their first dimension, and an order that means nothing.

    Attributes:
        ids: (N,) text; which example a row is of.
        logits: (N, classes), (N, 1) for a similarity, or (N, options); float32.
        labels: (N,) what was right, where the split's labels are known: a class, a similarity or an option.
        levels: (N,) text; of RACE: "middle" or "high", "" where it is not known.
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
        if len(set(self.ids.tolist())) != len(self.ids):
            raise ValueError("an id occurs twice")

    def predictions(self) -> NDArray:
        """(N,) the class or option with the largest logit; the logit itself where there is only one."""
        return self.logits[:, 0] if self.logits.shape[1] == 1 else self.logits.argmax(axis=1)

    def aligned(self, ids: NDArray[np.str_]) -> Self:
        """The same examples in the order of `ids`. Raises ValueError if they are others."""
        rows = {name: row for row, name in enumerate(self.ids.tolist())}
        if len(ids) != len(rows) or any(name not in rows for name in ids.tolist()):
            raise ValueError(f"{len(self.ids)} examples are not the {len(ids)} of the other run")
        order = np.array([rows[name] for name in ids.tolist()], dtype=np.int64)
        chosen = {name: array[order] for name, array in self._arrays().items()}
        return dataclasses.replace(self, **chosen)

    def save(self, path: Path) -> None:
        """Writes the arrays to `path`, an .npz."""
        with atomic.replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **self._arrays())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads what `save` wrote. Raises UserError if `path` holds something else."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return cls(**{name: arrays[name] for name in arrays.files})
        except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
            raise UserError(f"{path} holds no logits ({error}); fine-tune again, or name another run") from None

    def _arrays(self) -> dict[str, NDArray]:
        arrays = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: array for name, array in arrays.items() if array is not None}


@dataclass(frozen=True)
class Span:
    """A stretch of a passage that may be the answer.

    Attributes:
        text: as the passage spells it.
        start, end: characters of the passage; `end` is the first one behind the answer.
        score: a log-probability up to a constant that is the same for all spans of the question.
    """

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Answers:
    """What a model said of one question of SQuAD.

    Attributes:
        nbest: the best spans; may be empty for an empty passage.
        null_score: the log-odds that there is no answer; None for SQuAD 1.1.
        gold: the accepted answers, none for an unanswerable question; None where they are not known.
    """

    nbest: tuple[Span, ...]
    null_score: float | None
    gold: tuple[str, ...] | None

    def best(self) -> str:
        """The text of the best span, "" where there is none."""
        return max(self.nbest, key=lambda span: span.score).text if self.nbest else ""

    def answer(self, threshold: float = 0.0) -> str:
        """The best span, or "" where the null score is above `threshold`."""
        return "" if self.null_score is not None and self.null_score > threshold else self.best()


def save_answers(path: Path, answers: Mapping[str, Answers]) -> None:
    """Writes the answers to SQuAD's questions, by id, as JSON."""
    # vars, not dataclasses.asdict: that copies every value and takes longer than all else after the model.
    content = {name: vars(given) | {"nbest": [vars(span) for span in given.nbest]} for name, given in answers.items()}
    atomic.write_text(path, json.dumps(content) + "\n")


def load_answers(path: Path) -> dict[str, Answers]:
    """Reads what `save_answers` wrote. Raises UserError if `path` holds something else."""
    try:
        read: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: Answers(
                nbest=tuple(Span(**span) for span in given["nbest"]),
                null_score=given["null_score"],
                gold=None if given["gold"] is None else tuple(given["gold"]),
            )
            for name, given in read.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} holds no answers ({error}); fine-tune again, or name another run") from None
