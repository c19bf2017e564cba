"""Measures how far each layer moves its input: L2 distance and cosine of input and output (section 3.1, Figure 1).

In ALBERT both change more smoothly from layer to layer than in BERT. Neither goes to 0, so the shared layer does not
converge to a fixed point.

Legend of the shapes: B rows, S positions in a row, H hidden_size, N tokens that count.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class LayerSimilarity:
    """Means over tokens, one number for each layer, from the first to the last.

    Attributes:
        l2_distances: mean of |output - input|.
        cosines: mean of output . input / (|output| |input|).
        tokens: number of tokens.
    """

    l2_distances: tuple[float, ...]
    cosines: tuple[float, ...]
    tokens: int

    @property
    def degrees(self) -> tuple[float, ...]:
        """The angle of each mean cosine, in degrees, as in the paper's figure."""
        return tuple(math.degrees(math.acos(max(-1.0, min(1.0, cosine)))) for cosine in self.cosines)


class SimilarityMeter:
    """Accumulates `LayerSimilarity` over batches of hidden states, in float64."""

    def __init__(self) -> None:
        self._sums: Tensor | None = None  # (2, layers): distances, cosines
        self._tokens = 0

    @torch.no_grad()
    def add(self, hidden_states: Sequence[Tensor], mask: Tensor) -> None:
        """Adds one batch.

        Args:
            hidden_states: the first layer's input, then every layer's output, (B, S, H) each; see
                `AlbertModelOutput.hidden_states`.
            mask: (B, S), int64 or bool, not 0 on tokens that count, 0 on padding.

        Raises:
            ValueError: the number of layers differs from that of the earlier batches.
        """
        chosen = mask.bool()  # (B, S)
        states = [hidden[chosen].double() for hidden in hidden_states]  # (N, H) each
        pairs = list(itertools.pairwise(states))
        distances = [(after - before).norm(dim=-1).sum() for before, after in pairs]  # () each
        cosines = [functional.cosine_similarity(after, before).sum() for before, after in pairs]  # () each
        sums = torch.stack((torch.stack(distances), torch.stack(cosines)))  # (2, layers)
        if self._sums is not None and self._sums.shape != sums.shape:
            raise ValueError(
                f"{sums.shape[1]} layers after batches of {self._sums.shape[1]}; use a new meter for another model"
            )
        self._sums = sums if self._sums is None else self._sums + sums
        self._tokens += int(chosen.sum())

    def result(self) -> LayerSimilarity:
        """Returns the means over all tokens that were added. Raises ValueError if there are none."""
        if self._sums is None or not self._tokens:
            raise ValueError("no token was added; give a text")
        distances, cosines = (self._sums / self._tokens).tolist()
        return LayerSimilarity(tuple(distances), tuple(cosines), self._tokens)
