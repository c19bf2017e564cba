"""Trains a SentencePiece model with the unigram method (Kudo, arXiv 1804.10959) and ALBERT's special pieces."""

import io
import re
from collections.abc import Iterator

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_proto

from common.errors import UserError
from common.normalization import ALBERT_NORMALIZATION, Normalization
from data_prep.text.languages import ENGLISH
from data_prep.text.vocabulary import SPECIAL_PIECES, Vocabulary

USER_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
CHARACTER_COVERAGE = 0.99995
MAX_SENTENCE_BYTES = 1 << 16  # SentencePiece skips longer sentences
# SentencePiece adds up sums in each thread, so their rounding depends on the number of threads. The number is therefore
# fixed. The published vocabulary was trained with the same number.
TRAINING_THREADS = 16


def train(
    sentences: Iterator[str],
    size: int,
    normalization: Normalization = ALBERT_NORMALIZATION,
    language: str = ENGLISH,
) -> Vocabulary:
    """Trains a vocabulary of `size` pieces on normalised sentences. Equal sentences always give equal bytes.

    Args:
        sentences: what to train on.
        size: number of pieces.
        normalization: how the sentences were normalised. The model records it.
        language: codes of their languages, separated by commas. The model records them unless it is English.

    Raises:
        UserError: the text has too few different pieces for `size`, or too many characters.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences,
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            character_coverage=CHARACTER_COVERAGE,
            normalization_rule_name="identity",  # the sentences are normalised already
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece=SPECIAL_PIECES[0],
            unk_piece=SPECIAL_PIECES[1],
            control_symbols=list(SPECIAL_PIECES[2:]),
            user_defined_symbols=list(USER_SYMBOLS),
            byte_fallback=False,
            max_sentence_length=MAX_SENTENCE_BYTES,
            num_threads=TRAINING_THREADS,
            minloglevel=3,
        )
    except (RuntimeError, OSError) as error:
        raise _explained(str(error), size) from error
    if normalization == ALBERT_NORMALIZATION and language == ENGLISH:
        return Vocabulary(model.getvalue())
    proto = model_proto.ModelProto.FromString(model.getvalue())
    proto.normalizer_spec.name = normalization.name
    if language != ENGLISH:
        proto.trainer_spec.accept_language.extend(language.split(","))
    return Vocabulary(proto.SerializeToString(deterministic=True))


def _explained(message: str, size: int) -> Exception:
    """Explains SentencePiece's error message in terms of this command's flags."""
    if found := re.search(r"Vocabulary size too high .*?<= (\d+)", message):
        return UserError(
            f"--size {size} is more than this text has pieces for; use --size {found[1]} or less, or more text"
        )
    if found := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return UserError(f"--size {size} is less than the characters of this text need; use --size {found[2]} or more")
    return UserError(f"SentencePiece cannot train on this text ({message}); give it more text or a smaller --size")
