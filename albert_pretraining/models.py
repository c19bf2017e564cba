"""A trained model in this process: words in a [MASK], predictions of a task, embeddings."""

import os
from pathlib import Path

from pipeline.finetuning.predictor import Predictor as Model
from pipeline.finetuning.predictor import open_predictor

__all__ = ["Model", "load"]


def load(source: str | os.PathLike[str]) -> Model:
    """Opens a model for predictions, on the GPU if there is one.

    Args:
        source: a run, an export, a model published for `transformers`, or the name of one on the hub (OWNER/NAME).
    Raises:
        UserError: there is no model, or it is damaged.
    """
    return open_predictor(Path(source), "the source")
