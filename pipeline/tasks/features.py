"""Examples as the model reads them and its outputs as predictions: what fine-tuning knows of a kind of task.

A unit is what is drawn, trained on and counted as one: a text or pair, a window of a passage, a question with options.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from data_prep.encoder import Encoder
from data_prep.vocabulary import Vocabulary
from pipeline.tasks.predictions import Answers, Logits
from pipeline.tasks.rows import Tokens

Found = Any
"""What a model said of one unit, on the host: what its kind of features makes predictions of."""


class Features(Protocol):
    """The units of one split.

    Attributes:
        examples: how many examples they are made of.
        lengths: int64 (units,), tokens of each.
    """

    examples: int
    lengths: NDArray[np.int64]

    def batch(self, units: Sequence[int], training: bool) -> Any:
        """The arguments of the model for some units, a named tuple of arrays whose `label_count` says how many labels
        it has; with labels for a loss while `training`."""
        ...

    def found(self, units: Sequence[int], batch: Any, output: Any) -> list[Found]:
        """What the model's `output` for a batch says of each of its units."""
        ...

    def predictions(self, found: Mapping[int, Found]) -> Logits | dict[str, Answers]:
        """The predictions of the split, once all units are found."""
        ...


class EncodedTexts:
    """Tokens of many texts, as pre-training has them, in one array."""

    def __init__(self, vocabulary: Vocabulary, texts: Sequence[str]) -> None:
        self._ids, lengths = Encoder(vocabulary).encode(list(texts))
        self._ends = np.cumsum(lengths)
        self.lengths = lengths

    def __getitem__(self, index: int) -> Tokens:
        """uint16 (n,): the tokens of text `index`."""
        end = int(self._ends[index])
        return self._ids[end - int(self.lengths[index]) : end]


def to_host(tensor: Tensor) -> NDArray[np.float32]:
    """A tensor of logits as fp32 on the host."""
    return tensor.detach().float().cpu().numpy()
