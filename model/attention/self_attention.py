"""Multi-head self-attention that stays inside each sequence of a packed row.

A row may hold several sequences one after the other. `AttentionPattern` says which token may attend to which, in the
form that one kernel needs. It is made once for each forward pass and serves every layer. `model/attention/kernels.py`
chooses the kernel.

Legend of the shapes: B rows, S positions in a row, T = B * S tokens, N tokens of one sequence, H hidden_size,
D head_dim.
"""

from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.config import AlbertConfig
from model.layers.linear import Linear, linear

MASKED = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""What may compute the kernel "masked" on a GPU; the first that can does."""


class AttentionPattern(NamedTuple):
    """Which tokens may attend to which, for all layers of one forward pass.

    At most one of the first three fields is set. If none is, every token of a row attends to every other.
    """

    mask: Tensor | None = None
    """bool, (B, 1, S, S) or (B, 1, 1, S): True where the query (third axis) may attend to the key (last axis)."""

    lengths: list[int] | None = None
    """The length of each sequence, in the order of the rows. For the kernel "sequences"."""

    cu_seqlens: Tensor | None = None
    """int32 (N + 1,), cumulative lengths of the sequences of all rows, from 0. For "flash"."""

    @classmethod
    def for_packed_rows(
        cls,
        sequence_ids: Tensor,
        kernel: str = "masked",
        cu_seqlens: Tensor | None = None,
    ) -> "AttentionPattern":
        """Returns block-diagonal attention: each token attends to the tokens with the same id.

        Args:
            sequence_ids: int64 (B, S), numbers the sequences of a row, -1 on padding. Padding attends to padding, so
                no row of a softmax is empty.
            kernel: one of `model.config.ATTENTION_KERNELS` other than "auto". "sequences" reads the ids on the host;
                a GPU would synchronise, a compiled graph would recompile.
            cu_seqlens: int32 (N + 1,), see `EncoderInputs`; "flash" needs them.

        Raises:
            ValueError: "flash" without `cu_seqlens`.
        """
        if kernel == "sequences":
            rows = sequence_ids.tolist()  # B lists of S ids
            return cls(lengths=[len(list(sequence)) for row in rows for _, sequence in groupby(row)])
        if kernel == "flash":
            if cu_seqlens is None:
                raise ValueError("attention 'flash' has to know where each sequence begins; give cu_seqlens")
            return cls(cu_seqlens=cu_seqlens)
        same = sequence_ids[:, :, None] == sequence_ids[:, None, :]  # (B, S, S)
        return cls(mask=same[:, None])  # (B, 1, S, S)

    @classmethod
    def for_padded_rows(cls, attention_mask: Tensor | None) -> "AttentionPattern":
        """Returns attention over rows of one sequence each.

        `attention_mask` (B, S), int64 or bool, is not 0 on tokens and 0 on padding. None: no padding.
        """
        if attention_mask is None:
            return cls()
        tokens = attention_mask.bool()  # (B, S)
        # A row of padding alone attends to itself: a softmax over nothing would be NaN.
        seen = tokens | ~tokens.any(dim=1, keepdim=True)  # (B, S)
        return cls(mask=seen[:, None, None, :])  # (B, 1, 1, S)


def attend(projected: Tensor, pattern: AttentionPattern, dropout: float) -> Tensor:
    """Computes softmax(query key^T / sqrt(D)) value within `pattern`, with `dropout` on the weights.

    `projected` (B, S, 3, heads, D) holds query, key and value. Returns (B, S, heads, D) in its dtype.
    """
    rows, length, _, heads, head_dim = projected.shape
    if pattern.lengths is not None:
        context = attend_per_sequence(projected.flatten(0, 1), pattern.lengths, dropout)  # (B * S, heads, D)
        return context.view(rows, length, heads, head_dim)  # (B, S, heads, D)
    if pattern.cu_seqlens is not None:
        flat = projected.flatten(0, 1)  # (B * S, 3, heads, D)
        context = attend_variable_length(flat, pattern.cu_seqlens, length, dropout)  # (B * S, heads, D)
        return context.view(rows, length, heads, head_dim)  # (B, S, heads, D)
    query, key, value = projected.permute(2, 0, 3, 1, 4).unbind(0)  # (B, heads, S, D)
    context = _attend_under_mask(query, key, value, pattern, dropout)  # (B, heads, S, D)
    return context.transpose(1, 2)  # (B, S, heads, D)


def _attend_under_mask(query: Tensor, key: Tensor, value: Tensor, pattern: AttentionPattern, dropout: float) -> Tensor:
    """`attend` on tensors (B, heads, S, D) by kernels that take a mask. Returns (B, heads, S, D)."""
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        return _attend_by_products(query, key, value, pattern, dropout)
    if query.device.type == "cpu" or pattern.mask is None:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=pattern.mask, dropout_p=dropout)
    # On Hopper torch itself prefers cuDNN, which can give NaN for rows of 64, 192, 320, ... positions (pytorch/pytorch
    # issue 196678) and adds in no fixed order. MATH serves heads of odd widths.
    with sdpa_kernel(MASKED):
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=pattern.mask, dropout_p=dropout)


def _attend_by_products(query: Tensor, key: Tensor, value: Tensor, pattern: AttentionPattern, dropout: float) -> Tensor:
    """`_attend_under_mask` as plain matrix products, for bf16 on a CPU.

    The backward pass of torch 2.13's fused kernel takes 1.3 times (S = 512) to 11 times (S = 64, D = 16) as long there.
    """
    scores = query @ (key * key.shape[-1] ** -0.5).transpose(-2, -1)  # (B, heads, S, S)
    if pattern.mask is not None:
        scores = scores.masked_fill(~pattern.mask, -torch.inf)  # (B, heads, S, S)
    weights = functional.dropout(torch.softmax(scores, dim=-1), dropout)  # (B, heads, S, S)
    return weights @ value  # (B, heads, S, D)


def attend_per_sequence(projected: Tensor, lengths: list[int], dropout: float) -> Tensor:
    """Computes softmax(query key^T / sqrt(D)) value inside each sequence, with `dropout` on the weights, on a CPU.

    It computes nothing between two sequences. A CPU gains nothing from one large masked product: compared with the
    masked kernels of torch 2.13, rows of six sequences of 85 tokens take a fifth of the time, and rows of one sequence
    of 512 tokens in bf16 take two thirds.

    `projected` (T, 3, heads, D) holds query, key and value, sequence after sequence; `lengths` are those of the
    sequences and add up to T. Returns (T, heads, D). The backward pass recomputes the weights.
    """
    return _AttentionPerSequence.apply(projected, lengths, dropout)


class _AttentionPerSequence(torch.autograd.Function):
    """Saves `projected` for the backward pass and, with dropout, one byte for each weight."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, lengths: list[int], dropout: float) -> Tensor:
        context = projected.new_empty(projected.shape[0], *projected.shape[2:])  # (T, heads, D)
        kept = []
        for part, result in zip(projected.split(lengths), context.split(lengths)):
            query, key, value = _heads_first(part)  # (heads, N, D)
            weights = _weights(query, key)  # (heads, N, N)
            if dropout > 0.0:
                kept.append(torch.rand_like(weights, dtype=torch.float32) >= dropout)  # (heads, N, N)
                weights = weights * kept[-1] / (1.0 - dropout)  # (heads, N, N)
            result.copy_(torch.bmm(weights, value).transpose(0, 1))  # (N, heads, D)
        ctx.save_for_backward(projected, *kept)
        ctx.lengths, ctx.dropout = lengths, dropout
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        projected, *kept = ctx.saved_tensors
        gradients = torch.empty_like(projected)  # (T, 3, heads, D)
        for number, (part, result, above) in enumerate(
            zip(projected.split(ctx.lengths), gradients.split(ctx.lengths), gradient.split(ctx.lengths))
        ):
            query, key, value = _heads_first(part)  # (heads, N, D)
            above = above.transpose(0, 1)  # (heads, N, D)
            scale = query.shape[-1] ** -0.5
            weights = dropped = _weights(query, key)  # (heads, N, N)
            of_weights = torch.bmm(above, value.mT)  # (heads, N, N)
            if kept:
                factor = kept[number] / (1.0 - ctx.dropout)  # (heads, N, N)
                dropped, of_weights = (weights * factor).to(part.dtype), (of_weights * factor).to(part.dtype)
            # The gradient of a softmax: w * (g - sum(w * g)).
            of_scores = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, part.dtype)  # (heads, N, N)
            result[:, 0] = (torch.bmm(of_scores, key) * scale).transpose(0, 1)  # (N, heads, D)
            result[:, 1] = torch.bmm(of_scores.mT, query * scale).transpose(0, 1)  # (N, heads, D)
            result[:, 2] = torch.bmm(dropped.mT, above).transpose(0, 1)  # (N, heads, D)
        return gradients, None, None


