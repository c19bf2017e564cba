"""What each kind of task makes of its examples: features, which the model reads, and predictions."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

SampleOutput = Any
"""The output of the model for one sample, on the host. Each kind of features has its own type."""

Statistic = Callable[[NDArray[np.int64]], float]
"""A metric of some examples, given their numbers (M,); an example may occur several times."""


class Predictions(Protocol):
    """The predictions of one split, of which `len` is the number of examples, and the file that holds them."""

    def __len__(self) -> int: ...

    @property
    def labelled(self) -> bool:
        """Whether there are examples, and all their labels are known."""

    def save(self, path: Path) -> None:
        """Writes the file."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a file that `save` wrote. Raises UserError for any other file."""

    def aligned(self, like: Self) -> Self:
        """The same predictions in the order of `like`. Raises ValueError if the examples differ."""


class Features(Protocol):
    """The samples of one split: examples as inputs of the model.

    A sample is the unit that is sampled, trained on and counted: a text or pair, a window of a passage, or a question
    with options.

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

    def decode(self, samples: Sequence[int], batch: Any, output: Any) -> list[SampleOutput]:
        """The model's `output` for a batch, taken apart into its samples."""

    def predictions(self, outputs: Mapping[int, SampleOutput]) -> Any:
        """The `Predictions` of the split from the outputs of all its samples."""
