"""Multi-head self-attention that stays inside each sequence of a packed row.

A row of a batch may hold several sequences one after the other. `AttentionLayout` says which token may look at which,
in the form that one kernel wants; it is made once for each forward pass and serves every layer.
`model/attention_kernels.py` decides which kernel that is.
"""

from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from model.config import AlbertConfig
from model.linear import Linear, linear
from model.sequence_attention import attend_in_sequences
from model.variable_length_attention import attend_between_offsets, sequence_offsets


class AttentionLayout(NamedTuple):
    """Who may attend to whom, for all layers of one forward pass. At most one of the four tensors is there; none:
    every token of a row sees every other."""

    mask: Tensor | None = None
    """bool, (B, 1, S, S) or (B, 1, 1, S): True where the query (next to last) may see the key (last)."""

    lengths: list[int] | None = None
    """Tokens of the sequences of all rows, one after the other: "sequences"."""

    offsets: Tensor | None = None
    """int32, ascending: the places at which the sequences of all rows, laid end to end, start and end: "flash"."""

    block_mask: BlockMask | None = None
    """The blocks of a row that hold anything to attend to: "flex"."""

    cudnn: bool = False
    """Whether the mask is for cuDNN's kernel."""

    @classmethod
    def for_packed_rows(
        cls, sequence_ids: Tensor, kernel: str = "masked", most_in_a_row: int | None = None
    ) -> "AttentionLayout":
        """Block-diagonal attention over int64 `sequence_ids` (B, S), which number the sequences of a row.

        `kernel` is one of `model.config.ATTENTION_KERNELS` but "auto". "sequences" reads the ids, which suits a
        processor: a GPU would be waited for, a compiled graph would serve one batch only. "flash" needs
        `most_in_a_row`, padding counted as a sequence. Padding carries an id of its own (-1), so it sees only
        padding: harmless, and no row of the softmax is empty.
        """
        if kernel == "sequences":
            rows = sequence_ids.tolist()
            return cls(lengths=[len(list(sequence)) for row in rows for _, sequence in groupby(row)])
        if kernel == "flash":
            assert most_in_a_row is not None
            return cls(offsets=sequence_offsets(sequence_ids, most_in_a_row))
        if kernel == "flex":
            return cls(block_mask=_block_mask(sequence_ids))
        same = sequence_ids[:, :, None] == sequence_ids[:, None, :]  # (B, S, S)
        return cls(mask=same[:, None], cudnn=kernel == "cudnn")  # (B, 1, S, S)

    @classmethod
    def for_padded_rows(cls, attention_mask: Tensor | None) -> "AttentionLayout":
        """One sequence a row; `attention_mask` (B, S) is 1 or True on its tokens and 0 on the padding. None:
        no padding."""
        if attention_mask is None:
            return cls()
        tokens = attention_mask.bool()  # (B, S)
        # A row of nothing but padding sees itself: a softmax over nothing would be NaN.
        seen = tokens | ~tokens.any(dim=1, keepdim=True)  # (B, S)
        return cls(mask=seen[:, None, None, :])  # (B, 1, 1, S)


def _block_mask(sequence_ids: Tensor) -> BlockMask:
    def same(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return sequence_ids[row, query] == sequence_ids[row, key]

    rows, length = sequence_ids.shape
    return create_block_mask(same, rows, None, length, length, device=sequence_ids.device)


def attend(projected: Tensor, layout: AttentionLayout, dropout: float) -> Tensor:
    """softmax(query key^T / sqrt(D)) value within `layout`; `dropout` on the weights.

    `projected` (B, S, 3, heads, D) holds query, key and value. Gives (B, S, heads, D).
    """
    rows, length, _, heads, width = projected.shape
    if layout.lengths is not None:
        context = attend_in_sequences(projected.flatten(0, 1), layout.lengths, dropout)  # (B * S, heads, D)
        return context.view(rows, length, heads, width)
    if layout.offsets is not None:
        context = attend_between_offsets(projected.flatten(0, 1), layout.offsets, length, dropout)  # (B * S, heads, D)
        return context.view(rows, length, heads, width)
    query, key, value = projected.permute(2, 0, 3, 1, 4).unbind(0)  # (B, heads, S, D)
    if layout.block_mask is not None:
        context = _flex(query.device)(query, key, value, block_mask=layout.block_mask)  # (B, heads, S, D)
    else:
        context = _attend_under_mask(query, key, value, layout, dropout)  # (B, heads, S, D)
    return context.transpose(1, 2)  # (B, S, heads, D)


def _flex(device: torch.device) -> Any:
    """FlexAttention: on a GPU it is fast only when compiled, alone if not with what surrounds it."""
    if device.type != "cuda" or torch.compiler.is_compiling():
        return flex_attention
    return _compiled_flex()


@cache
def _compiled_flex() -> Any:
    return torch.compile(flex_attention)


def _attend_under_mask(query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, dropout: float) -> Tensor:
    """`attend` on tensors (B, heads, S, D) by the kernels that take a mask."""
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        return _attend_by_products(query, key, value, layout, dropout)
    if layout.cudnn:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return functional.scaled_dot_product_attention(query, key, value, attn_mask=layout.mask, dropout_p=dropout)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=layout.mask, dropout_p=dropout)


def _attend_by_products(query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, dropout: float) -> Tensor:
    """`_attend_under_mask`, spelled out: on a processor in bf16 the backward pass of torch 2.13's fused kernel takes
    1.3 (S = 512) to 11 times (S = 64, 16 wide heads) as long as these matrix products."""
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
        self.dense = Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor, layout: AttentionLayout, projection: FusedProjection | None = None) -> Tensor:
        """(B, S, H) to (B, S, H). `projection` is this block's own; several layers that share it fuse it once."""
        weight, bias = self.query_key_value() if projection is None else projection
        projected = linear(hidden, weight, bias)  # (B, S, 3H)
        projected = projected.unflatten(-1, (3, self.num_attention_heads, -1))  # (B, S, 3, heads, D)
        context = attend(projected, layout, self.probs_dropout if self.training else 0.0)  # (B, S, heads, D)
        context = context.flatten(2)  # (B, S, H)
        return self.layer_norm(hidden + self.dropout(self.dense(context)))  # (B, S, H)
