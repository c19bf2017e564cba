"""A trained model in this process: words in a [MASK], predictions of a task, embeddings."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.files import storage
from pipeline.inference.predictor import BATCH_SIZE, Predictor, open_predictor
from pipeline.inference.pretrained import Fill


def load(source: str | os.PathLike[str]) -> "Model":
    """Opens a model for predictions, on the GPU if there is one.

    Args:
        source: a run, an export, a model published for `transformers`, the name of one on the hub (OWNER/NAME), or
            the URL of a run or an export in object storage (docs/storage.md).
    Raises:
        UserError: there is no model, or it is damaged, or the storage refuses it.
    """
    return Model(open_predictor(storage.readable.local(storage.readable(os.fspath(source))), "the source"))


class Model:
    """A trained model; `load` makes it."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    def fill_mask(self, texts: Sequence[str], top_k: int = 5) -> list[list[list[Fill]]]:
        """The most likely pieces for each [MASK] of each text, the most likely first, as `albert predict --mask`.

        A `Fill` has `piece`, `probability` and `text`. Raises UserError if the model is not pre-trained.
        """
        return [self._predictor.fill_masks(text, top_k) for text in _list(texts)]

    def predict(
        self, texts: Sequence[str | tuple[str, str] | Mapping[str, Any]], batch_size: int = BATCH_SIZE
    ) -> list[dict[str, Any]]:
        """The prediction of each text, with the columns that `albert predict` writes, such as "label" and its score.

        Args:
            texts: texts; pairs of texts if the task has them; or rows with the columns of the training.
            batch_size: texts of a batch.
        Raises:
            UserError: the model is not fine-tuned, or a row lacks a column.
        """
        columns = self._predictor.require_task().input_columns
        assert columns is not None
        names = [name for name in (columns.text, columns.second_text) if name is not None]
        rows = [
            dict(text) if isinstance(text, Mapping) else dict(zip(names, [text] if isinstance(text, str) else text))
            for text in _list(texts)
        ]
        return [dict(row) for row in self._predictor.predict(rows, batch_size=batch_size)]

    def embed(self, texts: Sequence[str], batch_size: int = BATCH_SIZE) -> NDArray[np.float32]:
        """The embedding of each text, float32 (N, H), of Euclidean length 1, as `albert predict --embed`."""
        return self._predictor.embed(_list(texts), batch_size)


def _list(texts: Sequence[Any]) -> list[Any]:
    if isinstance(texts, str):
        raise TypeError("give a list of texts, also for one text")
    return list(texts)
