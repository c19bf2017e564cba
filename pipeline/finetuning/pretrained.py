"""What a pre-trained model says of texts: the words in the place of a [MASK], and embeddings.

Words are those of `transformers`' fill-mask. An embedding is the mean of the encoder's last layer over the tokens of a
text, scaled to length 1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from common.errors import UserError
from data_prep.text.vocabulary import CLS_ID, MASK, MASK_ID, SEP_ID, Vocabulary
from model import AlbertForPreTraining, AlbertModel
from pipeline.data.prefetch import to_device
from pipeline.tasks.kinds.row_packing import EncodedTexts, pack


class Fill(NamedTuple):
    """A piece in the place of a mask, with its marks; its probability; and the piece as people write it."""

    piece: str
    probability: float
    text: str


def encode(vocabulary: Vocabulary, text: str) -> list[int]:
    """The ids of a text, with [CLS], [SEP] and its masks. A mask includes the space before it.

    Raises UserError if the text has no mask.
    """
    if MASK not in text:
        raise UserError(f"the text {text!r} has no {MASK}; write it where a word is to be found")
    return [CLS_ID, *vocabulary.encode_with_masks(text), SEP_ID]


@torch.no_grad()
def fill(model: AlbertForPreTraining, vocabulary: Vocabulary, text: str, top_k: int) -> list[list[Fill]]:
    """The `top_k` most likely pieces in the place of each mask of `text`, the most likely first.

    Raises UserError if the text has no mask, or more tokens than the model has positions.
    """
    ids = encode(vocabulary, text)
    positions = model.config.max_position_embeddings
    if len(ids) > positions:
        raise UserError(f"a text has {len(ids)} tokens, and the model {positions} positions; shorten {text[:40]!r}")
    input_ids = torch.tensor([ids], device=next(model.parameters()).device)  # (1, S)
    masks = (input_ids[0] == MASK_ID).nonzero().T  # (1, M)
    logits = model(input_ids, masked_positions=masks).mlm_logits  # (1, M, V)
    found = torch.softmax(logits[0].float(), dim=-1).topk(min(top_k, len(vocabulary)), dim=-1)  # (M, K) each
    return [
        [
            # The mark of a word's start alone stays.
            Fill(shown := vocabulary.pieces[piece], probability, vocabulary.spellings[piece].strip() or shown)
            for piece, probability in zip(pieces, of_mask)
        ]
        for pieces, of_mask in zip(found.indices.tolist(), found.values.tolist())
    ]


def lines(text: str, fills: list[list[Fill]]) -> list[str]:
    """A text and the pieces for each of its masks, for people."""
    shown = [text]
    for number, of_mask in enumerate(fills, start=1):
        if len(fills) > 1:
            shown.append(f"  {MASK} {number}:")
        shown += [f"  {100 * one.probability:5.1f} %  {one.text}" for one in of_mask]
    return shown


@torch.no_grad()
def embed(model: AlbertModel, vocabulary: Vocabulary, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
    """The embedding of each text, float32 (N, H), of Euclidean length 1.

    [CLS] and [SEP] count as tokens, as in the library sentence-transformers. A text is cut to the model's positions.

    Args:
        model: in evaluation mode.
        batch_size: texts that are encoded at a time; texts of similar length share a batch.
    """
    device = next(model.parameters()).device
    encoded, room = EncodedTexts(vocabulary, texts), model.config.max_position_embeddings - 2
    found = np.empty((len(texts), model.config.hidden_size), dtype=np.float32)
    order = np.argsort(encoded.lengths, kind="stable")[::-1]  # longest first: too little memory shows at once
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        rows, placement = pack([(encoded[index][:room], None) for index in chosen.tolist()])
        hidden = model(**to_device(rows, device)).last_hidden_state  # (B, S, H)
        slots = 1 + int(placement.number.max())  # sequences of a row, at most
        row, number, lengths = (
            torch.from_numpy(column).to(device) for column in (placement.row, placement.number, placement.length)
        )
        sequence_ids = torch.from_numpy(rows.sequence_ids).to(device)  # (B, S), -1 on padding
        is_token = sequence_ids >= 0  # (B, S)
        slot = torch.arange(len(sequence_ids), device=device)[:, None] * slots + sequence_ids  # (B, S)
        sums = hidden.new_zeros(len(sequence_ids) * slots, hidden.shape[-1], dtype=torch.float32)  # (B * P, H)
        sums.index_add_(0, slot[is_token], hidden[is_token].float())
        means = sums[row * slots + number] / lengths[:, None]  # (N, H)
        found[chosen] = torch.nn.functional.normalize(means, dim=-1).cpu().numpy()
    return found
