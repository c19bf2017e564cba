"""WordPiece: the tokens of `transformers`, special pieces at any ids, and what is refused."""

import contextlib
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.errors import UserError
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.text_encoder import Encoder, OffsetEncoder
from data_prep.text.vocabulary import CLS_ID, MASK_ID, PAD_ID, SEP_ID, UNK_ID
from data_prep.text.wordpiece_vocabulary import SPECIAL_PIECES, WordPieceRules, WordPieceVocabulary
from tests.data_prep import corpora

LANGUAGES = tomllib.loads(Path(__file__).with_name("lines.toml").read_text(encoding="utf-8"))["languages"]
RULES = [
    WordPieceRules(),
    WordPieceRules(lowercase=False),
    WordPieceRules(strip_accents=False),
    WordPieceRules(handle_chinese_chars=False, max_input_chars_per_word=6),
]
DIFFICULT = "aZé½ﬁİßΣς㎏한΅`'\"“ⅷ…2,. \u3000\u00a0\u200b\n\0\x0b\x1c\x85\u0301\u0345ǅ中か\u3099­\ufffd\u2028#[]"


@pytest.fixture(scope="module", params=RULES, ids=lambda rules: str(list(vars(rules).values())))
def wordpiece(request: pytest.FixtureRequest) -> WordPieceVocabulary:
    """A vocabulary whose special pieces stand in the middle, in another order."""
    pieces = corpora.wordpiece_pieces([*corpora.make_sentences(300), *LANGUAGES * 3], 600)
    return WordPieceVocabulary([*pieces[:7], *reversed(SPECIAL_PIECES), *pieces[7:]], request.param)


@pytest.fixture(scope="module")
def directory(wordpiece: WordPieceVocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wordpiece")
    (path / "tokenizer.json").write_bytes(wordpiece.serialized)
    return path


@pytest.fixture(scope="module")
def theirs(wordpiece: WordPieceVocabulary, directory: Path) -> Any:
    rules = wordpiece.rules
    tokenizer = transformers.BertTokenizerFast(
        {wordpiece.pieces[i]: int(number) for i, number in enumerate(wordpiece.file_ids)},
        do_lower_case=rules.lowercase,
        strip_accents=rules.strip_accents,
        tokenize_chinese_chars=rules.handle_chinese_chars,
        split_special_tokens=True,
    )
    tokenizer._tokenizer.model.max_input_chars_per_word = rules.max_input_chars_per_word
    return tokenizer


def assert_same_tokens(wordpiece: WordPieceVocabulary, theirs: Any, texts: list[str]) -> None:
    expected = theirs(texts, add_special_tokens=False, return_offsets_mapping=True)
    file_ids, wanted = wordpiece.file_ids, expected["input_ids"]
    assert file_ids is not None
    assert [file_ids[ids].tolist() for ids in wordpiece.encode(texts)] == wanted
    ids, counts = Encoder(wordpiece).encode(texts)
    assert [file_ids[part].tolist() for part in np.split(ids, np.cumsum(counts)[:-1])] == wanted
    for text, ids_there, offsets in zip(texts, wanted, expected["offset_mapping"]):
        tokens = OffsetEncoder(wordpiece).encode(text)
        assert file_ids[tokens.ids].tolist() == ids_there
        assert list(zip(tokens.starts.tolist(), tokens.ends.tolist())) == offsets


def test_tokens_and_offsets_are_those_of_transformers_in_ten_languages(wordpiece, theirs):
    assert_same_tokens(wordpiece, theirs, [*LANGUAGES, *corpora.make_sentences(50, seed=7), ""])
    known = [ids for ids in wordpiece.encode(LANGUAGES) if UNK_ID not in ids]
    assert len(known) >= 5, "the test has lost its power"


def has_no_special_piece(text: str) -> bool:
    """In pre-training the name of a special piece is text, which `transformers` does not know. Hypothesis tries such
    names, because it finds them in the modules that are imported."""
    return not any(piece in text for piece in SPECIAL_PIECES)


@given(st.text(st.sampled_from(DIFFICULT) | st.characters(codec="utf-8"), max_size=30).filter(has_no_special_piece))
@example("a\x1cb c\x85d e\0f 中文naïve cafe\u0301 \u2028x")
@settings(max_examples=60)
def test_tokens_of_any_text_are_those_of_transformers(wordpiece: WordPieceVocabulary, theirs: Any, text: str) -> None:
    assert_same_tokens(wordpiece, theirs, [text, f"one {text}two"])


def test_special_pieces_come_first_and_the_file_keeps_their_ids(wordpiece, directory):
    assert [wordpiece.pieces[i] for i in (PAD_ID, UNK_ID, CLS_ID, SEP_ID, MASK_ID)] == list(SPECIAL_PIECES)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    assert tokenizer.convert_ids_to_tokens(wordpiece.file_ids.tolist()) == wordpiece.pieces
    assert wordpiece.file_ids[:5].tolist() == [11, 10, 9, 8, 7]
    for piece, continues, spelling in zip(wordpiece.pieces, wordpiece.continues_word, wordpiece.spellings):
        assert continues == piece.startswith("##")
        assert spelling == (piece[2:] if continues else f" {piece}")


def test_every_form_of_the_file_gives_the_same_vocabulary(wordpiece, directory, tmp_path):
    assert load_vocabulary(directory).serialized == wordpiece.serialized
    rules = wordpiece.rules
    assert load_vocabulary(directory).normalization == rules.normalization
    in_order = [wordpiece.pieces[i] for i in np.argsort(wordpiece.file_ids)]
    (tmp_path / "vocab.txt").write_text("\n".join(in_order), encoding="utf-8")
    names = {"do_lower_case": rules.lowercase, "strip_accents": rules.strip_accents}
    names |= {"tokenize_chinese_chars": rules.handle_chinese_chars}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(names))
    if rules.max_input_chars_per_word == 100:
        assert load_vocabulary(tmp_path / "vocab.txt").sha256 == wordpiece.sha256
        assert load_vocabulary(tmp_path).sha256 == wordpiece.sha256


