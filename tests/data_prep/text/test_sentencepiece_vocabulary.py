"""The vocabulary: training, the digit-comma rule, and ids that no text produces."""

import base64
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_proto

from common.errors import UserError
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.normalize import Normalization, normalize
from data_prep.text.sentencepiece_vocabulary import (
    SPECIAL_PIECES,
    SentencePieceVocabulary,
    default_coverage,
    train_sentencepiece,
)
from data_prep.text.vocabulary import CLS_ID, MASK_ID, PAD_ID, SEP_ID, UNK_ID, Vocabulary
from tests.data_prep import corpora


def reference_ids(processor: sentencepiece.SentencePieceProcessor, sentence: str) -> list[int]:
    """Encodes as ALBERT's reference code does: first SentencePiece, then pieces that end in digit + comma are split."""
    pieces: list[str] = []
    for piece in processor.encode(sentence, out_type=str):
        if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
            pieces.append(piece)
            continue
        parts = processor.encode(piece[:-1].replace("▁", ""), out_type=str)
        if not piece.startswith("▁") and parts[0].startswith("▁"):
            parts[0] = parts[0][1:]  # the encoder put a space in front that was not there
            parts = parts if parts[0] else parts[1:]
        pieces += [*parts, ","]
    return [processor.piece_to_id(piece) for piece in pieces]


@pytest.fixture(scope="module")
def unruly(vocabulary: Vocabulary) -> bytes:
    """Returns a model that prefers pieces ending in digit + comma, like the published one.

    Other pieces of several characters with a digit are made so unlikely that the rest of a number is never divided
    otherwise once such a piece is gone: the two ways to the ids then agree without exception.
    """
    proto = model_proto.ModelProto.FromString(vocabulary.serialized)
    for piece in proto.pieces:
        if len(piece.piece) > 1 and any(character.isdigit() for character in piece.piece):
            piece.score = -50.0
    present = {piece.piece: piece for piece in proto.pieces}
    for digit in "0123456789":
        for text, score in ((digit, -6.0), (f"{digit},", -7.0)):
            piece = present.get(text) or proto.pieces.add(piece=text)
            piece.score = score
    return proto.SerializeToString()


def test_ids_are_the_references_on_generated_text(unruly: bytes, tmp_path: Path) -> None:
    generator = random.Random(0)
    sentences = [
        normalize(f"{sentence} {generator.randrange(10_000):,} {generator.randrange(3000)}, {sentence[:20]}")
        for sentence in corpora.make_sentences(3000, seed=5)
    ]
    plain = sentencepiece.SentencePieceProcessor(model_proto=unruly)
    wanted = [reference_ids(plain, sentence) for sentence in sentences]
    assert sum(plain.encode(one) != ids for one, ids in zip(sentences, wanted)) > 2000  # the rule is at work here
    once = SentencePieceVocabulary(unruly)
    assert once.encode(sentences) == wanted
    # Baking the rule twice changes nothing.
    (tmp_path / "baked.model").write_bytes(once.serialized)
    again = load_vocabulary(tmp_path / "baked.model")
    assert again.serialized == once.serialized != unruly
    assert again.sha256 == once.sha256 == hashlib.sha256(once.serialized).hexdigest()


def test_pieces_of_a_vocabulary(vocabulary: Vocabulary) -> None:
    assert (PAD_ID, UNK_ID, CLS_ID, SEP_ID, MASK_ID) == (0, 1, 2, 3, 4)
    assert vocabulary.pieces[:13] == [*SPECIAL_PIECES, "(", ")", '"', "-", ".", "–", "£", "€"]
    assert len(vocabulary) == len(vocabulary.continues_word) == 400
    for piece, inside, spelling in zip(vocabulary.pieces, vocabulary.continues_word, vocabulary.spellings):
        assert inside == (piece[0] != "▁" and piece.isascii() and piece.isalpha()), piece
        assert spelling == (f" {piece[1:]}" if piece[0] == "▁" else piece)
    assert vocabulary.continues_word.any()
    assert UNK_ID in vocabulary.encode(["ба 漢"])[0]
    sentences = corpora.make_sentences(50, seed=9)
    assert [vocabulary.decode(ids) for ids in vocabulary.encode(sentences)] == [*map(normalize, sentences)]


def test_pieces_of_other_scripts_continue_words_that_blanks_end() -> None:
    sentences = ["река течёт реками по речке", "नदी नदियों में", "ab abc"] * 20
    for language, continues in (("ru", True), ("en", False), ("zh", False), ("ru,zh-hant", False), ("yue", False)):
        vocabulary = train_sentencepiece(iter(sentences), 42, Normalization(keep_accents=True), language)
        assert vocabulary.continues_word[vocabulary.pieces.index("е")] == continues
        assert not vocabulary.continues_word[vocabulary.pieces.index("▁")]