def _heads_first(part: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value (heads, N, D) of one sequence (N, 3, heads, D)."""
    query, key, value = part.permute(1, 2, 0, 3).unbind(0)  # (heads, N, D) each
    return query, key, value


def _weights(query: Tensor, key: Tensor) -> Tensor:
    """Attention weights (heads, N, N) of query and key (heads, N, D)."""
    return functional.softmax(torch.bmm(query * query.shape[-1] ** -0.5, key.mT), dim=-1)  # (heads, N, N)


def attend_variable_length(projected: Tensor, cu_seqlens: Tensor, max_length: int, dropout: float) -> Tensor:
    """Computes softmax(query key^T / sqrt(D)) value inside each sequence, with `dropout`, by FlashAttention on a GPU.

    The kernel takes the tokens of all rows as one long row, and where each sequence of it begins. The host makes these
    offsets with the batch (`pipeline/data/packed_rows.py`).

    Args:
        projected: fp16 or bf16 (T, 3, heads, D), query, key and value.
        cu_seqlens: int32 (N + 1,), see `EncoderInputs`.
        max_length: a bound on the length of a sequence.
        dropout: probability of dropping a weight.

    Returns:
        (T, heads, D). Saved for the backward pass: the projections, the result, and one fp32 number for each token
        and head.
    """
    query, key, value = projected.unbind(1)  # (T, heads, D) each
    scale = query.shape[-1] ** -0.5
    # torch.nn.attention.varlen calls the same operator, but without its dropout.
    context, *_ = torch.ops.aten._flash_attention_forward(
        query, key, value, cu_seqlens, cu_seqlens, max_length, max_length, dropout, False, False, scale=scale
    )  # (T, heads, D)
    return context


class FusedProjection(NamedTuple):
    """The query, key and value projections of an attention block as one, for all layers of a pass that use it."""

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

    def forward(self, hidden: Tensor, pattern: AttentionPattern, projection: FusedProjection | None = None) -> Tensor:
        """Maps (B, S, H) to (B, S, H).

        `projection` is the result of `self.query_key_value`; layers that share this block compute it once. None: it is
        computed here.
        """
        projection = projection or self.query_key_value()
        projected = linear(hidden, projection.weight, projection.bias)  # (B, S, 3H)
        projected = projected.unflatten(-1, (3, self.num_attention_heads, -1))  # (B, S, 3, heads, D)
        context = attend(projected, pattern, self.probs_dropout if self.training else 0.0)  # (B, S, heads, D)
        context = context.flatten(2)  # (B, S, H)
        return self.layer_norm(hidden + self.dropout(self.dense(context)))  # (B, S, H)
