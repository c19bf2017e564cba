"""Multi-head self-attention that stays inside each sequence of a packed row.

A row may hold several sequences one after the other. `AttentionLayout` says which token may attend to which, in the
form that one kernel needs. It is made once for each forward pass and serves every layer. `model/attention/kernels.py`
chooses the kernel.

Legend of the shapes: B rows, S positions in a row, H hidden_size, D head_dim.
"""

from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from model.attention.per_sequence import attend_per_sequence
from model.attention.variable_length import attend_variable_length, cumulative_lengths
from model.config import AlbertConfig
from model.layers.linear import Linear, linear


class AttentionLayout(NamedTuple):
    """Which tokens may attend to which, for all layers of one forward pass.

    At most one of the first four fields is set. If none is, every token of a row attends to every other.
    """

    mask: Tensor | None = None
    """bool, (B, 1, S, S) or (B, 1, 1, S): True where the query (third axis) may attend to the key (last axis)."""

    lengths: list[int] | None = None
    """The length of each sequence, in the order of the rows. For the kernel "sequences"."""

    cu_seqlens: Tensor | None = None
    """int32 (N + 1,), cumulative lengths of the sequences of all rows, from 0. For "flash"."""

    block_mask: BlockMask | None = None
    """The blocks of a row in which any token attends to another. For "flex"."""

    cudnn: bool = False
    """Whether cuDNN's kernel uses `mask`."""

    @classmethod
    def for_packed_rows(
        cls,
        sequence_ids: Tensor,
        kernel: str = "masked",
        max_sequences: int | None = None,
        cu_seqlens: Tensor | None = None,
    ) -> "AttentionLayout":
        """Returns block-diagonal attention: each token attends to the tokens with the same id.

        Args:
            sequence_ids: int64 (B, S), numbers the sequences of a row, -1 on padding. Padding attends to padding, so
                no row of a softmax is empty.
            kernel: one of `model.config.ATTENTION_KERNELS` other than "auto". "sequences" reads the ids on the host;
                a GPU would synchronise, a compiled graph would recompile.
            max_sequences: largest number of sequences in a row, padding counted as one; only "flash" needs it.
            cu_seqlens: int32 (N + 1,), see `EncoderInputs`, for "flash"; None: computed here for B * max_sequences
                sequences, most of which are empty.

        Raises:
            ValueError: "flash" without `max_sequences` and `cu_seqlens`.
        """
        if kernel == "sequences":
            rows = sequence_ids.tolist()  # B lists of S ids
            return cls(lengths=[len(list(sequence)) for row in rows for _, sequence in groupby(row)])
        if kernel == "flash":
            if cu_seqlens is not None:
                return cls(cu_seqlens=cu_seqlens)
            if max_sequences is None:
                raise ValueError("attention 'flash' has to know how many sequences a row can have; give cls_positions")
            return cls(cu_seqlens=cumulative_lengths(sequence_ids, max_sequences))
        if kernel == "flex":
            return cls(block_mask=_block_mask(sequence_ids))
        same = sequence_ids[:, :, None] == sequence_ids[:, None, :]  # (B, S, S)
        return cls(mask=same[:, None], cudnn=kernel == "cudnn")  # (B, 1, S, S)

    @classmethod
    def for_padded_rows(cls, attention_mask: Tensor | None) -> "AttentionLayout":
        """Returns attention over rows of one sequence each.

        `attention_mask` (B, S), int64 or bool, is not 0 on tokens and 0 on padding. None: no padding.
        """
        if attention_mask is None:
            return cls()
        tokens = attention_mask.bool()  # (B, S)
        # A row of padding alone attends to itself: a softmax over nothing would be NaN.
        seen = tokens | ~tokens.any(dim=1, keepdim=True)  # (B, S)
        return cls(mask=seen[:, None, None, :])  # (B, 1, 1, S)


