"""Gives trained weights another vocabulary: the embeddings of its pieces are made from those of the old pieces."""

import dataclasses
from pathlib import Path

import torch
from torch import Tensor

from data_prep.text.vocabulary import MASK_ID, UNK_ID, Vocabulary
from pipeline.checkpoint.initial_weights import OF_PIECES, InitialWeights


@dataclasses.dataclass(frozen=True)
class Carried:
    """Where the rows of the new pieces come from.

    Attributes:
        sources: the ids of the old pieces of each new piece. The new row is the mean of their rows.
        copied, averaged, unknown: pieces that both vocabularies have; that consist of several old ones, or of one with
            another place in the word; that the old vocabulary cannot write. The last have the mean of all rows.
    """

    sources: list[list[int]]
    copied: int
    averaged: int
    unknown: int

    def __str__(self) -> str:
        return (
            f"new vocabulary: {self.copied:,} pieces copied, {self.averaged:,} from their parts, "
            f"{self.unknown:,} unknown to the old one"
        )

    def average(self, rows: Tensor) -> Tensor:
        """The rows of the new pieces, (V', ...), from those of the old ones, (V, ...)."""
        return torch.stack([rows[ids].mean(0) for ids in self.sources])


def match_pieces(old: Vocabulary, new: Vocabulary) -> Carried:
    """Finds the old pieces of each new piece. The two vocabularies may be of different kinds.

    Two pieces are the same if they have the same spelling and the same place in a word: at its start, or inside.
    """
    ids = {(bool(old.continues_word[i]), old.spellings[i].strip()): i for i in range(MASK_ID + 1, len(old))}
    everything = list(range(MASK_ID + 1, len(old)))
    sources, copied, unknown = [[i] for i in range(MASK_ID + 1)], MASK_ID + 1, 0
    parts = old.encode([spelling.strip() for spelling in new.spellings])
    for i in range(MASK_ID + 1, len(new)):
        inside = bool(new.continues_word[i])
        same = ids.get((inside, new.spellings[i].strip()))
        if same is not None:
            copied += 1
            sources.append([same])
            continue
        # A text begins a word, and so may its first piece: the mark of a word's start alone tells nothing here.
        pieces = [part for part in parts[i] if part != UNK_ID and old.spellings[part].strip()]
        unknown += not pieces
        sources.append(pieces or everything)
    return Carried(sources, copied, len(new) - copied - unknown, unknown)


def carry_over(initial: InitialWeights, file: Path, vocabulary: Vocabulary) -> tuple[InitialWeights, Carried]:
    """The weights of `initial` for `vocabulary`, which was read from `file`: only the rows of pieces change."""
    carried = match_pieces(initial.vocabulary, vocabulary)
    tensors = initial.tensors | {
        name: carried.average(initial.tensors[name]) for name in OF_PIECES if name in initial.tensors
    }
    config = dataclasses.replace(initial.config, vocab_size=len(vocabulary))
    fitted = dataclasses.replace(initial, config=config, tensors=tensors, vocabulary_file=file, vocabulary=vocabulary)
    return fitted, carried
