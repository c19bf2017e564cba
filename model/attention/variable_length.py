"""Attention of packed rows on a GPU: FlashAttention over sequences of different lengths.

The kernel takes the tokens of all rows as one long row, and the cumulative lengths of its sequences ("cu_seqlens").
The number of sequences differs between batches, so empty sequences are appended and few shapes exist. In training the
host makes the offsets with the batch (`pipeline/data/row_layout.py`), because each empty sequence costs memory in the
backward pass: see `backward_bytes`.

Legend of the shapes: B rows, S positions in a row, T = B * S tokens, D head_dim.
"""

import torch
from torch import Tensor
from torch.nn import functional


def cumulative_lengths(sequence_ids: Tensor, max_sequences: int) -> Tensor:
    """Joins all rows end to end. Returns where each sequence begins, and where the last one ends.

    Args:
        sequence_ids: int64 (B, S), numbers the sequences of a row, -1 on padding. Padding counts as a sequence.
        max_sequences: largest number of sequences in a row.

    Returns:
        int32 (B * max_sequences + 1,), ascending from 0, filled up with T.
    """
    tokens = sequence_ids.numel()
    # No token has the id -2, so the first position of each row starts a sequence.
    previous = functional.pad(sequence_ids, (1, 0), value=-2)[:, :-1]  # (B, S)
    starts = (sequence_ids != previous).flatten()  # (T,)
    places = torch.arange(tokens, device=starts.device)  # (T,)
    # Positions that start no sequence all write T to the last element, which is T anyway.
    size = len(sequence_ids) * max_sequences + 1
    cu_seqlens = torch.full((size,), tokens, device=starts.device)  # (B * max_sequences + 1,)
    targets = torch.where(starts, starts.cumsum(0) - 1, len(cu_seqlens) - 1)  # (T,)
    return cu_seqlens.scatter(0, targets, torch.where(starts, places, tokens)).int()  # (B * max_sequences + 1,)


def backward_bytes(tokens: int, sequences: int, heads: int, head_dim: int) -> int:
    """Bytes that one backward pass takes for the gradient of the queries, in fp32.

    Each sequence, an empty one as well, has 128 more tokens (`mha_varlen_bwd` of FlashAttention 2). The kernel pads
    heads to a multiple of 32. With deterministic algorithms it takes a multiple of this where there are fewer
    sequences times heads than multiprocessors.
    """
    padded = -(-head_dim // 32) * 32 if head_dim <= 192 else 256
    return (tokens + 128 * sequences) * heads * padded * 4


def attend_variable_length(projected: Tensor, cu_seqlens: Tensor, max_length: int, dropout: float) -> Tensor:
    """Computes softmax(query key^T / sqrt(D)) value inside each sequence, with `dropout` on the weights.

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
