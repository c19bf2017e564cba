"""The interface of each kind of task: turns examples into inputs of the model, and its outputs into predictions.

A sample is the unit that is drawn, trained on and counted: a text or pair, a window of a passage, or a question with
options.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from data_prep.text.encoder import Encoder
from data_prep.text.vocabulary import Vocabulary
from pipeline.tasks.features.row_packing import Tokens
from pipeline.tasks.predictions import Predictions

SampleOutput = Any
"""The output of the model for one sample, on the host. Each kind of features has its own type."""


class Features(Protocol):
    """The samples of one split.

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
        ...

    def decode(self, samples: Sequence[int], batch: Any, output: Any) -> list[SampleOutput]:
        """The model's `output` for a batch, taken apart into its samples."""
        ...

    def predictions(self, outputs: Mapping[int, SampleOutput]) -> Predictions:
        """The predictions of the split from the outputs of all its samples."""
        ...


class EncodedTexts:
    """The tokens of many texts in one array, made with the encoder of pre-training."""

    def __init__(self, vocabulary: Vocabulary, texts: Sequence[str]) -> None:
        self._ids, lengths = Encoder(vocabulary).encode(list(texts))
        self._ends = np.cumsum(lengths)
        self.lengths = lengths

    def __getitem__(self, index: int) -> Tokens:
        """The tokens of text `index`, uint16 (n,)."""
        end = int(self._ends[index])
        return self._ids[end - int(self.lengths[index]) : end]


def to_host(tensor: Tensor) -> NDArray[np.float32]:
    """A tensor of logits as fp32 on the host."""
    return tensor.detach().float().cpu().numpy()
