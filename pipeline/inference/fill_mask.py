"""Fills [MASK] in a text with the most likely pieces of the vocabulary, as `transformers`' fill-mask does."""

from dataclasses import dataclass

import torch

from common.errors import UserError
from data_prep.text.vocabulary import CLS_ID, MASK, MASK_ID, SEP_ID, Vocabulary
from model import AlbertForPreTraining


@dataclass(frozen=True)
class Fill:
    """A piece in the place of a mask.

    Attributes:
        piece: of the vocabulary, with its marks.
        probability: among all pieces.
        text: the piece as people write it; the mark of a word's start alone stays.
    """

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
    device = next(model.parameters()).device
    input_ids = torch.tensor([ids], device=device)  # (1, S)
    masks = (input_ids[0] == MASK_ID).nonzero().T  # (1, M)
    logits = model(input_ids, masked_positions=masks).mlm_logits  # (1, M, V)
    found = torch.softmax(logits[0].float(), dim=-1).topk(min(top_k, len(vocabulary)), dim=-1)  # (M, K) each
    return [
        [
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
