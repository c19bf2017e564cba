"""The SentencePiece model that is restored from tokenizer.json gives the ids of the first one."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from data_prep.text.normalization import normalize
from data_prep.text.vocabulary import SPECIAL_PIECES, Vocabulary
from model.tokenizer import tokenizer_json
from tests.data_prep import corpora

LINES = ['(it) is "new" - and old.', "in 1918, 1,234,567 votes", "£5 – €7 東京 ﬁne №5", "", "unknown ❤ signs"]


@pytest.fixture(scope="module", params=["identity", "nmt_nfkc"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary without and with SentencePiece's own normalisation, which the published one has."""
    symbols = ["(", ")", '"', "-", ".", "–", "£", "€"]
    path = tmp_path_factory.mktemp("trained") / "spiece.model"
    return corpora.train_pieces(path, [*corpora.make_sentences(400), *LINES * 5], 160, request.param, symbols)


def test_the_restored_vocabulary_encodes_as_the_first(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_json(trained)))
    first, restored = Vocabulary.load(trained), Vocabulary.load(tmp_path / "tokenizer.json")
    assert restored.pieces == first.pieces
    texts = [normalize(text) for text in [*corpora.make_sentences(200), *LINES]]
    assert restored.encode(texts) == first.encode(texts)
    assert [*map(restored.encode_with_offsets, texts)] == [*map(first.encode_with_offsets, texts)]
    # Not normalised before: SentencePiece's own normalisation shows.
    assert restored.encode(LINES) == first.encode(LINES)
    (tmp_path / "again.model").write_bytes(restored.serialized)
    assert Vocabulary.load(tmp_path / "again.model").sha256 == restored.sha256


PIECES = [[piece, 0.0] for piece in SPECIAL_PIECES]


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("{", "is no valid JSON"),
        ({}, "a vocabulary of the type None"),
        ({"model": {"type": "WordPiece", "vocab": {"[PAD]": 0}}}, "a vocabulary of the type 'WordPiece', not"),
        ({"model": {"type": "Unigram", "vocab": {"<pad>": 0}}}, "is not a list of pieces"),
        ({"model": {"type": "Unigram", "vocab": [["<pad>", True]]}}, "is not a list of pieces"),
        ({"model": {"type": "Unigram", "vocab": [["<s>", 0.0], *PIECES]}}, "start with '<s> <pad>"),
        ({"model": {"type": "Unigram", "vocab": []}}, "start with ''"),
        (
            {"model": {"type": "Unigram", "vocab": PIECES}, "normalizer": {"type": "Precompiled"}},
            "no precompiled map of characters",
        ),
    ],
)
def test_what_is_no_vocabulary_is_said_in_one_line(contents: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(contents if isinstance(contents, str) else json.dumps(contents))
    with pytest.raises(UserError, match=message) as error:
        Vocabulary.load(path, "copy it again")
    assert str(error.value).endswith("; copy it again")
    assert str(path) in str(error.value)


def test_a_damaged_map_of_characters_is_a_mistake_of_the_file(tmp_path: Path) -> None:
    normalizer = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\xff" * 20).decode()}
    contents = {"model": {"type": "Unigram", "vocab": [*PIECES, ["a", -1.0]]}, "normalizer": normalizer}
    (tmp_path / "tokenizer.json").write_text(json.dumps(contents))
    with pytest.raises(UserError, match="is not a SentencePiece model; copy it"):
        Vocabulary.load(tmp_path / "tokenizer.json", "copy it")
