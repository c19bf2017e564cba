"""Multi-head self-attention that stays inside each sequence of a packed row.

A row of a batch may hold several sequences one after the other. `AttentionLayout` says which token may look
at which; it is made once for each forward pass and serves every layer. `attend` calls the kernels that take a
mask; `model/sequence_attention.py` is the one that takes sequences one by one.
"""

from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import AlbertConfig
from model.sequence_attention import attend_in_sequences

LONGEST_MASKED_ROW = 128
"""On a processor, rows of at most so many positions are attended under a mask: going through their sequences one by one
costs more (1.3 times the whole step of albert-tiny at 64) than it saves."""


class AttentionLayout(NamedTuple):
    """Who may attend to whom, for all layers of one forward pass."""

    mask: Tensor | None
    """bool, (B, 1, S, S) or (B, 1, 1, S): True where the query (next to last) may see the key (last). None:
    everywhere."""

    lengths: list[int] | None = None
    """Tokens of the sequences of all rows, one after the other, where they are attended one by one; then there is
    no mask."""

    @classmethod
    def for_packed_rows(cls, sequence_ids: Tensor, one_by_one: bool = False) -> "AttentionLayout":
        """Block-diagonal attention over int `sequence_ids` (B, S), which number the sequences of a row.

        `one_by_one` reads the ids, which suits a processor: a GPU would be waited for, a compiled graph would
        serve one batch only. Padding carries an id of its own (-1), so it sees only padding: harmless, and no row
        of the softmax is empty.
        """
        if one_by_one:
            rows = sequence_ids.tolist()
            return cls(None, [len(list(sequence)) for row in rows for _, sequence in groupby(row)])
        same = sequence_ids[:, :, None] == sequence_ids[:, None, :]  # (B, S, S)
        return cls(same[:, None])  # (B, 1, S, S)

    @classmethod
    def for_padded_rows(cls, attention_mask: Tensor | None) -> "AttentionLayout":
        """One sequence a row; `attention_mask` (B, S) is 1 or True on its tokens and 0 on the padding. None:
        no padding."""
        if attention_mask is None:
            return cls(None)
        return cls(attention_mask.bool()[:, None, None, :])  # (B, 1, 1, S)


def attend(query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, dropout: float) -> Tensor:
    """softmax(query key^T / sqrt(D)) value within `layout`; all tensors (B, heads, S, D); `dropout` on the
    weights."""
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        return _attend_by_products(query, key, value, layout, dropout)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=layout.mask, dropout_p=dropout)


def _attend_by_products(query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, dropout: float) -> Tensor:
    """`attend`, spelled out: on a processor in bf16 the backward pass of torch 2.13's fused kernel takes 1.3
    (S = 512) to 11 times (S = 64, 16 wide heads) as long as these matrix products."""
    scores = query @ (key * key.shape[-1] ** -0.5).transpose(-2, -1)  # (B, heads, S, S)
    if layout.mask is not None:
        scores = scores.masked_fill(~layout.mask, -torch.inf)
    weights = functional.dropout(torch.softmax(scores, dim=-1), dropout)  # (B, heads, S, S)
    return weights @ value  # (B, heads, S, D)


class FusedProjection(NamedTuple):
    """The three input projections of an attention block as one."""

    weight: Tensor
    """(3H, H)"""

    bias: Tensor
    """(3H,)"""


class QueryKeyValue(nn.Module):
    """The three input projections of attention, fused for one matrix product.

    They stay three parameters because LAMB scales each matrix by its own trust ratio: one fused parameter
    would train differently.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.query_weight = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.key_weight = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.value_weight = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.query_bias = nn.Parameter(torch.zeros(hidden_size))
        self.key_bias = nn.Parameter(torch.zeros(hidden_size))
        self.value_bias = nn.Parameter(torch.zeros(hidden_size))

    def forward(self) -> FusedProjection:
        """Query, key and value, in this order."""
        weight = torch.cat((self.query_weight, self.key_weight, self.value_weight))  # (3H, H)
        bias = torch.cat((self.query_bias, self.key_bias, self.value_bias))  # (3H,)
        return FusedProjection(weight, bias)


class SelfAttention(nn.Module):
    """Attention, projection, dropout, and the LayerNorm after the residual: what parameter sharing calls
    "attention"."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.probs_dropout = config.attention_probs_dropout_prob
        self.query_key_value = QueryKeyValue(config.hidden_size)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor, layout: AttentionLayout, projection: FusedProjection | None = None) -> Tensor:
        """(B, S, H) to (B, S, H). `projection` is this block's own; several layers that share it fuse it once."""
        weight, bias = self.query_key_value() if projection is None else projection
        projected = functional.linear(hidden, weight, bias)  # (B, S, 3H)
        projected = projected.unflatten(-1, (3, self.num_attention_heads, -1))  # (B, S, 3, heads, D)
        dropout = self.probs_dropout if self.training else 0.0
        if layout.lengths is not None:
            context = attend_in_sequences(projected.flatten(0, 1), layout.lengths, dropout)  # (B * S, heads, D)
            context = context.view(hidden.shape)  # (B, S, H)
        else:
            query, key, value = projected.permute(2, 0, 3, 1, 4).unbind(0)  # (B, heads, S, D)
            context = attend(query, key, value, layout, dropout)  # (B, heads, S, D)
            context = context.transpose(1, 2).flatten(2)  # (B, S, H)
        return self.layer_norm(hidden + self.dropout(self.dense(context)))  # (B, S, H)
