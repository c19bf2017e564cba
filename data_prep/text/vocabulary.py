"""What a vocabulary is: pieces of text with ids, and how text becomes them. There are two kinds of it.

`data_prep.text.sentencepiece_vocabulary` is ALBERT's kind, `data_prep.text.wordpiece_vocabulary` BERT's.

The special pieces always have the ids 0 to 4 here. A published WordPiece vocabulary may have them elsewhere; then its
pieces are numbered again: the special ones first, the others in their order. `file_ids` tells the numbers in the file.
"""

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.text.normalize import Normalization

PAD_ID, UNK_ID, CLS_ID, SEP_ID, MASK_ID = range(5)
MASK = "[MASK]"  # the name of the masked piece in every vocabulary
SENTENCEPIECE_FILE, TOKENIZER_FILE, PIECES_FILE = "spiece.model", "tokenizer.json", "vocab.txt"
VOCABULARY_FILES = (SENTENCEPIECE_FILE, TOKENIZER_FILE, PIECES_FILE)
"""Where a vocabulary is looked for in a directory, in this order."""
MAX_PIECES = 1 << 16  # token ids are stored as uint16


class TokensWithOffsets(NamedTuple):
    """The tokens of one text, T of them; each comes from the characters [start, end) of the text, which ascend.

    Tokens that come from one character share it. A word-start mark alone comes from none: its start and end are equal.
    """

    ids: NDArray[np.uint16]  # (T,)
    starts: NDArray[np.int64]  # (T,)
    ends: NDArray[np.int64]  # (T,)


class SpecialPieces(tuple[str, ...]):
    """The names of the special pieces, in the order of their ids."""

    def split(self, text: str) -> list[str]:
        """The parts of a text between the names, and the names: at the odd places."""
        return re.split(f"({'|'.join(map(re.escape, self))})", text)

    def are_in(self, text: str) -> bool:
        """Whether a text has one of the names."""
        return any(name in text for name in self)


def flatten(encoded: Sequence[Sequence[int]]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Returns all ids of some texts, one after the other, uint16, and the number of ids of each text, int64."""
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return np.fromiter(itertools.chain.from_iterable(encoded), np.uint16, int(lengths.sum())), lengths


class Vocabulary(ABC):
    """A loaded vocabulary; `load_vocabulary` makes one. The texts that it encodes are as people wrote them."""

    file_name: ClassVar[str]  # of its file in shards, runs and exports
    special: ClassVar[SpecialPieces]
    not_in_words: ClassVar[Mapping[int, str | int | None]]  # what becomes of characters `str.split` treats differently
    word: ClassVar[re.Pattern[str]]  # what `encode_word` encodes
    serialized: bytes  # the bytes of its file
    sha256: str  # of `serialized`, in hexadecimal. Shards and runs compare it.
    pieces: list[str]  # the text of each id, V strings
    spellings: list[str]  # as people write them: without marks, and with a space in front of what starts a word
    continues_word: NDArray[np.bool_]  # (V,) whether a piece continues a word; masking needs it for whole words
    normalization: Normalization
    file_ids: NDArray[np.int64] | None = None  # (V,) the id in the file of each piece; None if they are equal
    log_frequencies: NDArray[np.float64] | None = None
    """(V,) the logarithm of each piece's share of the text that the vocabulary was trained on, in nats; 0 for pieces
    that were not trained. None if the file does not tell."""

    def __len__(self) -> int:
        return len(self.pieces)

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without [CLS] and [SEP]. No text gives a special piece but the unknown one.

        So the names of special pieces are plain text in what a model is pre-trained on. Where a model is used they
        are those pieces: see `encode_word`.
        """

    def clean(self, texts: list[str]) -> list[str]:
        """Returns the texts with every space between words one that `str.split` finds, and no other."""
        together = "".join(texts)  # to look for a character in it is much faster than a regular expression
        if not any(chr(code) in together for code in self.not_in_words):
            return texts
        return [text.translate(self.not_in_words) for text in texts]

    def encode_word(self, word: str) -> TokensWithOffsets:
        """Encodes a match of `word`, and tells the characters that each token comes from.

        A name of a special piece in it is that piece, as `transformers` has it.
        """
        tokens, place = list[tuple[int, int, int]](), 0
        for number, part in enumerate(self.special.split(word)):
            if number % 2:
                tokens.append((self.special.index(part), place, place + len(part)))
            else:
                pieces = self._encode_part(part, begins_word=number == 0)
                tokens += [(piece, place + start, place + end) for piece, start, end in pieces]
            place += len(part)
        ids, starts, ends = np.array(tokens, np.int64).reshape(-1, 3).T
        return TokensWithOffsets(ids.astype(np.uint16), starts, ends)

    @abstractmethod
    def _encode_part(self, part: str, begins_word: bool) -> Iterator[tuple[int, int, int]]:
        """Yields each piece of a word, or of a further part of one, and the characters [start, end) it comes from.

        "an" in "be[MASK]an" is no beginning of a word.
        """

    def encode_for_use(self, text: str) -> list[int]:
        """Returns the ids of a text that a model is used on: see `encode_word`."""
        return [number for match in self.word.finditer(text) for number in self.encode_word(match[0]).ids.tolist()]

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`, without special pieces."""


def find_vocabulary(path: Path) -> Path:
    """Returns the file of the vocabulary in a directory, and any other path as it is."""
    if not path.is_dir():
        return path
    return next((path / name for name in VOCABULARY_FILES if (path / name).exists()), path / SENTENCEPIECE_FILE)
