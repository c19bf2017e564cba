"""A trained model in this process: words in a [MASK], predictions of a task, embeddings."""

import os

from common.files import storage
from pipeline.finetuning.predictor import Predictor as Model
from pipeline.finetuning.predictor import open_predictor

__all__ = ["Model", "load"]


def load(source: str | os.PathLike[str]) -> Model:
    """Opens a model for predictions, on the GPU if there is one.

    Args:
        source: a run, an export, a model published for `transformers`, the name of one on the hub (OWNER/NAME), or
            the URL of a run or an export in object storage (docs/storage.md).
    Raises:
        UserError: there is no model, or it is damaged, or the storage refuses it.
    """
    return open_predictor(storage.readable.local(storage.readable(os.fspath(source))), "the source")