def test_masks_and_names_of_special_pieces(wordpiece: WordPieceVocabulary) -> None:
    assert not {PAD_ID, CLS_ID, SEP_ID, MASK_ID} & set(wordpiece.encode([" ".join(SPECIAL_PIECES)])[0])
    first, second = wordpiece.encode(["The cats", "for, £5"])
    assert wordpiece.encode_for_use("The cats [MASK]for, £5[MASK]") == [*first, MASK_ID, *second, MASK_ID]
    if wordpiece.rules.lowercase:
        assert wordpiece.decode([CLS_ID, *first, MASK_ID, SEP_ID]) == "the cats"


FILE = json.loads(WordPieceVocabulary([*SPECIAL_PIECES, "a", "##a"], WordPieceRules()).serialized)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("model", {"vocab": {"a": 0}}, r"without \[PAD\] \[UNK\] \[CLS\] \[SEP\] \[MASK\]"),
        ("model", {"vocab": {"a": 0, "b": 0}}, "whose ids are not 0, 1, 2 and so on"),
        ("model", {"max_input_chars_per_word": "x"}, "has 'x' for max_input_chars_per_word"),
        ("normalizer", {"type": "NFKC"}, "prepares text by NFKC and BertPreTokenizer"),
        ("normalizer", {"lowercase": 1}, "has 1 for lowercase"),
        ("added_tokens", [{"content": "[E1]"}], r"added tokens \[E1\]"),
        ("added_tokens", 5, "added tokens 5"),
        ("model", {"vocab": {str(number): str(number) for number in range(12)}}, "ids are not 0, 1, 2"),
    ],
)
def test_what_is_no_wordpiece_vocabulary_is_said_in_one_line(part, change, message, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(FILE | {part: FILE[part] | change if isinstance(change, dict) else change}))
    with pytest.raises(UserError, match=message) as error:
        load_vocabulary(path, "copy it again")
    assert str(error.value).startswith(f"{path} ")
    assert str(error.value).endswith("; copy it again")


def test_the_bytes_of_a_vocabulary_stay_the_same() -> None:
    """Shards and runs record their hash. They also say how other programs join two texts."""
    vocabulary = WordPieceVocabulary([*SPECIAL_PIECES, "a", "##a"], WordPieceRules())
    assert vocabulary.sha256 == "5ce98a7721822e1f4450b21f066ec6996fbb56e70123800c44c59c1e6249d16e"


PIECES = [*SPECIAL_PIECES, "a", "A", "\u00e9", "\u00c9", "e", "E", "\u4e2d", "\u6587", "##\u6587", "\u4e2d\u6587"]
OTHER_RULES = [*RULES[:3], WordPieceRules(lowercase=False, strip_accents=True), WordPieceRules(True, None, False)]
CONFIGS: list[dict[str, Any]] = [{"do_lower_case": False}, {"do_lower_case": True, "strip_accents": None}]
CONFIGS += [{}, {"strip_accents": False}, {"tokenize_chinese_chars": False}]


@pytest.mark.parametrize("rules", [None, *OTHER_RULES], ids=str)
@pytest.mark.parametrize("name", ["BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", None])
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_the_ids_are_those_of_transformers_or_the_files_are_refused(config, name, rules, tmp_path):
    if rules is None:
        (tmp_path / "vocab.txt").write_text("\n".join(PIECES), encoding="utf-8")
    else:
        (tmp_path / "tokenizer.json").write_bytes(WordPieceVocabulary(PIECES, rules).serialized)
    named = config | ({} if name is None else {"tokenizer_class": name})
    if named:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    vocabulary = None
    with contextlib.suppress(UserError):
        vocabulary = load_vocabulary(tmp_path)
    if vocabulary is None:
        assert rules is not None
        assert name != "PreTrainedTokenizerFast"
        with pytest.raises(UserError, match=r"; set \w+ in tokenizer_config\.json as the model was trained"):
            load_vocabulary(tmp_path)
        return
    if rules is not None or name != "PreTrainedTokenizerFast":  # that class does not read a vocab.txt
        text = "A a \u00c9 \u00e9 \u4e2d\u6587 E"
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path).tokenize(text)
        assert [vocabulary.pieces[piece] for piece in vocabulary.encode([text])[0]] == theirs


def test_a_note_says_that_capitals_are_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES), encoding="utf-8")
    assert load_vocabulary(tmp_path).normalization == WordPieceRules().normalization
    load_vocabulary(tmp_path)
    assert capsys.readouterr().err.count("has pieces with capitals, but no do_lower_case") == 1
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    load_vocabulary(tmp_path)
    assert capsys.readouterr().err == ""
    (tmp_path / "tokenizer.json").write_text(json.dumps(FILE))
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": null}')
    assert load_vocabulary(tmp_path).normalization == WordPieceRules().normalization, "null is the default"


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (["a", "b", "a"], "has the piece 'a' twice"),
        ([*SPECIAL_PIECES, *map(str, range(65_532))], "has 65537 pieces, and at most 65536 can be used"),
    ],
)
def test_a_list_of_pieces_that_cannot_be_used(pieces: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    with pytest.raises(UserError, match=message):
        load_vocabulary(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(b"\xff\n")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        load_vocabulary(tmp_path)
