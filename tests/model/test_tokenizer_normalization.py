"""The exported tokenizer gives the ids of training, whatever normalisation the vocabulary records."""

import json
import re
from pathlib import Path

import pytest
import transformers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from common.normalization import ALBERT_NORMALIZATION, Normalization
from data_prep.text.encoder import Encoder
from data_prep.text.normalization import normalize
from data_prep.text.offsets import OffsetEncoder
from data_prep.text.sentencepiece_vocabulary import train_sentencepiece
from data_prep.text.vocabulary import Vocabulary
from model import AlbertForPreTraining, huggingface
from pipeline.inference import fill_mask
from tests.data_prep.foreign_pages import WIKIS
from tests.model.examples import few_examples, tiny_config
from tests.model.test_tokenizer import HARD_LINES

KINDS = [Normalization(case, accents) for case in (False, True) for accents in (False, True)]
LINES = [sentence for wiki in WIKIS for sentence in wiki.sentences] + [
    "Élise À l'école ÇA où, NAÏVE Noël; İstanbul IŞIK ıı; Straße GROSS ẞ",
    "e\u0301 E\u0301 a\u0327\u0301 и\u0306 か\u3099 ｶﾞ 한 क\u093c ä\u0323",
    "e\u0301 at the start",
    "ΟΔΟΣ Σίσυφος ΌΣΟΣ",
]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a model with a vocabulary of one normalisation."""
    kind: Normalization = request.param
    sentences = [normalize(line, kind) for line in (LINES + HARD_LINES) * 30]
    words = sorted({normalize(word, kind) for line in LINES for word in re.findall(r"\S+", line)})
    vocabulary = train_sentencepiece(iter([line for line in sentences + words if line]), 520, kind, "de,ru")
    path = tmp_path_factory.mktemp("vocabulary") / "spiece.model"
    path.write_bytes(vocabulary.serialized)
    directory = tmp_path_factory.mktemp("export")
    huggingface.save(AlbertForPreTraining(tiny_config(vocab_size=len(vocabulary))), directory, path)
    return directory


@pytest.fixture(scope="module")
def vocabulary(directory: Path) -> Vocabulary:
    return Vocabulary.load(directory / "spiece.model")


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.from_file(str(directory / "tokenizer.json"))


def expected_ids(vocabulary: Vocabulary, lines: list[str]) -> list[list[int]]:
    return vocabulary.encode(lines)


def test_transformers_gives_the_ids_of_the_training(directory: Path, vocabulary: Vocabulary) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    lines = LINES + HARD_LINES
    found = tokenizer(lines, add_special_tokens=False)["input_ids"]
    assert [line for line, ours, theirs in zip(lines, found, expected_ids(vocabulary, lines)) if ours != theirs] == []


def test_pre_training_and_fine_tuning_give_these_ids_too(vocabulary: Vocabulary) -> None:
    lines = LINES + HARD_LINES
    ids, counts = Encoder(vocabulary).encode(lines)
    offsets = OffsetEncoder(vocabulary)
    begin = 0
    for line, count, expected in zip(lines, counts.tolist(), expected_ids(vocabulary, lines)):
        assert ids[begin : begin + count].tolist() == expected
        assert offsets.encode(line).ids.tolist() == expected
        begin += count


def test_a_model_restored_from_the_tokenizer_gives_these_ids(directory: Path, vocabulary: Vocabulary) -> None:
    restored = Vocabulary.load(directory / "tokenizer.json")
    assert restored.normalization == vocabulary.normalization
    lines = LINES + HARD_LINES
    assert expected_ids(restored, lines) == expected_ids(vocabulary, lines)


def test_a_text_with_masks_gets_these_ids(directory: Path, vocabulary: Vocabulary) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    for text in ("Élise [MASK] à l'école.", "Die Mühle [MASK].", "Никто [MASK] йод"):
        assert fill_mask.encode(vocabulary, text) == tokenizer(text)["input_ids"]


@few_examples
@given(
    text=st.text(
        st.sampled_from("AÀaéÉİıIßẞΣσς.'’`:-中カｶﾞガ\u3099 \u0301\u0327\u0306йЙ한\u1112\u1161\u11ab\u093cक्\u00ad")
        | st.characters(max_codepoint=0x2FFF, codec="utf-8"),
        max_size=12,
    )
)
@example(text="e\u0301")
@example(text="\u0301leading")
@example(text="Α'Σ ΑΣ'Α ΑΣ.Α 中Σ ΑΣ中 ʰΣ")
@example(text="``e\u0301''")
def test_any_text_is_normalised_as_in_training(text: str, vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
    kind = vocabulary.normalization
    assert tokenizer.normalizer.normalize_str(text).removeprefix(" ") == normalize(text, kind)


@few_examples
@given(words=st.lists(st.text("abÀéÉİ019()\"-.–£€'` ΑΣйか中\u0301\u0327\u3099", max_size=8), max_size=6))
@example(words=["e\u0301 a"])
@example(words=["か\u3099か", "か"])
def test_any_mixture_gets_the_ids_of_the_training(
    words: list[str], vocabulary: Vocabulary, tokenizer: Tokenizer
) -> None:
    text = " ".join(words)
    expected = [vocabulary.pieces[i] for i in expected_ids(vocabulary, [text])[0]]
    assert [vocabulary.pieces[i] for i in tokenizer.encode(text, add_special_tokens=False).ids] == expected


def test_the_file_records_it(directory: Path, vocabulary: Vocabulary) -> None:
    kind = vocabulary.normalization
    pieces = "".join(vocabulary.pieces[5:])
    assert ("é" in pieces, pieces == pieces.lower()) == (kind.keep_accents, not kind.keep_case)
    assert vocabulary.language == "de,ru"
    config = json.loads((directory / "tokenizer_config.json").read_text())
    assert config.get("normalization", ALBERT_NORMALIZATION.description) == kind.description


def test_names_of_other_programs_stand_for_alberts_normalisation() -> None:
    assert {Normalization.of_name(name) for name in ("", "identity", "nmt_nfkc", "nmt_nfkc_cf", "user+case")} == {
        ALBERT_NORMALIZATION
    }
    assert [Normalization.of_name(kind.name) for kind in KINDS] == KINDS
    assert ALBERT_NORMALIZATION.description == "nfkd, no accents, lower case, single spaces"
    assert len({kind.description for kind in KINDS}) == 4


def test_words_of_other_scripts_continue() -> None:
    """Masking reads which pieces continue a word. Without blanks between words, each piece is one."""
    sentences = ["река течёт реками по речке", "नदी नदियों में", "ab abc"] * 20
    for language, continues in (("ru", True), ("en", False), ("zh", False)):
        vocabulary = train_sentencepiece(iter(sentences), 42, Normalization(keep_accents=True), language)
        number = next(n for n, piece in enumerate(vocabulary.pieces) if piece == "е")
        assert vocabulary.continues_word[number] == continues
        assert not vocabulary.continues_word[vocabulary.pieces.index("▁")]
