"""The pooler, the two pre-training heads, and the sums of their losses.

The heads predict masked tokens, and the order of two segments (SOP, section 3.1) or BERT's next sentence (NSP).

Legend of the shapes: B rows, M predictions in a row, V vocab_size, E embedding_size, H hidden_size, C classes.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from model.config import IGNORED_LABEL, AlbertConfig
from model.layers.encoder import activation
from model.layers.linear import Linear, linear

CHUNK = 2048
"""Predictions whose logits `chunked_sums` computes at once: 246 MB in fp32 with 30,000 pieces."""


class MaskedTokenHead(nn.Module):
    """Maps H -> E, GELU, LayerNorm, then E -> V by the word embeddings (tied weights) and a bias for each piece."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.embedding_size)
        self.activation = activation(config)
        self.layer_norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))  # (V,)

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """Returns the logits (B, M, V) of hidden states (B, M, H), given `word_embeddings` (V, E)."""
        return linear(self._embed(hidden), word_embeddings, self.bias)  # (B, M, V)

    def sums(self, hidden: Tensor, word_embeddings: Tensor, labels: Tensor) -> "ClassificationSums":
        """The `classification_sums` of the logits against int64 `labels` (B, M). Never holds all logits."""
        embedded = self._embed(hidden).flatten(0, -2)  # (N, E)
        return chunked_sums(embedded, word_embeddings, self.bias, labels.flatten())

    def _embed(self, hidden: Tensor) -> Tensor:
        return self.layer_norm(self.activation(self.dense(hidden)))  # (B, M, E)


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

    loss: Tensor
    """Sum of the cross entropies, in nats."""

    hits: Tensor
    """Number of labels that have the highest logit."""

    total: Tensor
    """Number of labels."""


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


def chunked_sums(inputs: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> ClassificationSums:
    """`classification_sums` of the logits inputs weight^T + bias, of `CHUNK` predictions at a time.

    The forward pass keeps `inputs` alone, and the backward pass computes the logits again. torch's own
    `linear_cross_entropy` computes the gradients in its forward pass: before fp16 has its loss scale, and it adds up
    the gradient of the weight, and a loss in bf16, in 16 bits. Here both sums are fp32.

    Args:
        inputs: (N, E), weight (V, E) and bias (V,) in one dtype.
        labels: int64 (N,), -100 where ignored.
    """
    return ClassificationSums(*_ChunkedSums.apply(inputs, weight, bias, labels))


class _ChunkedSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(inputs, weight, bias, labels)
        sums = torch.zeros(3, device=inputs.device)  # (3,)
        for part, wanted in _chunks(inputs, labels):
            sums += torch.stack(classification_sums(linear(part, weight, bias), wanted))  # (3,)
        loss, hits, total = sums.unbind()  # () each
        ctx.mark_non_differentiable(hits, total)
        return loss.clone(), hits, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        inputs, weight, bias, labels = ctx.saved_tensors
        of_inputs, summed = torch.empty_like(inputs), torch.promote_types(weight.dtype, torch.float32)
        of_weight, of_bias = torch.zeros_like(weight, dtype=summed), torch.zeros_like(bias, dtype=summed)
        for (part, wanted), gradient in zip(_chunks(inputs, labels), of_inputs.split(CHUNK)):
            of_logits = torch.softmax(linear(part, weight, bias), dim=-1, dtype=torch.float32)  # (C, V)
            counted = (wanted != IGNORED_LABEL)[:, None]  # (C, 1)
            of_logits.scatter_add_(1, wanted.clamp(min=0)[:, None], -counted.float())
            of_logits *= counted * above
            of_bias += of_logits.sum(0)
            rounded = of_logits.to(inputs.dtype)  # (C, V)
            torch.mm(rounded, weight, out=gradient)
            _add_product(of_weight, rounded, part)
        return of_inputs, of_weight.to(weight.dtype), of_bias.to(bias.dtype), None


def _chunks(inputs: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Up to `CHUNK` rows (C, E) of `inputs` with their labels (C,)."""
    return zip(inputs.split(CHUNK), labels.split(CHUNK))


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Adds left^T right, of (C, V) and (C, E), to `total` (V, E), without rounding the product to their dtype."""
    if left.is_cuda and left.dtype != total.dtype:
        torch.addmm(total, left.T, right, out_dtype=total.dtype, out=total)
    else:
        total.addmm_(left.T.to(total.dtype), right.to(total.dtype))
