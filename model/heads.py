"""The two pre-training heads and their losses: masked tokens, and the sentence head (sentence order, section
3.1, or BERT's NSP)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import AlbertConfig
from model.encoder import activation
from model.linear import Linear, linear

IGNORED_LABEL = -100
"""The label of a position that is not predicted."""


class MaskedTokenHead(nn.Module):
    """H -> E, GELU, LayerNorm, then the word embeddings again as the output matrix, and a bias for each
    piece."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.embedding_size)
        self.activation = activation(config)
        self.layer_norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """Logits (B, M, V) for the hidden states (B, M, H) of the predicted positions; `word_embeddings` is
        (V, E)."""
        embedded = self.layer_norm(self.activation(self.dense(hidden)))  # (B, M, E)
        return linear(embedded, word_embeddings, self.bias)  # (B, M, V)


class Pooler(nn.Module):
    """Dense + tanh on the hidden state of [CLS]."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)

    def forward(self, cls_hidden: Tensor) -> Tensor:
        """(..., H) to (..., H)."""
        return torch.tanh(self.dense(cls_hidden))  # (..., H)


class SentenceHead(nn.Module):
    """Two classes from the pooled [CLS]: 0 in order (SOP) or next (NSP), 1 swapped or random. No dropout."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.classifier = nn.Linear(config.hidden_size, 2)

    def forward(self, pooled: Tensor) -> Tensor:
        """(..., H) to logits (..., 2)."""
        return self.classifier(pooled)  # (..., 2)


def gather_positions(hidden: Tensor, positions: Tensor) -> Tensor:
    """The hidden states (B, N, H) at int64 `positions` (B, N) of each row of `hidden` (B, S, H)."""
    index = positions[:, :, None].expand(-1, -1, hidden.shape[-1])  # (B, N, H)
    return hidden.gather(1, index)  # (B, N, H)


class ClassificationSums(NamedTuple):
    """fp32 scalars on the device of the logits, over the labels that are not ignored."""

    loss: Tensor
    """Sum of the cross entropies, in nats."""

    hits: Tensor
    """How many labels have the highest logit."""

    total: Tensor
    """How many labels there are."""


def classification_sums(logits: Tensor, labels: Tensor) -> ClassificationSums:
    """Cross entropy, hits and count of logits (..., C) against int64 labels (...), -100 where ignored, as
    sums.

    Computed in fp32 whatever the dtype of the logits; shapes depend on no value, and nothing is read back to
    the host.
    """
    flat_logits = logits.flatten(0, -2).float()  # (N, C)
    flat_labels = labels.flatten()  # (N,)
    loss = functional.cross_entropy(flat_logits, flat_labels, ignore_index=IGNORED_LABEL, reduction="sum")
    counted = flat_labels != IGNORED_LABEL  # (N,)
    hits = flat_logits.argmax(-1) == flat_labels  # (N,), never true for an ignored label
    return ClassificationSums(loss, hits.sum(dtype=torch.float32), counted.sum(dtype=torch.float32))