def _block_mask(sequence_ids: Tensor) -> BlockMask:
    """FlexAttention's form of `AttentionLayout.for_packed_rows`, for int64 `sequence_ids` (B, S)."""

    def same(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return sequence_ids[row, query] == sequence_ids[row, key]

    rows, length = sequence_ids.shape
    return create_block_mask(same, rows, None, length, length, device=sequence_ids.device)


def attend(projected: Tensor, layout: AttentionLayout, dropout: float) -> Tensor:
    """Computes softmax(query key^T / sqrt(D)) value within `layout`, with `dropout` on the weights.

    `projected` (B, S, 3, heads, D) holds query, key and value. Returns (B, S, heads, D) in its dtype.
    """
    rows, length, _, heads, head_dim = projected.shape
    if layout.lengths is not None:
        context = attend_per_sequence(projected.flatten(0, 1), layout.lengths, dropout)  # (B * S, heads, D)
        return context.view(rows, length, heads, head_dim)  # (B, S, heads, D)
    if layout.cu_seqlens is not None:
        flat = projected.flatten(0, 1)  # (B * S, 3, heads, D)
        context = attend_variable_length(flat, layout.cu_seqlens, length, dropout)  # (B * S, heads, D)
        return context.view(rows, length, heads, head_dim)  # (B, S, heads, D)
    query, key, value = projected.permute(2, 0, 3, 1, 4).unbind(0)  # (B, heads, S, D)
    if layout.block_mask is not None:
        context = _flex(query.device)(query, key, value, block_mask=layout.block_mask)  # (B, heads, S, D)
    else:
        context = _attend_under_mask(query, key, value, layout, dropout)  # (B, heads, S, D)
    return context.transpose(1, 2)  # (B, S, heads, D)


def _flex(device: torch.device) -> Any:
    """FlexAttention, compiled on its own on a GPU unless the caller is compiled: it is fast only when compiled."""
    if device.type != "cuda" or torch.compiler.is_compiling():
        return flex_attention
    return _compiled_flex()


@cache
def _compiled_flex() -> Any:
    return torch.compile(flex_attention)


def _attend_under_mask(query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, dropout: float) -> Tensor:
    """`attend` on tensors (B, heads, S, D) by kernels that take a mask. Returns (B, heads, S, D)."""
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        return _attend_by_products(query, key, value, layout, dropout)
    if layout.cudnn:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return functional.scaled_dot_product_attention(query, key, value, attn_mask=layout.mask, dropout_p=dropout)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=layout.mask, dropout_p=dropout)


def _attend_by_products(query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, dropout: float) -> Tensor:
    """`_attend_under_mask` as plain matrix products, for bf16 on a CPU.

    The backward pass of torch 2.13's fused kernel takes 1.3 times (S = 512) to 11 times (S = 64, D = 16) as long there.
    """
    scores = query @ (key * key.shape[-1] ** -0.5).transpose(-2, -1)  # (B, heads, S, S)
    if layout.mask is not None:
        scores = scores.masked_fill(~layout.mask, -torch.inf)  # (B, heads, S, S)
    weights = functional.dropout(torch.softmax(scores, dim=-1), dropout)  # (B, heads, S, S)
    return weights @ value  # (B, heads, S, D)


class FusedProjection(NamedTuple):
    """The query, key and value projections of an attention block as one."""

    weight: Tensor
    """(3H, H)"""

    bias: Tensor
    """(3H,)"""


class QueryKeyValue(nn.Module):
    """The query, key and value projections of attention, fused into one matrix product.

    They stay three parameters because LAMB scales each matrix by its own trust ratio. One fused parameter would train
    differently.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.query_weight = nn.Parameter(torch.empty(hidden_size, hidden_size))  # (H, H)
        self.key_weight = nn.Parameter(torch.empty(hidden_size, hidden_size))  # (H, H)
        self.value_weight = nn.Parameter(torch.empty(hidden_size, hidden_size))  # (H, H)
        self.query_bias = nn.Parameter(torch.zeros(hidden_size))  # (H,)
        self.key_bias = nn.Parameter(torch.zeros(hidden_size))  # (H,)
        self.value_bias = nn.Parameter(torch.zeros(hidden_size))  # (H,)

    def forward(self) -> FusedProjection:
        """Concatenates the three, in the order query, key, value."""
        weight = torch.cat((self.query_weight, self.key_weight, self.value_weight))  # (3H, H)
        bias = torch.cat((self.query_bias, self.key_bias, self.value_bias))  # (3H,)
        return FusedProjection(weight, bias)


class SelfAttention(nn.Module):
    """Attention, output projection, dropout, and the LayerNorm after the residual.

    Parameter sharing calls this block "attention" (section 3.1).
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.probs_dropout = config.attention_probs_dropout_prob
        self.query_key_value = QueryKeyValue(config.hidden_size)
        self.dense = Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor, layout: AttentionLayout, projection: FusedProjection | None = None) -> Tensor:
        """Maps (B, S, H) to (B, S, H).

        `projection` is the result of `self.query_key_value`; layers that share this block compute it once. None: it is
        computed here.
        """
        weight, bias = self.query_key_value() if projection is None else projection
        projected = linear(hidden, weight, bias)  # (B, S, 3H)
        projected = projected.unflatten(-1, (3, self.num_attention_heads, -1))  # (B, S, 3, heads, D)
        context = attend(projected, layout, self.probs_dropout if self.training else 0.0)  # (B, S, heads, D)
        context = context.flatten(2)  # (B, S, H)
        return self.layer_norm(hidden + self.dropout(self.dense(context)))  # (B, S, H)
