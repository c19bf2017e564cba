"""ALBERT's vocabulary: a SentencePiece unigram model with special pieces and the digit-comma rule.

The rule, from ALBERT's reference code (`encode_pieces`): a piece that ends in a digit and a comma is split again, so
"1918," becomes "1918" and ",". Here the rule is part of the model file. The scores of such pieces are so low that the
best segmentation never contains one. Plain SentencePiece then gives the ids of the reference code with the published
vocabulary; with others some numbers are divided otherwise.
"""

import hashlib
import io
import re
import unicodedata
from collections.abc import Container, Iterator, Sequence

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_proto

from common.errors import UserError
from data_prep.text import ENGLISH, closest
from data_prep.text.normalize import ALBERT_NORMALIZATION, BLANKS, Normalization, normalize, normalize_word
from data_prep.text.vocabulary import SENTENCEPIECE_FILE, UNK_ID, SpecialPieces, Vocabulary

SPECIAL_PIECES = SpecialPieces(("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"))
WORD_START = "▁"
USER_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
CHARACTER_COVERAGE = 0.99995
COVERAGE_OF_MANY = 0.9995  # the default in `_MANY_CHARACTERS`, as SentencePiece's authors recommend
MIN_SIZE = len(SPECIAL_PIECES) + len(USER_SYMBOLS) + 1  # pieces that every vocabulary has, and one more
BYTES = 256
MAX_SENTENCE_BYTES = 1 << 16  # SentencePiece skips longer sentences
# SentencePiece adds up sums in each thread, so their rounding depends on the number of threads. The number is therefore
# fixed. The published vocabulary was trained with the same number.
TRAINING_THREADS = 16
NEVER_SCORE = -1e4  # far below the sum of scores of any other segmentation of a word
_MANY_CHARACTERS = frozenset(["ja", "ko", "zh"])  # languages written with thousands
_WITHOUT_BLANKS = frozenset(["ja", "zh", "th", "lo", "km", "my", "bo"])  # languages that write none between words
_STAND_IN = "\ue000"  # a character of no vocabulary, behind which a part of a word is encoded as it stands


def _any_of(table: Container[str], languages: str) -> bool:
    """Whether a table has one of the languages, whose codes are separated by commas."""
    return any(closest(language, table) in table for language in languages.split(","))


def _are_letters(piece: str) -> bool:
    """Whether a piece is letters of any script, with their marks, and without the word-start mark."""
    return all(unicodedata.category(character)[0] in "LM" for character in piece)


class SentencePieceVocabulary(Vocabulary):
    """A vocabulary of the bytes of a model file, to which the digit-comma rule is added if it is missing.

    A piece continues a word if it is ASCII letters without the word-start mark. In languages other than English, it is
    letters of any kind, unless the language writes no blanks between words. `language` is the code of the one that it
    was trained on, or codes separated by commas.

    ValueError, protobuf's DecodeError, or SentencePiece's RuntimeError: it is no model.
    """

    file_name = SENTENCEPIECE_FILE
    special = SPECIAL_PIECES
    not_in_words = str.maketrans(BLANKS, " " * len(BLANKS))
    word = re.compile(rf"[^\s{BLANKS}]+")

    def __init__(self, serialized: bytes) -> None:
        proto = model_proto.ModelProto.FromString(serialized)
        ruled = [entry for entry in proto.pieces if entry.piece[-1:] == "," and entry.piece[-2:-1].isdigit()]
        if any(piece.score != NEVER_SCORE for piece in ruled):
            for piece in ruled:
                piece.score = NEVER_SCORE
            serialized = proto.SerializeToString(deterministic=True)
        self.serialized = serialized
        self.sha256 = hashlib.sha256(serialized).hexdigest()
        self.pieces = [piece.piece for piece in proto.pieces]
        if not all(isinstance(piece, str) for piece in self.pieces):  # protobuf gives bytes where a piece is not UTF-8
            raise ValueError("a piece is not UTF-8 text")
        self.spellings = [re.sub(f"^{WORD_START}", " ", piece) for piece in self.pieces]
        self.normalization = Normalization.of_name(proto.normalizer_spec.name)
        self.language = ",".join(proto.trainer_spec.accept_language) or ENGLISH
        of_any_script = self.language != ENGLISH and not _any_of(_WITHOUT_BLANKS, self.language)
        continues = _are_letters if of_any_script else lambda piece: piece.isascii() and piece.isalpha()
        self.is_byte = np.array([piece.type == piece.BYTE for piece in proto.pieces])
        # A character of several bytes is one word. Its first byte is below 0x80, or at least 0xC0.
        further = [is_byte and "<0x8" <= piece < "<0xC" for is_byte, piece in zip(self.is_byte, self.pieces)]
        self.continues_word = np.array([continues(piece) for piece in self.pieces]) | np.array(further)
        if proto.trainer_spec.model_type == proto.trainer_spec.UNIGRAM:  # in others the scores are ranks, or nothing
            self.log_frequencies = np.array([piece.score for piece in proto.pieces], np.float64)
            # A character that is no piece, <unk> or bytes, is rarer than each piece.
            is_unknown = self.is_byte | (np.arange(len(self.pieces)) == UNK_ID)
            self.log_frequencies[is_unknown] = self.log_frequencies[self.log_frequencies > NEVER_SCORE].min()
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=serialized)

    @classmethod
    def of_file(cls, content: bytes) -> "SentencePieceVocabulary":
        """Reads a model file. Raises ValueError: it is no SentencePiece model, or lacks ALBERT's special pieces."""
        try:
            vocabulary = cls(content)
        except Exception as error:  # see __init__
            raise ValueError("is not a SentencePiece model") from error
        if tuple(vocabulary.pieces[: len(SPECIAL_PIECES)]) != SPECIAL_PIECES:
            first = " ".join(vocabulary.pieces[: len(SPECIAL_PIECES)])
            raise ValueError(f"starts with the pieces {first} instead of {' '.join(SPECIAL_PIECES)}")
        return vocabulary

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self._processor.encode([normalize(text, self.normalization) for text in texts], out_type=int)

    def _encode_part(self, part: str, begins_word: bool) -> Iterator[tuple[int, int, int]]:
        """See `Vocabulary._encode_part`. The accents after a letter belong to its token."""
        # In `transformers`, these parts begin with a blank, because the first character is not that of the text.
        removed = not self.normalization.keep_accents and unicodedata.combining(part[:1] or " ") != 0
        begins_word |= removed or part.startswith(("``", "''"))
        # A further part stands behind a character that no piece contains, and that is left out then.
        skipped = 0 if begins_word else 1
        word = _STAND_IN * skipped + part
        text, sources = normalize_word(word, self.normalization)
        # A source character ends before the next one that the result contains.
        following = sorted(set(sources))[1:] + [len(word)]
        end_of = dict(zip(sorted(set(sources)), following))
        encoded = self._processor.encode(text, return_type="offset_mapping")
        for number, piece, (begin, end) in zip(encoded["ids"], encoded["pieces"], encoded["offsets"]):
            # If one character becomes several pieces, SentencePiece gives all but the last an empty range.
            end = begin if piece == WORD_START else max(end, min(begin + 1, len(text)))
            if end > skipped or begin >= skipped:
                start = sources[max(begin, skipped)] if max(begin, skipped) < len(sources) else len(word)
                yield number, start - skipped, (end_of[sources[end - 1]] if end > begin else start) - skipped

    def decode(self, ids: Sequence[int]) -> str:
        return self._processor.decode([int(i) for i in ids])


