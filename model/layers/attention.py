"""Multi-head self-attention that stays inside each sequence of a packed row.

A row may hold several sequences one after the other. `AttentionPattern` says which token may attend to which, in the
form that one kernel needs. It is made once for each forward pass and serves every layer.

Legend of the shapes: B rows, S positions in a row, T = B * S tokens, N sequences, H hidden_size, D head_dim.
"""

from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.config import AlbertConfig, ExecutionOptions, flash_supports
from model.layers.processor import Dropout, LayerNorm, Linear, attend_by_products, attend_per_sequence, linear
from model.layers.torch_operators import flash_attention

MAX_MASKED_LENGTH = 128
"""On a CPU, rows of at most this many positions use the masked kernel. One product for each sequence is slower for
them: a step of albert-tiny with rows of 64 takes 1.3 times as long."""
FLASH_CAPABILITY = (8, 0)  # the compute capability of the oldest GPUs that FlashAttention runs on
MASKED = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""What may compute the kernel "masked" on a GPU; the first that can does. On Hopper torch itself prefers cuDNN, which
can give NaN for rows of 64, 192, 320, ... positions (pytorch/pytorch issue 196678) and adds in no fixed order."""


def choose_kernel(execution: ExecutionOptions, hidden: Tensor, head_dim: int, has_offsets: bool) -> str:
    """Returns the kernel for packed rows: one of `ATTENTION_KERNELS` other than "auto".

    Args:
        hidden: (B, S, H), the input of the first layer.
        has_offsets: whether the batch has `cu_seqlens`, which "flash" needs.
    """
    if execution.attention != "auto":
        return execution.attention
    if hidden.device.type == "cpu":
        is_compiled = execution.compile or torch.compiler.is_compiling()
        return "masked" if is_compiled or hidden.shape[1] <= MAX_MASKED_LENGTH else "sequences"
    is_16_bit = hidden.dtype in (torch.float16, torch.bfloat16)
    if hidden.device.type != "cuda" or not is_16_bit or not has_offsets or not flash_supports(head_dim):
        return "masked"
    return "flash" if torch.cuda.get_device_capability(hidden.device) >= FLASH_CAPABILITY else "masked"


class AttentionPattern(NamedTuple):
    """Which tokens may attend to which, for all layers of one forward pass.

    At most one of the fields is set. If none is, every token of a row attends to every other.
    """

    mask: Tensor | None = None  # bool (B, 1, S, S) or (B, 1, 1, S), True where the query may attend to the key (last)
    lengths: list[int] | None = None  # of each sequence, in the order of the rows; for the kernel "sequences"
    cu_seqlens: Tensor | None = None  # int32 (N + 1,), cumulative lengths of all sequences, from 0; for "flash"

    @classmethod
    def for_packed_rows(
        cls, sequence_ids: Tensor, kernel: str = "masked", cu_seqlens: Tensor | None = None
    ) -> "AttentionPattern":
        """Returns block-diagonal attention: each token attends to the tokens with the same id.

        Args:
            sequence_ids: int64 (B, S), numbers the sequences of a row, -1 on padding. Padding attends to padding, so
                no row of a softmax is empty.
            kernel: see `choose_kernel`. "sequences" reads the ids on the host; a GPU would synchronise, a compiled
                graph would recompile.
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
    rows, length, *_ = projected.shape
    if pattern.lengths is not None:
        context = attend_per_sequence(projected.flatten(0, 1), pattern.lengths, dropout)  # (T, heads, D)
        return context.unflatten(0, (rows, length))  # (B, S, heads, D)
    if pattern.cu_seqlens is not None:
        # FlashAttention takes the tokens of all rows as one long row.
        query, key, value = projected.flatten(0, 1).unbind(1)  # (T, heads, D) each
        context = flash_attention(query, key, value, pattern.cu_seqlens, length, dropout)  # (T, heads, D)
        return context.unflatten(0, (rows, length))  # (B, S, heads, D)
    query, key, value = projected.permute(2, 0, 3, 1, 4).unbind(0)  # (B, heads, S, D) each
    if query.device.type == "cpu" and (dropout or query.dtype == torch.bfloat16):
        context = attend_by_products(query, key, value, pattern.mask, dropout)  # (B, heads, S, D)
    elif query.device.type == "cpu" or pattern.mask is None:
        context = functional.scaled_dot_product_attention(query, key, value, pattern.mask, dropout)  # (B, heads, S, D)
    else:
        with sdpa_kernel(MASKED):
            context = functional.scaled_dot_product_attention(query, key, value, pattern.mask, dropout)
    return context.transpose(1, 2)  # (B, S, heads, D)


class FusedProjection(NamedTuple):
    """The query, key and value projections of an attention block as one, for all layers of a pass that use it."""

    weight: Tensor  # (3H, H)
    bias: Tensor  # (3H,)


class QueryKeyValue(nn.Module):
    """The query, key and value projections of attention, fused into one matrix product.

    They stay three parameters because LAMB scales each matrix by a trust ratio of its own; one fused would differ.
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
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.layer_norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor, pattern: AttentionPattern, projection: FusedProjection) -> tuple[Tensor, Tensor]:
        """Maps (B, S, H) to (B, S, H). Layers that share the block compute `projection` once.

        The second result, (B, S, H), is what the heads have read, one head after the other: for each token the mean of
        the values, weighted by its attention.
        """
        projected = linear(hidden, projection.weight, projection.bias)  # (B, S, 3H)
        projected = projected.unflatten(-1, (3, self.num_attention_heads, -1))  # (B, S, 3, heads, D)
        context = attend(projected, pattern, self.probs_dropout if self.training else 0.0)  # (B, S, heads, D)
        context = context.flatten(2)  # (B, S, H)
        return self.layer_norm(hidden + self.dropout(self.dense(context))), context  # (B, S, H) each
