"""The pooler, the two pre-training heads, and the sums of their losses.

The heads predict masked tokens, and the order of two segments (SOP, section 3.1) or BERT's next sentence (NSP).

Legend of the shapes: B rows, M predictions in a row, V vocab_size, E embedding_size, H hidden_size, C classes.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from model.config import IGNORED_LABEL, AlbertConfig, ExecutionOptions
from model.layers.encoder import activation, compiled
from model.layers.processor import LayerNorm, Linear, linear

CHUNK = 2048  # predictions whose logits `chunked_sums` computes at once: 246 MB in fp32 with 30,000 pieces


class MaskedTokenHead(nn.Module):
    """Maps H -> E, GELU, LayerNorm, then E -> V by the word embeddings (tied weights) and a bias for each piece."""

    def __init__(self, config: AlbertConfig, execution: ExecutionOptions) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.embedding_size)
        self.activation = activation(config)
        self.layer_norm = LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))  # (V,)
        # The backward pass computes a chunk again, and must do so with the graph of the forward pass. A graph for any
        # length pads its logits in another way.
        self._sums_of = compiled(sums_of_logits, execution, dynamic=False)

    def forward(
        self, hidden: Tensor, word_embeddings: Tensor, labels: Tensor | None = None
    ) -> "Tensor | ClassificationSums":
        """Returns the logits (B, M, V) of hidden states (B, M, H), given `word_embeddings` (V, E).

        With int64 `labels` (B, M) it returns their `classification_sums` instead, and never holds all logits. It is no
        method of its own, because ZeRO stage 3 gathers the parameters of a module when the module is called.
        """
        embedded = self.layer_norm(self.activation(self.dense(hidden)))  # (B, M, E)
        if labels is None:
            return linear(embedded, word_embeddings, self.bias)  # (B, M, V)
        return chunked_sums(embedded.flatten(0, -2), word_embeddings, self.bias, labels.flatten(), self._sums_of)


class Pooler(nn.Module):
    """A linear map and tanh on the hidden state of [CLS]."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)

    def forward(self, cls_hidden: Tensor) -> Tensor:
        """Maps (..., H) to (..., H)."""
        return torch.tanh(self.dense(cls_hidden))  # (..., H)


class SentenceHead(nn.Module):
    """Classifies the pooled [CLS]: 0 for in order (SOP) or next (NSP), 1 for swapped or random. It has no dropout."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.classifier = nn.Linear(config.hidden_size, 2)

    def forward(self, pooled: Tensor) -> Tensor:
        """Maps (..., H) to logits (..., 2)."""
        return self.classifier(pooled)  # (..., 2)


def gather_positions(hidden: Tensor, positions: Tensor) -> Tensor:
    """Returns the hidden states (B, N, H) at int64 `positions` (B, N) of `hidden` (B, S, H)."""
    index = positions[:, :, None].expand(-1, -1, hidden.shape[-1])  # (B, N, H)
    return hidden.gather(1, index)  # (B, N, H)


class ClassificationSums(NamedTuple):
    """Sums over the labels that are not ignored: fp32 scalars on the device of the logits."""

    loss: Tensor  # () cross entropies, in nats
    hits: Tensor  # () labels that have the highest logit
    total: Tensor  # () labels


def classification_sums(logits: Tensor, labels: Tensor) -> ClassificationSums:
    """Sums cross entropy, hits and count of logits (..., C) against int64 labels (...), -100 where ignored.

    Computes in fp32. Does not synchronise the host with the device: no shape depends on a value.
    """
    flat_logits = logits.flatten(0, -2).float()  # (N, C)
    flat_labels = labels.flatten()  # (N,)
    loss = functional.cross_entropy(flat_logits, flat_labels, ignore_index=IGNORED_LABEL, reduction="sum")
    counted = flat_labels != IGNORED_LABEL  # (N,)
    hits = flat_logits.argmax(-1) == flat_labels  # (N,), False for an ignored label
    return ClassificationSums(loss, hits.sum(dtype=torch.float32), counted.sum(dtype=torch.float32))


def sums_of_logits(inputs: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> ClassificationSums:
    """`classification_sums` of the logits inputs weight^T + bias; see `chunked_sums` for the arguments."""
    return classification_sums(linear(inputs, weight, bias), labels)


_Sums = Callable[[Tensor, Tensor, Tensor, Tensor], ClassificationSums]


def chunked_sums(inputs: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, sums_of: _Sums) -> ClassificationSums:
    """`classification_sums` of the logits inputs weight^T + bias, of `CHUNK` predictions at a time.

    The forward pass keeps `inputs` alone, and the backward pass computes the logits again. torch's own
    `linear_cross_entropy` computes the gradients in its forward pass: before fp16 has its loss scale, and it adds up a
    loss in bf16 in 16 bits.

    Args:
        inputs: (N, E), weight (V, E) and bias (V,) in one dtype.
        labels: int64 (N,), -100 where ignored.
        sums_of: `sums_of_logits`, perhaps compiled.
    """
    chunks = zip(inputs.split(CHUNK), labels.split(CHUNK))  # (C, E) and (C,)
    run = partial(checkpoint, sums_of, use_reentrant=False, preserve_rng_state=False)
    sums = [run(chunk, weight, bias, chunk_labels) for chunk, chunk_labels in chunks]
    return ClassificationSums(*(torch.stack(part).sum() for part in zip(*sums)))