def default_coverage(language: str) -> float:
    """The share of the characters of a text that are pieces. language: codes, separated by commas."""
    return COVERAGE_OF_MANY if _any_of(_MANY_CHARACTERS, language) else CHARACTER_COVERAGE


def train_sentencepiece(
    sentences: Iterator[str],
    size: int,
    normalization: Normalization = ALBERT_NORMALIZATION,
    language: str = ENGLISH,
    character_coverage: float | None = None,
    byte_fallback: bool = False,
) -> SentencePieceVocabulary:
    """Trains a vocabulary of `size` pieces on normalised sentences. Equal sentences always give equal bytes.

    Args:
        normalization: how the sentences were normalised. The model records it.
        language: codes of their languages, separated by commas. The model records them unless it is English.
        character_coverage: share of the characters that are pieces; None is that of `default_coverage`.
        byte_fallback: whether 256 of the pieces are bytes, which spell the other characters.

    UserError: the text has too few different pieces for `size`, or too many characters.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences,
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            character_coverage=default_coverage(language) if character_coverage is None else character_coverage,
            normalization_rule_name="identity",  # the sentences are normalised already
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece=SPECIAL_PIECES[0],
            unk_piece=SPECIAL_PIECES[1],
            control_symbols=list(SPECIAL_PIECES[2:]),
            user_defined_symbols=list(USER_SYMBOLS),
            byte_fallback=byte_fallback,
            max_sentence_length=MAX_SENTENCE_BYTES,
            num_threads=TRAINING_THREADS,
            minloglevel=3,
        )
    except (RuntimeError, OSError) as error:
        raise _explained(str(error), size) from error
    if normalization == ALBERT_NORMALIZATION and language == ENGLISH:
        return SentencePieceVocabulary(model.getvalue())
    proto = model_proto.ModelProto.FromString(model.getvalue())
    proto.normalizer_spec.name = normalization.name
    if language != ENGLISH:
        proto.trainer_spec.accept_language.extend(language.split(","))
    return SentencePieceVocabulary(proto.SerializeToString(deterministic=True))


def _explained(message: str, size: int) -> UserError:
    """Explains SentencePiece's error message in terms of this command's flags."""
    if match := re.search(r"Vocabulary size too high .*?<= (\d+)", message):
        return UserError(f"--size {size} is too large for this text; use --size {match[1]} or less, or more text")
    if match := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return UserError(f"--size {size} is less than the characters of this text need; use --size {match[2]} or more")
    return UserError(f"SentencePiece cannot train on this text ({message}); give it more text or a smaller --size")
