"""Normalisation is its definition; the encoder gives the ids of SentencePiece, and each token stands where it says."""

import itertools
import random
import unicodedata

import numpy as np
import pytest
import sentencepiece
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from data_prep.text import text_encoder as encoder_module
from data_prep.text.normalize import Normalization, normalize, normalize_word
from data_prep.text.sentencepiece_vocabulary import SPECIAL_PIECES
from data_prep.text.text_encoder import Encoder, OffsetEncoder
from data_prep.text.vocabulary import UNK_ID, Vocabulary
from tests.data_prep import corpora


def plain(vocabulary: Vocabulary, sentences: list[str]) -> list[list[int]]:
    """SentencePiece's ids of each word, one word after the other."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.serialized)
    return [[*itertools.chain(*processor.encode(normalize(sentence).split(" ")))] for sentence in sentences]


def by_words(encoder: Encoder, sentences: list[str]) -> list[list[int]]:
    ids, lengths = encoder.encode(sentences)
    assert ids.dtype == np.uint16
    assert len(lengths) == len(sentences)
    assert lengths.sum() == len(ids)
    ends = np.cumsum(lengths)
    return [ids[end - length : end].tolist() for end, length in zip(ends, lengths)]


def test_sentencepiece_differs_on_whole_sentences_where_scores_are_equal_only(vocabulary):
    """Words whose pieces may change places, also after unknown characters and in long sentences, beside usual ones."""
    generator = np.random.default_rng(0)
    usual, sentences = corpora.make_sentences(1500, seed=5), []
    for base in usual:
        words = base.split()
        for _ in range(3):
            unit = "".join(generator.choice(list("lomce16."), generator.integers(1, 3)))
            words.insert(int(generator.integers(len(words) + 1)), unit * int(generator.integers(2, 7)))
        words.insert(int(generator.integers(len(words) + 1)), "漢" * int(generator.integers(3)))
        sentences.append(" ".join(words * int(generator.choice([1, 1, 1, 20]))))
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.serialized)
    scores = np.array([processor.get_score(number) for number in range(len(vocabulary))])
    found, whole = by_words(Encoder(vocabulary), sentences), processor.encode([*map(normalize, sentences)])
    differ = [(ours, theirs) for ours, theirs in zip(found, whole) if ours != theirs]
    assert 5 < len(differ) < len(sentences) / 5, "the test has lost its power"
    for ours, theirs in differ:
        assert (ours.count(UNK_ID), len(ours)) == (theirs.count(UNK_ID), len(theirs))
        assert scores[ours].sum() == pytest.approx(scores[theirs].sum(), abs=0.01)  # an unknown character adds -1e4
    assert by_words(Encoder(vocabulary), usual) == processor.encode([*map(normalize, usual)])


@example(["a▁ b", "▁ a", "a ▁"])
@given(st.lists(st.text(st.sampled_from("aBé 1,.–½…ﬁ¨̈́漢▁\u00a0\u2028'`\"[CLS]\x00\x1f"), max_size=12), max_size=6))
@settings(max_examples=200)
def test_whatever_is_written(vocabulary: Vocabulary, sentences: list[str]) -> None:
    encoder = Encoder(vocabulary)
    expected = plain(vocabulary, [sentence.replace("\0", " ") for sentence in sentences])
    assert by_words(encoder, sentences) == expected
    assert by_words(encoder, sentences) == expected  # now every word is known


def test_a_batch_of_any_size_ends_where_it_ends(vocabulary: Vocabulary) -> None:
    """Arrow 26 reads beyond a text that ends with white space and fills its buffer, a multiple of 64 bytes."""
    encoder = Encoder(vocabulary)
    for size in range(200):
        sentences = ["ab " * (size // 3) + "c" * (size % 3)]
        assert by_words(encoder, sentences) == plain(vocabulary, sentences), size


@pytest.mark.parametrize("limit", ["MAX_WORDS", "FREQUENT_WORDS"])
def test_a_small_table_changes_nothing(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(encoder_module, limit, 50)
    encoder = Encoder(vocabulary)
    sentences = corpora.make_sentences(400, seed=4)
    found = [by_words(encoder, sentences[first : first + 20]) for first in range(0, 400, 20)]
    assert [ids for batch in found for ids in batch] == by_words(Encoder(vocabulary), sentences)


# Letters that grow, shrink, vanish or change case in normalisation, beside plain ones and every kind of space.
DIFFICULT = st.sampled_from(list("aZé½ﬁİßΣς㎏한΅̈`'\"“ⅷ…2,. \u3000\u00a0\u200b\n\0\u0301\u0345ǅ"))
TEXTS = st.text(DIFFICULT | st.characters(codec="utf-8"), max_size=40)


@given(TEXTS, st.builds(Normalization, st.booleans(), st.booleans()))
@settings(max_examples=150)
@example("a\u0327\u0301b \u1112\u1161\u11abx か\u3099\u3099 İI", Normalization(False, True))
def test_a_word_is_normalised_by_any_rule_as_a_text_is(text, kind):
    for word in text.replace("\0", " ").replace("▁", " ").split():
        normalised, sources = normalize_word(word, kind)
        assert normalised == normalize(word, kind)
        assert len(sources) == len(normalised)
        assert sources == sorted(sources)
        # What comes before a source makes what comes before its characters.
        for position, source in enumerate(sources):
            if position and sources[position - 1] != source and not kind.keep_case:
                made = normalize(word[:source], kind).replace("ς", "σ")
                assert normalised[:position].replace("ς", "σ").rstrip().startswith(made)


@given(TEXTS)
@settings(max_examples=150)
def test_tokens_are_those_of_pre_training_and_stand_where_they_say(vocabulary, text):
    assume(not SPECIAL_PIECES.are_in(text))  # which stand for themselves only where a model is used
    ids, starts, ends = OffsetEncoder(vocabulary).encode(text)
    assert ids.tolist() == Encoder(vocabulary).encode([text])[0].tolist()
    assert (starts <= ends).all()
    assert (starts[1:] >= starts[:-1]).all()
    assert (ends[1:] >= ends[:-1]).all()
    assert len(ids) == 0 or (starts[0] >= 0 and ends[-1] <= len(text))
    assert not any(text[start:end].strip("\0").isspace() for start, end in zip(starts, ends) if end > start)


def reference(text: str) -> str:
    """Normalises by the definition, character by character and without shortcuts."""
    text = text.replace("\0", " ").replace("▁", " ").replace("``", '"').replace("''", '"')
    decomposed = unicodedata.normalize("NFKD", text)
    return " ".join("".join(c for c in decomposed if not unicodedata.combining(c)).lower().split())


@example("Čeština  déjà\tVU\n ``quoted'' ﬁne ½ Ⅷ ２ Straße İstanbul a\u00a0b\u3000c don't a\0b▁c ▁")
@given(st.text())
def test_normalize_is_its_definition(text: str) -> None:
    assert normalize(text) == reference(text)


def test_the_definition_is_that_of_the_reference_code() -> None:
    assert normalize("Čeština  déjà\tVU\n ``quoted'' ﬁne ½ Ⅷ don't") == 'cestina deja vu "quoted" fine 1⁄2 viii don\'t'


def test_long_runs_of_marks_take_linear_time() -> None:
    """NFKD sorts the marks behind a letter in quadratic time: two million of them took hours."""
    marks = "a" + "\u0301\u0323" * 500_000 + "b"
    assert normalize(marks) == "ab"


def test_long_runs_are_decomposed_as_a_whole_is() -> None:
    generator = random.Random(0)
    characters = [
        chr(code)
        for code in (*range(0x80, 0x2580), *range(0x2582, 0x3000), *range(0xA000, 0xD7FF), *range(0xF900, 0x10000))
    ]
    for _ in range(20):
        text = "".join(generator.choices(characters, k=3000))
        whole = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
        assert normalize(text) == " ".join(whole.lower().split())


def test_what_is_kept() -> None:
    kept = {
        Normalization(keep_case=False, keep_accents=False): "elise и かな कया",
        Normalization(keep_case=True, keep_accents=False): "Elise и かな कया",
        Normalization(keep_case=False, keep_accents=True): "élise й がな क्या",
        Normalization(keep_case=True, keep_accents=True): "Élise й がな क्या",
    }
    assert {kind: normalize("E\u0301lise  й か\u3099な\tक्या", kind) for kind in kept} == kept


@given(st.text(st.sampled_from("aE\u0301\u0323\u00e9'`A\u0130\uac01\u3099か \u2003") | st.characters(), max_size=20))
def test_kept_accents_are_composed(text: str) -> None:
    quoted = text.replace("\0", " ").replace("▁", " ").replace("``", '"').replace("''", '"')
    composed = " ".join(unicodedata.normalize("NFKC", quoted).split())
    assert normalize(text, Normalization(True, True)) == composed
    assert normalize(text, Normalization(False, True)) == " ".join(composed.lower().split())
