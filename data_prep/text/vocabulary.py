"""The vocabulary: a SentencePiece unigram model with ALBERT's special pieces and its digit-comma rule.

The rule, from ALBERT's reference code (`encode_pieces`): a piece that ends in a digit and a comma is split again, so
"1918," becomes "1918" and ",". Here the rule is part of the model file. The scores of such pieces are so low that the
best segmentation never contains one. Plain SentencePiece then gives the ids of the reference code.
"""

import base64
import hashlib
import itertools
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2 as model_proto

from common.errors import UserError
from common.files.json_files import parse_object, read_bytes
from common.normalization import ALBERT_NORMALIZATION, Normalization
from data_prep.text.languages import ENGLISH

PAD_ID, UNK_ID, CLS_ID, SEP_ID, MASK_ID = range(5)
_NO_ID = -1
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
                serialized = restore_model(contents)
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
        encoded = self._processor.encode(sentence, return_type="offset_mapping")
        offsets = [
            # If one character becomes several pieces, SentencePiece gives all but the last an empty range.
            (begin, begin if piece == WORD_START else max(end, min(begin + 1, len(sentence))))
            for piece, (begin, end) in zip(encoded["pieces"], encoded["offsets"])
        ]
        return encoded["ids"], offsets

    def decode(self, ids: list[int]) -> str:
        """Returns the text of `ids`, without special pieces."""
        return self._processor.decode([int(i) for i in ids])


def restore_model(contents: Mapping[str, Any]) -> bytes:
    """Returns the SentencePiece model that a `tokenizer.json` was made from, as the bytes of a file.

    `model.tokenizer` writes that file beside spiece.model. Programs that save a model again, such as `save_pretrained`,
    keep tokenizer.json and drop spiece.model.

    It has the same pieces, ids and normalisation, and gives every text the same ids. What SentencePiece records of its
    training is lost, also the language, so the bytes differ from those of the first file.

    Args:
        contents: of tokenizer.json.
    Raises:
        ValueError: it holds no unigram vocabulary, or one that does not start with ALBERT's special pieces.
    """
    vocabulary = contents.get("model")
    kind = vocabulary.get("type") if isinstance(vocabulary, Mapping) else None
    if not isinstance(vocabulary, Mapping) or kind != "Unigram":
        raise ValueError(f"it holds a vocabulary of the type {kind!r:.40}, not SentencePiece's 'Unigram'")
    pieces = vocabulary.get("vocab")
    if not isinstance(pieces, list) or not all(map(_is_piece, pieces)):
        raise ValueError("its vocabulary is not a list of pieces with scores")
    first = tuple(piece for piece, _ in pieces[: len(SPECIAL_PIECES)])
    if first != SPECIAL_PIECES:
        raise ValueError(f"its pieces start with {' '.join(first)!r:.80} instead of {' '.join(SPECIAL_PIECES)}")
    proto = model_proto.ModelProto()
    kinds = model_proto.ModelProto.SentencePiece
    for number, (piece, score) in enumerate(pieces):
        if number == UNK_ID:
            of_piece = kinds.UNKNOWN
        elif number < len(SPECIAL_PIECES):
            of_piece = kinds.CONTROL
        else:  # the scores of trained pieces are logarithms of probabilities, which are below 0
            of_piece = kinds.NORMAL if score < 0 else kinds.USER_DEFINED
        proto.pieces.add(piece=piece, score=score, type=of_piece)
    trained = proto.trainer_spec
    trained.vocab_size = len(pieces)
    trained.unk_id, trained.pad_id, trained.bos_id, trained.eos_id = UNK_ID, PAD_ID, _NO_ID, _NO_ID
    trained.pad_piece, trained.unk_piece = SPECIAL_PIECES[PAD_ID], SPECIAL_PIECES[UNK_ID]
    proto.normalizer_spec.precompiled_charsmap = _charsmap(contents.get("normalizer"))
    if (normalization := _normalization(contents.get("normalizer"))) != ALBERT_NORMALIZATION:
        proto.normalizer_spec.name = normalization.name
    return proto.SerializeToString(deterministic=True)


def _normalization(normalizer: Any) -> Normalization:
    """What the normaliser of tokenizer.json keeps. One that decomposes nothing and composes nothing is not ours."""
    kinds = set(_kinds(normalizer))
    if not kinds & {"NFKD", "NFKC"}:
        return ALBERT_NORMALIZATION
    return Normalization(keep_case="Lowercase" not in kinds, keep_accents="NFKD" not in kinds)


def _kinds(normalizer: Any) -> Iterator[str]:
    """Yields the types of a normaliser's steps."""
    if isinstance(normalizer, Mapping):
        yield str(normalizer.get("type"))
        parts = normalizer.get("normalizers")
        for part in parts if isinstance(parts, list) else []:
            yield from _kinds(part)


def _is_piece(entry: Any) -> bool:
    return isinstance(entry, list) and [type(part) for part in entry] in ([str, float], [str, int])


def _charsmap(normalizer: Any) -> bytes:
    """SentencePiece's own normalisation in a normaliser of tokenizer.json; empty without one."""
    if not isinstance(normalizer, Mapping):
        return b""
    if normalizer.get("type") == "Precompiled":
        try:
            return base64.b64decode(normalizer["precompiled_charsmap"], validate=True)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError("its normalisation is no precompiled map of characters") from error
    parts = normalizer.get("normalizers")
    return next(filter(None, map(_charsmap, parts if isinstance(parts, list) else [])), b"")