def test_a_size_that_does_not_fit_the_text_is_answered_with_one_that_does() -> None:
    sentences = [normalize(sentence) for sentence in corpora.make_sentences(300)]
    with pytest.raises(UserError, match=r"--size 20000 is too large .* use --size \d+ or less") as caught:
        train_sentencepiece(iter(sentences), 20_000)
    largest = int(str(caught.value).split("use --size ")[1].split()[0])
    assert len(train_sentencepiece(iter(sentences), largest)) == largest
    for texts, size, message in (
        (sentences, largest + 1, f"use --size {largest} or less"),
        (sentences, 20, r"use --size \d+ or more"),
        ([], 100, "more text"),
    ):
        with pytest.raises(UserError, match=message):
            train_sentencepiece(iter(texts), size)


PIECES = [[piece, 0.0] for piece in SPECIAL_PIECES]
OTHER_PIECES = model_proto.ModelProto(
    pieces=[{"piece": "<mask>", "score": 0.0, "type": "UNKNOWN"}, {"piece": "a", "score": -1.0}]
).SerializeToString()
DAMAGED_MAP = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\xff" * 20).decode()}


def test_a_tokenizer_of_another_program_is_restored(tmp_path: Path) -> None:
    pieces = [*PIECES, ["(", 0.0], ["▁a", -1.0], ["▁", -2.0]]
    contents = {"model": {"type": "Unigram", "vocab": pieces}, "normalizer": {"type": "Lowercase"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(contents))
    vocabulary = load_vocabulary(tmp_path)
    assert vocabulary.normalization == Normalization()
    proto = model_proto.ModelProto.FromString(vocabulary.serialized)
    assert [piece.type for piece in proto.pieces] == [3, 2, 3, 3, 3, 4, 1, 1]  # control, unknown, defined by a user


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("{", "is no valid JSON"),
        (None, "does not exist"),
        (b"", "(is not a SentencePiece model|instead of <pad>)"),
        (OTHER_PIECES, r"starts with the pieces .*<mask>"),
        (
            {"model": {"type": "Unigram", "vocab": [*PIECES, ["a", -1.0]]}, "normalizer": DAMAGED_MAP},
            "is not a SentencePiece model",
        ),
        ({}, "it holds no list of pieces"),
        ({"model": {"type": "Unigram", "vocab": {"<pad>": 0}}}, "it holds no list of pieces"),
        ({"model": {"type": "Unigram", "vocab": [["<s>", 0.0], *PIECES]}}, "starts with the pieces <s> <pad>"),
    ],
)
def test_what_is_no_vocabulary_is_said_in_one_line(contents: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / ("some.model" if isinstance(contents, bytes) else "tokenizer.json")
    if isinstance(contents, bytes):
        path.write_bytes(contents)
    elif contents is not None:
        path.write_text(contents if isinstance(contents, str) else json.dumps(contents))
    with pytest.raises(UserError, match=message) as error:
        load_vocabulary(path, "copy it again")
    assert str(error.value).endswith("; copy it again")
    assert str(path) in str(error.value)


def test_what_is_no_piece_is_spelled_in_bytes() -> None:
    """Each byte of a character but the first continues its word, and no text becomes unknown."""
    lines = [f"the cat sat on the mat and the dog ran {number}" for number in range(300)] + ["a red fox jumps"] * 9
    vocabulary = train_sentencepiece(iter(lines), 310, byte_fallback=True)
    (ids,) = vocabulary.encode(["the か中 ran"])
    assert [vocabulary.pieces[token] for token in ids if vocabulary.is_byte[token]] == [
        f"<0x{byte:02X}>" for byte in "か中".encode()
    ]
    first, second = (vocabulary.pieces.index(f"<0x{byte:02X}>") for byte in "か".encode()[:2])
    assert (vocabulary.continues_word[first], vocabulary.continues_word[second]) == (False, True)
    assert vocabulary.decode(ids) == "the か中 ran"
    frequencies = vocabulary.log_frequencies
    assert vocabulary.is_byte.sum() == 256
    assert set(frequencies[vocabulary.is_byte]) == {frequencies[vocabulary.pieces.index("<unk>")]}
    assert frequencies[vocabulary.is_byte].max() <= frequencies[frequencies > -1000].min()


@pytest.mark.parametrize(
    ("language", "share"),
    [("en", 0.99995), ("de,ru", 0.99995), ("zh-hant", 0.9995), ("yue", 0.9995), ("de,ko", 0.9995)],
)
def test_the_share_of_characters_goes_by_the_script(language: str, share: float) -> None:
    """One character of 4,500 is a piece where few characters are needed, and none where there are thousands."""
    assert default_coverage(language) == share
    lines = ["abcde fgh" * 50] * 10 + ["文"]
    vocabulary = train_sentencepiece(iter(lines), 23, language=language)
    assert ("文" in vocabulary.pieces) == (share > 0.9995)


def test_log_frequencies_are_those_of_unigram_models_only(vocabulary: Vocabulary) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.serialized)
    assert vocabulary.log_frequencies is not None
    ordinary = range(UNK_ID + 1, len(vocabulary))
    assert vocabulary.log_frequencies[UNK_ID + 1 :].tolist() == [processor.get_score(number) for number in ordinary]
    proto = model_proto.ModelProto.FromString(vocabulary.serialized)
    proto.trainer_spec.model_type = proto.trainer_spec.BPE
    assert SentencePieceVocabulary(proto.SerializeToString()).log_frequencies is None
