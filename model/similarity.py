"""How far each layer moves its input: L2 distance and cosine of a token's embedding before and after (Figure 1).

Section 3.1, "cross-layer parameter sharing": in ALBERT both change more smoothly from layer to layer than in BERT, and
neither goes to 0, so the shared layer is not on its way to a fixed point.
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
    """Means over tokens, one number a layer, the first layer first.

    Attributes:
        l2_distances: |output - input|.
        cosines: output . input / (|output| |input|).
        tokens: how many tokens the means are over.
    """

    l2_distances: tuple[float, ...]
    cosines: tuple[float, ...]
    tokens: int

    @property
    def degrees(self) -> tuple[float, ...]:
        """The angle of each mean cosine, as the paper's figure has it."""
        return tuple(math.degrees(math.acos(max(-1.0, min(1.0, cosine)))) for cosine in self.cosines)


class SimilarityMeter:
    """Adds up batches of hidden states in float64."""

    def __init__(self) -> None:
        self._sums: Tensor | None = None  # (2, layers): distances, cosines
        self._tokens = 0

    @torch.no_grad()
    def add(self, hidden_states: Sequence[Tensor], mask: Tensor) -> None:
        """Adds one batch.

        Args:
            hidden_states: the first layer's input, then every layer's output, (B, S, H) each, as
                `AlbertModelOutput.hidden_states` has them.
            mask: (B, S), not 0 where a token counts; padding has 0.
        Raises:
            ValueError: the number of layers is not that of the batches before.
        """
        chosen = mask.bool()
        states = [hidden[chosen].double() for hidden in hidden_states]  # (N, H)
        sums = torch.stack(
            [
                torch.stack(((after - before).norm(dim=-1).sum(), functional.cosine_similarity(after, before).sum()))
                for before, after in itertools.pairwise(states)
            ],
            dim=1,
        )  # (2, layers)
        if self._sums is not None and self._sums.shape != sums.shape:
            raise ValueError(
                f"{sums.shape[1]} layers after batches of {self._sums.shape[1]}; use a new meter for another model"
            )
        self._sums = sums if self._sums is None else self._sums + sums
        self._tokens += int(chosen.sum())

    def result(self) -> LayerSimilarity:
        """The means of all that was added. Raises ValueError where no token was."""
        if self._sums is None or not self._tokens:
            raise ValueError("no token was added; give a text")
        distances, cosines = (self._sums / self._tokens).tolist()
        return LayerSimilarity(tuple(distances), tuple(cosines), self._tokens)
