"""Restores a SentencePiece model from `tokenizer.json`, the file that `transformers` keeps of a vocabulary.

`model.tokenizer` writes that file beside spiece.model. Programs that save a model again, such as `save_pretrained`,
keep tokenizer.json and drop spiece.model.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from sentencepiece import sentencepiece_model_pb2 as model_proto

from common.normalization import ALBERT_NORMALIZATION, Normalization

UNK_ID, PAD_ID, NO_ID = 1, 0, -1


def sentencepiece_model(contents: Mapping[str, Any], special_pieces: tuple[str, ...]) -> bytes:
    """Returns the SentencePiece model that a `tokenizer.json` was made from, as the bytes of a file.

    It has the same pieces, ids and normalisation, and gives every text the same ids. What SentencePiece records of its
    training is lost, also the language, so the bytes differ from those of the first file.

    Args:
        contents: of tokenizer.json.
        special_pieces: the first pieces: padding, unknown, and those that no text produces.
    Raises:
        ValueError: it holds no unigram vocabulary, or one that does not start with `special_pieces`.
    """
    vocabulary = contents.get("model")
    kind = vocabulary.get("type") if isinstance(vocabulary, Mapping) else None
    if not isinstance(vocabulary, Mapping) or kind != "Unigram":
        raise ValueError(f"it holds a vocabulary of the type {kind!r:.40}, not SentencePiece's 'Unigram'")
    pieces = vocabulary.get("vocab")
    if not isinstance(pieces, list) or not all(map(_is_piece, pieces)):
        raise ValueError("its vocabulary is not a list of pieces with scores")
    first = tuple(piece for piece, _ in pieces[: len(special_pieces)])
    if first != special_pieces:
        raise ValueError(f"its pieces start with {' '.join(first)!r:.80} instead of {' '.join(special_pieces)}")
    proto = model_proto.ModelProto()
    kinds = model_proto.ModelProto.SentencePiece
    for number, (piece, score) in enumerate(pieces):
        if number == UNK_ID:
            of_piece = kinds.UNKNOWN
        elif number < len(special_pieces):
            of_piece = kinds.CONTROL
        else:  # the scores of trained pieces are logarithms of probabilities, which are below 0
            of_piece = kinds.NORMAL if score < 0 else kinds.USER_DEFINED
        proto.pieces.add(piece=piece, score=score, type=of_piece)
    trained = proto.trainer_spec
    trained.vocab_size = len(pieces)
    trained.unk_id, trained.pad_id, trained.bos_id, trained.eos_id = UNK_ID, PAD_ID, NO_ID, NO_ID
    trained.pad_piece, trained.unk_piece = special_pieces[PAD_ID], special_pieces[UNK_ID]
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
