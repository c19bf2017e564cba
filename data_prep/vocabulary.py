"""The vocabulary: a SentencePiece unigram model with ALBERT's special pieces and its digit-comma rule.

The rule (ALBERT's reference code, `encode_pieces`): a piece that ends in a digit and a comma is split again, so that
"1918," is "1918" and ",". Here the rule lives in the model: the score of such pieces is lowered until the best
segmentation never takes one, and plain SentencePiece gives the reference's ids.
"""

import hashlib
import itertools
from pathlib import Path

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2 as model_proto

from data_prep.errors import UserError

PAD_ID, UNK_ID, CLS_ID, SEP_ID, MASK_ID = range(5)
SPECIAL_PIECES = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
WORD_START = "▁"
NEVER_SCORE = -1e4  # far below any sum of scores that a word's other segmentations can have

NORMALIZATION = "nfkd, no accents, lower case, single spaces"
"""What `data_prep.text.normalize` does, as recorded in manifests: text is normalised by it before it is encoded."""


def ends_in_digit_comma(piece: str) -> bool:
    """Whether ALBERT splits `piece` again."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def bake_digit_comma_rule(proto: model_proto.ModelProto) -> bool:
    """Makes `proto` never produce a piece that ends in digit + comma; returns whether anything had to change."""
    changed = False
    for piece in proto.pieces:
        if ends_in_digit_comma(piece.piece) and piece.score != NEVER_SCORE:
            piece.score = NEVER_SCORE
            changed = True
    return changed


class Vocabulary:
    """A loaded vocabulary; `load` makes one.

    Attributes:
        serialized: the bytes of the model file, digit-comma rule included.
        sha256: of `serialized`, in hexadecimal: what shards and runs compare.
        pieces: the text of each id, V strings.
        continues_word: bool[V], True where a piece is the inside or the end of a word (ASCII letters without the
            word-start mark), for masking whole words.
    """

    def __init__(self, serialized: bytes) -> None:
        proto = model_proto.ModelProto.FromString(serialized)
        if bake_digit_comma_rule(proto):
            serialized = proto.SerializeToString(deterministic=True)
        self.serialized = serialized
        self.sha256 = hashlib.sha256(serialized).hexdigest()
        self.pieces: list[str] = [piece.piece for piece in proto.pieces]
        self.continues_word: NDArray[np.bool_] = np.array([p.isascii() and p.isalpha() for p in self.pieces])
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=serialized)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Reads `path`, a `.model` file of SentencePiece, and bakes the digit-comma rule in where it is missing.

        Raises:
            UserError: the file is missing, is no model, or has other special pieces than ALBERT's.
        """
        try:
            serialized = Path(path).read_bytes()
        except OSError as error:
            raise UserError(
                f"cannot read the vocabulary {path}: {error.strerror}; "
                "make one with `python -m data_prep vocab`, or name the .model file"
            ) from error
        try:
            vocabulary = cls(serialized)
        except Exception as error:  # protobuf's DecodeError or SentencePiece's RuntimeError, by what is wrong
            raise UserError(
                f"{path} is not a SentencePiece model; name the .model file that `python -m data_prep vocab` wrote"
            ) from error
        if tuple(vocabulary.pieces[: len(SPECIAL_PIECES)]) != SPECIAL_PIECES:
            raise UserError(
                f"{path} starts with the pieces {' '.join(vocabulary.pieces[:5])} instead of "
                f"{' '.join(SPECIAL_PIECES)}; make one with `python -m data_prep vocab`"
            )
        return vocabulary

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, sentences: list[str], threads: int = 1) -> list[list[int]]:
        """Ids of each normalised sentence, without [CLS] and [SEP].

        Text cannot produce the ids of special pieces other than <unk>, whatever is written in it.
        """
        return self._processor.encode(sentences, out_type=int, num_threads=threads)

    def encode_flat(self, sentences: list[str], threads: int = 1) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """The same as two arrays: all ids one after the other, uint16, and how many each sentence has, int64."""
        encoded = self.encode(sentences, threads)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        ids = np.fromiter(itertools.chain.from_iterable(encoded), np.uint16, int(lengths.sum()))
        return ids, lengths

    def encode_with_offsets(self, sentence: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of a normalised sentence, and the characters [begin, end) of it that each stands for.

        The mark of a word's start, as a piece of its own, stands for none.
        """
        found = self._processor.encode(sentence, return_type="offset_mapping")
        offsets = [
            # Where one character makes several pieces, SentencePiece gives all but the last an empty stretch.
            (begin, begin if piece == WORD_START else max(end, min(begin + 1, len(sentence))))
            for piece, (begin, end) in zip(found["pieces"], found["offsets"])
        ]
        return found["ids"], offsets

    def decode(self, ids: list[int]) -> str:
        """Text of `ids`; special pieces are left out."""
        return self._processor.decode([int(i) for i in ids])
