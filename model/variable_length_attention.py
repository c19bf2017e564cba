"""Attention of packed rows on a GPU: FlashAttention over sequences of different lengths, nothing between two of them.

The kernel takes the tokens of all rows as one long row and the offsets at which its sequences start. Their number
differs from batch to batch, so the offsets are filled up with empty sequences: shapes stay, and nothing is read back.
"""

import torch
from torch import Tensor


def sequence_offsets(sequence_ids: Tensor, most_in_a_row: int) -> Tensor:
    """Where each sequence of the rows, laid end to end, begins, and where the last one ends; padding is a sequence.

    `sequence_ids` (B, S) int64 numbers the sequences of a row, -1 on padding. Gives int32 (B * most_in_a_row + 1,),
    ascending from 0, filled up with B * S. A row may not have more than `most_in_a_row` sequences.
    """
    tokens = sequence_ids.numel()
    before = torch.nn.functional.pad(sequence_ids, (1, 0), value=-2)[:, :-1]  # (B, S), an id that no token has in front
    starts = (sequence_ids != before).flatten()  # (T,)
    places = torch.arange(tokens, device=starts.device)  # (T,)
    # The places that start nothing are all written to the last offset, which is T.
    offsets = torch.full((len(sequence_ids) * most_in_a_row + 1,), tokens, device=starts.device)
    targets = torch.where(starts, starts.cumsum(0) - 1, len(offsets) - 1)  # (T,)
    return offsets.scatter(0, targets, torch.where(starts, places, tokens)).int()


def attend_between_offsets(projected: Tensor, offsets: Tensor, longest: int, dropout: float) -> Tensor:
    """softmax(query key^T / sqrt(D)) value inside each sequence; `dropout` on the weights.

    `projected` (T, 3, heads, D) in 16 bits holds query, key and value of T tokens; `longest` bounds a sequence's
    length. Gives (T, heads, D). Keeps the projections, the result and one fp32 number a token and head.
    """
    query, key, value = projected.unbind(1)  # (T, heads, D)
    # torch.nn.attention.varlen calls this operator, too, but without its dropout.
    context, *_ = torch.ops.aten._flash_attention_forward(
        query, key, value, offsets, offsets, longest, longest, dropout, False, False, scale=query.shape[-1] ** -0.5
    )
    return context
