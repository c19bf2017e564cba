"""Fills [MASK] in a text with the most likely pieces of the vocabulary, as `transformers`' fill-mask does."""

from dataclasses import dataclass

import torch

from common.errors import UserError
from data_prep.text.normalization import normalize
from data_prep.text.vocabulary import CLS_ID, MASK_ID, SEP_ID, UNK_ID, WORD_START, Vocabulary
from model import AlbertForPreTraining

MASK = "[MASK]"
_STAND_IN = "\ue000"
"""A character of no vocabulary in the place of `MASK`, so that the words around it are encoded as they stand."""


@dataclass(frozen=True)
class Fill:
    """A piece in the place of a mask.

    Attributes:
        piece: of the vocabulary; it begins with "▁" if it starts a word.
        probability: among all pieces.
    """

    piece: str
    probability: float

    @property
    def text(self) -> str:
        """The piece as people write it; the mark alone, which is a space, stays."""
        return self.piece.removeprefix(WORD_START) or self.piece


def encode(vocabulary: Vocabulary, text: str) -> list[int]:
    """The ids of a text, with [CLS], [SEP] and its masks. A mask includes the space before it.

    Raises UserError if the text has no mask.
    """
    if MASK not in text:
        raise UserError(f"the text {text!r} has no {MASK}; write it where a word is to be found")
    sentence = normalize(text.replace(_STAND_IN, " ").replace(MASK, _STAND_IN), vocabulary.normalization)
    ids = [CLS_ID]
    for piece, (start, end) in zip(*vocabulary.encode_with_offsets(sentence)):
        covered = sentence[start:end]
        if _STAND_IN not in covered:
            ids.append(piece)
            continue
        if covered.startswith(_STAND_IN) and vocabulary.pieces[ids[-1]] == WORD_START:
            ids.pop()  # the space before the mask
        for number, between in enumerate(covered.split(_STAND_IN)):
            ids += [MASK_ID] if number else []
            ids += [UNK_ID] if between.strip(f"{WORD_START} ") else []  # unknown characters that touch the mask
    return [*ids, SEP_ID]


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
        [Fill(vocabulary.pieces[piece], probability) for piece, probability in zip(pieces, of_mask)]
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
