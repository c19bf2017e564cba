"""The vocabulary: a SentencePiece unigram model with ALBERT's special pieces and its digit-comma rule.

The rule, from ALBERT's reference code (`encode_pieces`): a piece that ends in a digit and a comma is split again, so
"1918," becomes "1918" and ",". Here the rule is part of the model file. The scores of such pieces are so low that the
best segmentation never contains one. Plain SentencePiece then gives the ids of the reference code.
"""

import hashlib
import itertools
import unicodedata
from pathlib import Path

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2 as model_proto

from common.errors import UserError
from common.files.json_files import parse_object, read_bytes
from common.normalization import Normalization
from data_prep.text.languages import ENGLISH
from data_prep.text.tokenizer_json import sentencepiece_model

PAD_ID, UNK_ID, CLS_ID, SEP_ID, MASK_ID = range(5)
SPECIAL_PIECES = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
WORD_START = "▁"
MAX_MODEL_BYTES = 1 << 30
NEVER_SCORE = -1e4  # far below the sum of scores of any other segmentation of a word
_WITHOUT_BLANKS = frozenset(["ja", "zh", "th", "lo", "km", "my", "bo"])  # languages that write none between words
_REMEDY = "make one with `python -m data_prep vocab`, or name the .model file"


def ends_in_digit_comma(piece: str) -> bool:
    """Tells whether the digit-comma rule splits `piece`."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def bake_digit_comma_rule(proto: model_proto.ModelProto) -> bool:
    """Lowers the scores of the pieces that end in a digit and a comma. Returns whether any score changed."""
    changed = False
    for piece in proto.pieces:
        if ends_in_digit_comma(piece.piece) and piece.score != NEVER_SCORE:
            piece.score = NEVER_SCORE
            changed = True
    return changed


def _are_letters(piece: str) -> bool:
    """Whether a piece is letters of any script, with their marks, and without the word-start mark."""
    return all(unicodedata.category(character)[0] in "LM" for character in piece)


class Vocabulary:
    """A loaded vocabulary; `load` makes one.

    Attributes:
        serialized: the bytes of the model file, digit-comma rule included.
        sha256: hash of `serialized`, in hexadecimal. Shards and runs compare it.
        pieces: the text of each id, V strings.
        normalization: how the text was normalised that it was trained on, and how all text must be that it encodes.
        language: code of the language that it was trained on, or codes separated by commas.
        continues_word: bool[V], whether a piece continues a word: it is ASCII letters without the word-start mark. In
            languages other than English, it is letters of any kind, unless the language writes no blanks between words.
            Masking needs it for n-grams of whole words.
    """

    def __init__(self, serialized: bytes) -> None:
        proto = model_proto.ModelProto.FromString(serialized)
        if bake_digit_comma_rule(proto):
            serialized = proto.SerializeToString(deterministic=True)
        self.serialized = serialized
        self.sha256 = hashlib.sha256(serialized).hexdigest()
        self.pieces: list[str] = [piece.piece for piece in proto.pieces]
        if not all(isinstance(piece, str) for piece in self.pieces):  # protobuf gives bytes where a piece is not UTF-8
            raise ValueError("a piece is not UTF-8 text")
        self.normalization = Normalization.of_name(proto.normalizer_spec.name)
        self.language = ",".join(proto.trainer_spec.accept_language) or ENGLISH
        of_any_script = self.language != ENGLISH and not _WITHOUT_BLANKS & set(self.language.split(","))
        continues = _are_letters if of_any_script else lambda piece: piece.isascii() and piece.isalpha()
        self.continues_word: NDArray[np.bool_] = np.array([continues(piece) for piece in self.pieces])
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=serialized)

    @classmethod
    def load(cls, path: Path, remedy: str = _REMEDY) -> "Vocabulary":
        """Reads the SentencePiece model in the file `path`, and adds the digit-comma rule if it is missing.

        A file whose name ends in ".json" is a tokenizer.json, from which the model is restored.

        Args:
            path: the file.
            remedy: end of the message if the file is not a vocabulary.
        Raises:
            UserError: the file is missing, is not a SentencePiece model, or does not start with ALBERT's special
                pieces.
        """
        try:
            serialized = read_bytes(path, remedy, MAX_MODEL_BYTES)
        except UserError as error:
            raise UserError(f"cannot read the vocabulary: {error}") from error
        if path.suffix == ".json":
            contents = parse_object(serialized, path, remedy)
            try:
                serialized = sentencepiece_model(contents, SPECIAL_PIECES)
            except ValueError as error:
                raise UserError(f"{path} is not a SentencePiece vocabulary: {error}; {remedy}") from None
        try:
            vocabulary = cls(serialized)
        except Exception as error:  # protobuf's DecodeError or SentencePiece's RuntimeError
            raise UserError(f"{path} is not a SentencePiece model; {remedy}") from error
        if tuple(vocabulary.pieces[: len(SPECIAL_PIECES)]) != SPECIAL_PIECES:
            raise UserError(
                f"{path} starts with the pieces {' '.join(vocabulary.pieces[:5])} instead of "
                f"{' '.join(SPECIAL_PIECES)}; {remedy}"
            )
        return vocabulary

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, sentences: list[str], threads: int = 1) -> list[list[int]]:
        """Returns the ids of each normalised sentence, without [CLS] and [SEP].

        No text produces the id of a special piece other than <unk>.
        """
        return self._processor.encode(sentences, out_type=int, num_threads=threads)

    def encode_flat(self, sentences: list[str], threads: int = 1) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """Encodes as `encode` does. Returns all ids, uint16, and the number of ids of each sentence, int64."""
        encoded = self.encode(sentences, threads)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        ids = np.fromiter(itertools.chain.from_iterable(encoded), np.uint16, int(lengths.sum()))
        return ids, lengths

    def encode_with_offsets(self, sentence: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Returns the ids of a normalised sentence, and the characters [begin, end) of it that each comes from.

        A piece that is the word-start mark alone comes from none.
        """
        found = self._processor.encode(sentence, return_type="offset_mapping")
        offsets = [
            # If one character becomes several pieces, SentencePiece gives all but the last an empty range.
            (begin, begin if piece == WORD_START else max(end, min(begin + 1, len(sentence))))
            for piece, (begin, end) in zip(found["pieces"], found["offsets"])
        ]
        return found["ids"], offsets

    def decode(self, ids: list[int]) -> str:
        """Returns the text of `ids`, without special pieces."""
        return self._processor.decode([int(i) for i in ids])
